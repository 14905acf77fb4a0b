# SPDX-License-Identifier: Apache-2.0
"""Reads the JSON log of a `meson test` run: counts, failures, and why tests were skipped.

Prints lines for tools/test: "count PASSED FAILED SKIPPED", then "failed NAME RESULT" with the end
of its output in lines that start with "|", and "skipped NAME: REASON" for each. A run without a
log prints nothing and exits 1.
"""

import json
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
TAIL_LINES = 25


def output(test: dict) -> list[str]:
    """The lines that the test printed, without the empty ones."""
    lines = (test.get("stdout", "") + "\n" + test.get("stderr", "")).splitlines()
    return [line.strip() for line in lines if line.strip()]


def reason(test: dict) -> str:
    """The line in which the test says why it was skipped; else its last line."""
    lines = output(test)
    for line in lines:
        if "skip" in line.lower():
            return line
    return lines[-1] if lines else "no reason given"


def main(path: str) -> int:
    """Prints what became of the tests in this log. Returns the exit code."""
    try:
        with open(path, encoding="utf-8") as log:
            tests = [json.loads(line) for line in log if line.strip()]
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    passed = [t for t in tests if t["result"] in PASSED]
    skipped = [t for t in tests if t["result"] == "SKIP"]
    failed = [t for t in tests if t not in passed and t not in skipped]
    print("count", len(passed), len(failed), len(skipped))
    for test in failed:
        print("failed", test["name"].removeprefix("kvpool:"), test["result"])
        for line in output(test)[-TAIL_LINES:]:
            print("|", line)
    for test in skipped:
        print("skipped", test["name"].removeprefix("kvpool:") + ":", reason(test))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
