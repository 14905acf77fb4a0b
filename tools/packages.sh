# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What kvpool needs of Debian 12, and how it is installed: sourced by tools/demo and tools/test.
#
#	packages_ensure PROGRAM yes|no GROUP...
#
# GROUP is "build", "test", "python" or "engines". Asks nothing. Where nothing is missing it takes some
# milliseconds.

packages_build=(
	gcc                  # the compiler
	libc6-dev            # headers of the C library and of Linux
	meson                # the build system
	ninja-build          # which meson drives
	pkg-config           # how meson finds the libraries below
	libssl-dev           # SHA-256 of block keys and layouts (libcrypto)
	liburing-dev         # kvpoold's event loop
	libnuma-dev          # memory on the right NUMA node
	libsystemd-dev       # sd_notify and socket activation
	libmicrohttpd-dev    # kvpoold's admin socket
	libjansson-dev       # JSON of the admin socket and the tools
	libinih-dev          # kvpoold's configuration file
	libcurl4-openssl-dev # kvpoolctl's HTTP over a Unix socket
	liblzma-dev          # traces compressed with xz
	libhiredis-dev       # kvpool-bench compare: client of Redis
)

packages_test=(
	check              # the test framework
	clang              # second compiler, libFuzzer
	libclang-rt-14-dev # its sanitizers and libFuzzer's run time
	clang-format-14    # the house style, by machine
	clang-tidy         # static analysis
	cppcheck           # static analysis
	shellcheck         # the scripts
	valgrind           # memory errors on the integration path
	spin               # model checker of the doorbell protocol
	g++                # compiles the model of the ring
	relacy-dev         # race detector for that model
	xz-utils           # tests cut compressed traces short
	curl               # tests ask the admin socket as a person would
	jq                 # tests read what it answers
	redis-server       # kvpool-bench compare: a peer to measure beside
	memcached          # kvpool-bench compare: another
	systemd            # systemd-analyze: checks the units
	systemd-container  # systemd-nspawn: boots a real systemd to run them in
	debootstrap        # makes the Debian that it boots
)

# To build the Python package and to install it; pip brings the rest.
packages_python=(
	python3      # 3.11; another from 3.10 on that comes first on the path does as well
	python3-venv # virtual environments, with pip
	python3-dev  # Python.h
)

# To install the engines that tools/engines pins, and to build llama.cpp.
packages_engines=(
	"${packages_python[@]}"
	cmake # the build system of llama.cpp
	g++   # its compiler, and what torch compiles kernels with
)

# Prints the packages of these groups that are not installed, one a line.
packages_missing() {
	local -a wanted=()
	local -A installed=()
	local group package status

	for group in "$@"; do
		case $group in
		build) wanted+=("${packages_build[@]}") ;;
		test) wanted+=("${packages_test[@]}") ;;
		python) wanted+=("${packages_python[@]}") ;;
		engines) wanted+=("${packages_engines[@]}") ;;
		*)
			echo "packages.sh: no group $group" >&2
			return 2
			;;
		esac
	done
	while read -r status package; do
		if [[ $status == ii ]]; then
			installed[$package]=1
		fi
	done < <(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "${wanted[@]}" 2>/dev/null)
	for package in "${wanted[@]}"; do
		if [[ -z ${installed[$package]:-} ]]; then
			echo "$package"
		fi
	done
}

# Installs what is missing of the groups; with "no" as the second argument it only names it and
# fails. The program's name stands before each message.
packages_ensure() {
	local program=$1 install=$2
	local -a missing=() root=()
	shift 2

	if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
		echo "$program: no apt-get here, so what kvpool needs must be there already" >&2
		return 0
	fi
	mapfile -t missing < <(packages_missing "$@")
	if ((${#missing[@]} == 0)); then
		return 0
	fi
	if [[ $install != yes ]]; then
		echo "$program: these Debian packages are missing: ${missing[*]}" >&2
		echo "$program: install them with: apt-get install --no-install-recommends ${missing[*]}" >&2
		return 1
	fi
	if ((EUID != 0)); then
		if ! command -v sudo >/dev/null; then
			echo "$program: neither root nor sudo, so these cannot be installed: ${missing[*]}" >&2
			return 1
		fi
		root=(sudo)
	fi
	echo "$program: installing with apt-get what is missing to $* kvpool: ${missing[*]}" >&2
	"${root[@]}" apt-get -qq update >&2 &&
		"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
			install --no-install-recommends "${missing[@]}" >&2
}
