# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# The release build that tools/demo and tools/experiment run: sourced by both.
#
#	release_build PROGRAM SOURCE_DIR BUILD_DIR LOG
#
# Ninja draws its own progress on a terminal; elsewhere only a failure is worth reading.

release_build() {
	local program=$1 source=$2 build=$3 log=$4

	echo "$program: building a release in $build" >&2
	if [[ ! -f $build/build.ninja ]] &&
		! meson setup --buildtype=release -Dtests=false "$build" "$source" >"$log" 2>&1; then
		cat "$log" >&2
		return 1
	fi
	if [[ -t 2 ]]; then
		ninja -C "$build" >&2
	elif ! ninja -C "$build" >"$log" 2>&1; then
		cat "$log" >&2
		return 1
	fi
}
