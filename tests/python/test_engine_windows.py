# SPDX-License-Identifier: Apache-2.0
"""Sliding windows keep only what somebody may go on from."""

from collections.abc import Callable, Iterator
from typing import Any

import harness
import pytest
from kvpool.engine import windows
from paged_engine import TOKENS, Engine, Request, make_spec

WINDOW = 4 * TOKENS
HYBRID = make_spec([("full", 0), ("window", WINDOW)])
PROMPT = list(range(40 * TOKENS + 5))


@pytest.fixture
def engine(daemon: harness.Daemon) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(**kwargs: Any) -> Engine:
        made.append(Engine(daemon.socket, HYBRID, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_should_cover_the_window_before_each_end_once() -> None:
    assert windows.wanted({40}, 40, 0, 40, WINDOW, TOKENS) == [(36, 40)]
    assert windows.wanted({40, 39}, 40, 0, 40, WINDOW, TOKENS) == [(35, 40)]
    assert windows.wanted({40, 10}, 40, 0, 40, WINDOW, TOKENS) == [(6, 10), (36, 40)]


def test_should_cover_every_block_of_the_answer() -> None:
    assert windows.wanted({40}, 40, 38, 44, WINDOW, TOKENS) == [(38, 44)]


def test_should_cover_nothing_outside_of_what_is_computed() -> None:
    assert windows.wanted({40}, 40, 0, 30, WINDOW, TOKENS) == []
    assert windows.wanted({2}, 2, 0, 2, WINDOW, TOKENS) == [(0, 2)]


def test_should_store_no_more_of_a_window_than_the_end_needs(
    engine: Callable[..., Engine],
) -> None:
    a = engine()
    a.run("first", PROMPT)

    assert a.counted()["blocks_stored"] == 40 + 4


@pytest.mark.parametrize("blocks", [1, 3, 4, 5, 17, 40])
def test_should_read_the_whole_prompt_at_any_length(
    engine: Callable[..., Engine], blocks: int
) -> None:
    a, b = engine(), engine()
    a.run("first", PROMPT[: blocks * TOKENS + 1])

    assert b.run("second", PROMPT[: blocks * TOKENS + 1]) == blocks * TOKENS


def test_should_read_the_answer_of_the_turn_before(engine: Callable[..., Engine]) -> None:
    a, b = engine(), engine()
    answer = list(range(5000, 5000 + 7 * TOKENS))
    a.run("turn 1", PROMPT, answer)

    assert b.run("turn 2", [*PROMPT, *answer, 7]) == 47 * TOKENS


def test_should_learn_where_prompts_branch(engine: Callable[..., Engine]) -> None:
    a, b = engine(), engine()
    shared = PROMPT[: 20 * TOKENS]
    a.run("first", [*shared, *range(1000, 1100)])
    assert b.run("second", [*shared, *range(2000, 2100)]) == 0  # no window before the branch
    assert b.counted()["blocks_stored"] > 4 + 6

    assert a.run("third", [*shared, *range(3000, 3100)]) == 20 * TOKENS


def test_should_read_on_from_a_prefix_that_the_engine_holds(
    engine: Callable[..., Engine],
) -> None:
    a, b = engine(), engine()
    a.run("first", PROMPT)
    request = Request("second", PROMPT)
    b.grow(request)
    b.compute(request, 0, 10 * TOKENS)  # the engine's own cache

    assert b.admit(request, local=10 * TOKENS) == 30 * TOKENS
