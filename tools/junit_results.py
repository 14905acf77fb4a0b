# SPDX-License-Identifier: Apache-2.0
"""Reads the JUnit file of a pytest run: counts, failures, and why tests were skipped.

Prints the same lines for tools/test as meson_results.py: "count PASSED FAILED SKIPPED", then
"failed NAME" with the end of its message in lines that start with "|", and "skipped NAME: REASON".
A run without a file prints nothing and exits 1.
"""

import sys
import xml.etree.ElementTree as ElementTree

TAIL_LINES = 25


def name(case: ElementTree.Element) -> str:
    """File and function, as pytest names them."""
    return f"{case.get('classname', '')}::{case.get('name', '')}"


def main(path: str) -> int:
    """Prints what became of the tests in this file. Returns the exit code."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        print(error, file=sys.stderr)
        return 1
    bad = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    left = [c for c in cases if c.find("skipped") is not None]
    print("count", len(cases) - len(bad) - len(left), len(bad), len(left))
    for case in bad:
        print("failed", name(case))
        told = case.find("failure") if case.find("failure") is not None else case.find("error")
        text = (told.text or told.get("message", "")) if told is not None else ""
        for line in [line for line in text.splitlines() if line.strip()][-TAIL_LINES:]:
            print("|", line)
    for case in left:
        told = case.find("skipped")
        reason = told.get("message", "") if told is not None else ""
        print("skipped", f"{name(case)}: {' '.join(reason.split())}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
