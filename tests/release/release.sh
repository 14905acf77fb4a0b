# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Yesterday's release, built from the history of this repository into a cache folder of the user,
# and the test's client against any release. For sourcing; needs $here, this folder, and skip().

yesterday_version=0.1.0
yesterday_commit=1fed188a4649c5ce4c02d83f1882bcdeaaea2bde

# shellcheck disable=SC2154 # of whoever sources this
source_dir=$(cd "$here/../.." && pwd)
yesterday=${XDG_CACHE_HOME:-$HOME/.cache}/kvpool/releases/$yesterday_commit

can_build() {
	local command

	for command in git meson ninja cc; do
		command -v "$command" >/dev/null || skip "$command is not installed"
	done
	git -C "$source_dir" cat-file -e "$yesterday_commit^{commit}" 2>/dev/null ||
		skip "the history has no $yesterday_commit ($yesterday_version): a shallow clone?"
}

# Nothing but what the test runs. A folder that is there is whole.
build_yesterday() {
	local folder

	if [[ -e $yesterday ]]; then
		return
	fi
	can_build
	mkdir -p "${yesterday%/*}"
	folder=$(mktemp -d "$yesterday.XXXXXX")
	mkdir "$folder/source"
	git -C "$source_dir" archive "$yesterday_commit" | tar -x -C "$folder/source"
	if ! { meson setup -Dbuildtype=debug -Dtests=false -Dtools=false -Dwerror=false \
		"$folder/build" "$folder/source" && ninja -C "$folder/build" daemon/kvpoold \
		client/libkvpool.so.0.1.0; } >"$folder/log" 2>&1; then
		tail -n 30 "$folder/log"
		rm -rf "$folder"
		echo "cannot build $yesterday_version"
		return 1
	fi
	# Where somebody else was faster, theirs is as good.
	mv -T "$folder" "$yesterday" 2>/dev/null || rm -rf "$folder"
}

# build_client SOURCE BUILD OUT: the client of that release's library.
build_client() {
	cc -O1 -Wall -Wextra -Werror -I"$here" -I"$1/client" "$here/client.c" -o "$3" \
		-L"$2/client" -lkvpool -Wl,-rpath,"$2/client"
}
