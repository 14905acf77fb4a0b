# SPDX-License-Identifier: Apache-2.0
"""The measurement of what a miss costs: every prompt is new, and the turns are fair."""

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from engine.process import EngineError
from experiments import cost

OPTIONS = argparse.Namespace(batch=3, tokens=64, answer=4)


class Engine:
    """Answers at once, and remembers what it was asked."""

    def __init__(self, name: str, log: list[tuple[str, tuple[int, ...]]], cached: int = 0) -> None:
        self.name, self.log, self.cached = name, log, cached

    def generate(self, prompt: list[int], answer: int, **_: Any) -> argparse.Namespace:
        self.log.append((self.name, tuple(prompt)))
        return argparse.Namespace(cached=self.cached)


def test_should_send_each_prompt_to_each_engine_once_in_alternating_turns() -> None:
    log: list[tuple[str, tuple[int, ...]]] = []
    engines: Any = {name: Engine(name, log) for name in ("without", "with")}
    for number in range(2):
        cost.round_of(engines, number, OPTIONS)

    assert [name for name, _ in log[::3]] == ["without", "with", "with", "without"] * 2
    for name in engines:
        prompts = [prompt for who, prompt in log if who == name]
        assert len(set(prompts)) == len(prompts) == 12
    assert {p for who, p in log if who == "with"} == {p for who, p in log if who == "without"}


def test_should_refuse_to_call_a_hit_the_cost_of_a_miss() -> None:
    engines: Any = {"without": Engine("without", [], cached=32), "with": Engine("with", [])}

    with pytest.raises(EngineError, match="32 tokens were cached"):
        cost.round_of(engines, 1, OPTIONS)
