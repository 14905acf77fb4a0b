# SPDX-License-Identifier: Apache-2.0
"""What is measured so far, in a file, so that a run that was cut short goes on where it was.

One process writes it; a write replaces the file, so it is whole at every moment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1


class WorkError(Exception):
    """The file of an earlier run cannot be used. The message says why and what to do."""


class Work:
    """Finished rows by point and arm, their answers, and what the run was asked for."""

    def __init__(self, path: Path, asked: dict[str, Any]) -> None:
        self._path = path
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "asked": asked,
            "capacity": None,
            "requests": None,
            "seconds": 0.0,
            "rows": {},
            "answers": {},
            "samples": {},
        }

    @classmethod
    def resume(cls, path: Path, asked: dict[str, Any]) -> Work:
        """The work of an earlier run. Raises WorkError: there is none, or it asked otherwise."""
        try:
            data = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise WorkError(f"nothing to resume: {path}: {error}") from error
        if data.get("format") != FORMAT:
            raise WorkError(f"{path} is of another version of this tool: run without --resume")
        if data["asked"] != asked:
            differs = [k for k in asked if data["asked"].get(k) != asked[k]]
            raise WorkError(
                f"the earlier run had other settings ({', '.join(differs)}): give the same, or run "
                "without --resume"
            )
        work = cls(path, asked)
        work.data = data
        return work

    def has(self, point: str, arm: str) -> bool:
        """Whether this row is finished."""
        return f"{point} {arm}" in self.data["rows"]

    def row(self, point: str, arm: str) -> dict[str, Any]:
        """A finished row."""
        return self.data["rows"][f"{point} {arm}"]

    def add(self, point: str, arm: str, row: dict[str, Any], answers: list[list[int]]) -> None:
        """Notes a finished row and writes the file."""
        self.data["rows"][f"{point} {arm}"] = row
        self.data["answers"][f"{point} {arm}"] = answers
        self.write()

    def write(self) -> None:
        """Replaces the file. Raises OSError."""
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self.data))
        os.replace(beside, self._path)

    def finished_rows(self) -> list[dict[str, Any]]:
        """All rows as they were measured, with how many answers are not as arm none's."""
        rows = []
        for key, row in self.data["rows"].items():
            point, arm = key.split(" ")
            base = self.data["answers"].get(f"{point} none")
            differ = (
                None if base is None else differing(base, self.data["answers"][f"{point} {arm}"])
            )
            rows.append(row | {"answers_differ": differ})
        return rows


@dataclass
class Answers:
    """Answers of one arm to the sample prompts; prompt tokens that the second time found."""

    cold: list[list[int]]
    warm: list[list[int]]
    cached: int


def compare(answers: Mapping[str, Answers]) -> dict[str, dict[str, int]]:
    """What stands in the results about each arm's sample.

    An engine that finds part of a prompt computes the rest in other shapes than all of it, so sums
    of bfloat16 may turn a near tie: vLLM's own cache does that too. So answers to found prompts are
    held against arm engine's, who found the same, and only those to computed prompts against arm
    none's; `differ_from_none` counts both kinds all the same.
    """
    found: dict[str, dict[str, int]] = {}
    for arm, taken in answers.items():
        row = {"answers": len(taken.cold) + len(taken.warm), "cached_tokens": taken.cached}
        base = answers["none"]
        row["differ_computed"] = differing(base.cold, taken.cold)
        row["differ_from_none"] = row["differ_computed"] + differing(base.warm, taken.warm)
        if arm == "kvpool" and "engine" in answers:
            row["differ_found"] = differing(answers["engine"].warm, taken.warm)
        found[arm] = row
    return found


def differing(base: list[list[int]], other: list[list[int]]) -> int:
    """How many answers are not the same, token for token. Raises ValueError for unequal numbers."""
    return sum(a != b for a, b in zip(base, other, strict=True))
