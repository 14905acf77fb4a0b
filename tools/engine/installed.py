# SPDX-License-Identifier: Apache-2.0
"""Says whether a virtual environment has exactly the pinned packages.

Run by the environment's own Python: `python -m engine.installed requirements.txt [name==version]`.
Prints the first difference and exits with 1; with 0 where there is none.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path


def first_difference(pins: list[str]) -> str:
    """The first pin that does not hold here, with what is found instead; empty: all hold."""
    for pin in pins:
        name, _, wanted = pin.partition("==")
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            return f"{name} is missing"
        if found != wanted:
            return f"{name} is {found}, not {wanted}"
    return ""


def main() -> int:
    """Compares and answers by exit status."""
    lines = Path(sys.argv[1]).read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    difference = first_difference(pins + sys.argv[2:])
    if difference:
        print(difference)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
