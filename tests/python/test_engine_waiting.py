# SPDX-License-Identifier: Apache-2.0
"""Two engines get the same prompt at once: it is computed once, and nobody waits for ever."""

from collections.abc import Callable, Iterator
from typing import Any

import harness
import pytest
from paged_engine import TOKENS, Clock, Engine, Request

PROMPT = list(range(10 * TOKENS + 5))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(daemon: harness.Daemon, clock: Clock) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(**kwargs: Any) -> Engine:
        made.append(Engine(daemon.socket, clock=clock, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_should_wait_for_a_prompt_that_another_engine_computes(
    engine: Callable[..., Engine],
) -> None:
    a, b = engine(), engine()
    first, second = Request("first", PROMPT), Request("second", PROMPT)
    assert a.admit(first) == 0
    assert b.admit(second) is None
    assert b.admit(second) is None
    a.step(first)

    assert b.admit(second) == 10 * TOKENS
    assert b.counted()["waits"] == 1


def test_should_take_over_what_its_writer_gave_up(engine: Callable[..., Engine]) -> None:
    a, b = engine(chunk=3 * TOKENS), engine()
    first, second = Request("first", PROMPT), Request("second", PROMPT)
    a.admit(first)
    a.step(first)
    assert b.admit(second) is None
    a.finish(first)

    assert b.admit(second) == 3 * TOKENS
    b.step(second)
    assert a.run("third", PROMPT) == 10 * TOKENS


def test_should_compute_where_waiting_would_take_as_long(
    engine: Callable[..., Engine], clock: Clock
) -> None:
    a, b = engine(), engine()
    first, second = Request("first", PROMPT), Request("second", PROMPT)
    a.admit(first)
    assert b.admit(second) is None
    clock.now += 3600

    assert b.admit(second) == 0
    assert b.counted()["waits_given_up"] == 1


def test_should_wait_once_only(engine: Callable[..., Engine], clock: Clock) -> None:
    a, b = engine(), engine()
    first, second = Request("first", PROMPT), Request("second", PROMPT)
    a.admit(first)
    b.admit(second)
    clock.now += 3600

    assert b.scheduler.lookup(second, 0) == 0
    clock.now += 1
    assert b.scheduler.lookup(second, 0) == 0


def test_should_wait_no_longer_than_computing_was_measured_to_take(
    engine: Callable[..., Engine], clock: Clock
) -> None:
    a, b = engine(), engine()
    slow = Request("measured", [9] * (10 * TOKENS))
    b.admit(slow)
    plan = b.scheduler.step([(slow.id, 10 * TOKENS, lambda: slow.tables)])
    clock.now += 16.0  # 0.1 s a token
    b.scheduler.report(None)
    assert plan.stores
    first, second = Request("first", PROMPT), Request("second", PROMPT)
    a.admit(first)
    assert b.admit(second) is None
    clock.now += 9.9  # of the setting's 10 s
    assert b.admit(second) is None
    clock.now += 0.2

    assert b.admit(second) == 0


def test_should_wait_on_while_the_writer_goes_on(
    engine: Callable[..., Engine], clock: Clock
) -> None:
    a, b = engine(chunk=4 * TOKENS), engine()
    first, second = Request("first", PROMPT), Request("second", PROMPT)
    a.admit(first)
    assert b.admit(second) is None
    for _ in range(2):
        clock.now += 0.9  # of a second, since nothing was measured
        a.step(first)
        assert b.admit(second) is None
    clock.now += 1.1

    assert b.admit(second) == 8 * TOKENS


def test_should_not_wait_for_itself(engine: Callable[..., Engine]) -> None:
    a = engine()
    request = Request("queued", PROMPT)
    assert a.scheduler.lookup(request, 0) == 0  # reserved, but the engine has no page yet

    assert a.scheduler.lookup(request, 0) == 0
    assert "waits" not in a.counted()


def test_should_wait_only_for_the_part_that_is_computed_elsewhere(
    engine: Callable[..., Engine],
) -> None:
    a, b = engine(), engine()
    first, longer = Request("first", PROMPT), Request("longer", [*PROMPT, *range(900, 1000)])
    a.admit(first)
    assert b.admit(longer) is None
    a.step(first)

    assert b.admit(longer) == 10 * TOKENS
    b.step(longer)
    assert a.run("again", longer.all) == 16 * TOKENS


def test_should_decline_a_hit_that_is_slower_to_copy_than_to_compute(
    engine: Callable[..., Engine], clock: Clock
) -> None:
    a, b = engine(), engine()
    a.run("first", PROMPT)
    b.scheduler._cost.compute.add(1, 1e-9)
    b.scheduler._cost.copy.add(1, 1e-3)

    assert b.run("second", PROMPT) == 0
    assert b.counted()["hits_declined"] == 1


def test_should_take_a_declined_hit_now_and_then_to_measure_again(
    engine: Callable[..., Engine],
) -> None:
    a, b = engine(), engine()
    a.run("first", PROMPT)
    b.scheduler._cost.compute.add(1, 1e-9)
    b.scheduler._cost.copy.add(1, 1e-3)

    taken = sum(b.run(f"try {i}", PROMPT) > 0 for i in range(64))

    assert taken >= 1


def test_should_leave_a_daemon_alone_that_does_not_answer(
    engine: Callable[..., Engine], daemon: harness.Daemon, clock: Clock
) -> None:
    a = engine()
    a.scheduler._line._breaker.timed_out(clock.now)

    assert a.run("first", PROMPT) == 0
    assert "lookup_seconds" not in a.counted()
    clock.now += 60
    a.run("second", PROMPT)
    assert a.run("third", PROMPT) == 10 * TOKENS
