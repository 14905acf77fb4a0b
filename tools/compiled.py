# SPDX-License-Identifier: Apache-2.0
"""Prints those of the files named that a build compiles, each with a NUL behind it.

Usage: compiled.py BUILD FILE...; BUILD holds a compile_commands.json.
"""

import json
import os
import sys


def main(build: str, files: list[str]) -> int:
    """Returns the exit code."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as database:
        compiled = {
            os.path.realpath(os.path.join(entry["directory"], entry["file"]))
            for entry in json.load(database)
        }
    for file in files:
        if os.path.realpath(file) in compiled:
            sys.stdout.write(file + "\0")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
