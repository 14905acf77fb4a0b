# SPDX-License-Identifier: Apache-2.0
"""Lists the files of the package for meson, one a line, as seen from the folder above it.

Run when a build is configured: `list_files.py PACKAGE`. Touches nothing.
"""

import sys
from pathlib import Path

SUFFIXES = {".py", ".pyi", ".typed"}


def main(package: Path) -> None:
    """Prints the path of every file of the package, sorted."""
    paths = (path for path in package.rglob("*") if path.suffix in SUFFIXES)
    for path in sorted(paths):
        print(path.relative_to(package.parent).as_posix())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
