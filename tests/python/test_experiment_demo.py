# SPDX-License-Identifier: Apache-2.0
"""What tools/demo --engines says of results that are made up."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from engine.demo import Shown, prompt_of, table, verdict
from engine.process import Result


def shown(tokens: list[list[int]], cached: int = 96) -> list[Shown]:
    """First, second, control, and control asked again."""
    found = (0, cached, 0, 96)
    return [
        Shown(
            name, Result(answer, "text", hit, 100, "stop", None, 1.0, 1.0 + (100 - hit) / 50, 9.0)
        )
        for name, answer, hit in zip("abcd", tokens, found, strict=True)
    ]


def test_should_be_content_with_equal_answers_and_a_found_prompt() -> None:
    fine, sentence = verdict(shown([[1, 2]] * 4))
    assert fine
    assert "25.0 times sooner" in sentence
    assert "all answers are the same" in sentence


def test_should_accept_what_the_engine_own_cache_answers_too() -> None:
    fine, sentence = verdict(shown([[1, 2], [1, 3], [1, 2], [1, 3]]))
    assert fine
    assert "all answers" not in sentence


@pytest.mark.parametrize("odd", [0, 1, 2, 3])
def test_should_fail_where_one_answer_is_another(odd: int) -> None:
    answers = [[1, 2] for _ in range(4)]
    answers[odd] = [1, 9]
    fine, sentence = verdict(shown(answers))
    assert not fine
    assert "differ" in sentence


def test_should_fail_where_the_second_engine_found_nothing() -> None:
    fine, sentence = verdict(shown([[1, 2]] * 4, cached=0))
    assert not fine
    assert "found nothing" in sentence


def test_table_should_say_what_each_engine_computed() -> None:
    lines = table(shown([[1, 2]] * 4)).splitlines()
    assert "100 of 100" in lines[1]
    assert "2000 ms" in lines[1]
    assert "4 of 100" in lines[2]
    assert "80 ms" in lines[2]


def test_prompt_should_be_bounded_however_long_the_text_is() -> None:
    assert len(prompt_of("x" * 100_000)) < 9000
