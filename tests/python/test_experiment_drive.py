# SPDX-License-Identifier: Apache-2.0
"""The experiment's driver on engines that answer when a test says so."""

import sys
import threading
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from engine.process import EngineError
from experiments.drive import Driver
from experiments.mix import Prompt
from experiments.stats import Outcome

PROMPTS = [Prompt((i,) * 10, "single", 0) for i in range(6)]
IN_ONE_MOMENT = (PROMPTS, [0.0] * 6)
PATIENCE_SECONDS = 30.0


def most_at_once(outcomes: Sequence[Outcome]) -> int:
    """Ends before begins where both are at one moment."""
    events = sorted([(o.done, -1) for o in outcomes] + [(o.sent, 1) for o in outcomes])
    return max(accumulate(step for _, step in events))


class FakeEngine:
    """Answers a request when `answer` is set, with its own prompt; fails where told to."""

    def __init__(self, *, answers: bool = True, fails: bool = False) -> None:
        self.answer = threading.Event()
        self.taken = threading.Semaphore(0)
        if answers:
            self.answer.set()
        self.fails = fails
        self.prompts: list[tuple[int, ...]] = []
        self.sent: list[float] = []

    def submit(self, prompt: Sequence[int], _max_tokens: int, *, ignore_eos: bool) -> int:
        assert ignore_eos
        self.prompts.append(tuple(prompt))
        self.sent.append(time.monotonic())
        self.taken.release()
        return len(self.prompts) - 1

    def result(self, request: int) -> SimpleNamespace:
        self.answer.wait()
        if self.fails:
            raise EngineError("it failed")
        prompt = self.prompts[request]
        now = time.monotonic()
        return SimpleNamespace(
            tokens=list(prompt[:2]),
            cached=4,
            prompt_tokens=len(prompt),
            submitted=self.sent[request],
            first=None,
            done=now,
        )


def test_should_return_what_became_of_each_prompt_in_their_order() -> None:
    outcomes = Driver([FakeEngine(), FakeEngine()], 8, 1).open_loop(PROMPTS, [0.0] * 6)
    assert [o.tokens for o in outcomes] == [p.tokens[:2] for p in PROMPTS]
    assert all(o.cached_tokens == 4 and o.due == 0 and o.done >= o.sent >= 0 for o in outcomes)


def test_should_send_to_the_engine_with_the_fewest_unfinished() -> None:
    slow, other = FakeEngine(answers=False), FakeEngine(answers=False)
    sender = threading.Thread(target=Driver([slow, other], 8, 1).open_loop, args=IN_ONE_MOMENT)
    sender.start()
    for engine in (slow, other):
        for _ in range(3):
            assert engine.taken.acquire(timeout=PATIENCE_SECONDS)
    for engine in (slow, other):
        engine.answer.set()
    sender.join()
    assert (len(slow.prompts), len(other.prompts)) == (3, 3)


def test_should_route_alike_for_the_same_seed() -> None:
    rows = []
    for _ in range(2):
        engines = [FakeEngine(answers=False), FakeEngine(answers=False)]
        sender = threading.Thread(target=Driver(engines, 8, 5).open_loop, args=IN_ONE_MOMENT)
        sender.start()
        for engine in engines:
            for _ in range(3):
                assert engine.taken.acquire(timeout=PATIENCE_SECONDS)
        for engine in engines:
            engine.answer.set()
        sender.join()
        rows.append(engines[0].prompts)
    assert rows[0] == rows[1]


def test_should_not_send_before_a_request_is_due() -> None:
    outcomes = Driver([FakeEngine()], 8, 1).open_loop(PROMPTS, [0.01 * i for i in range(6)])
    assert all(o.sent >= o.due for o in outcomes)


def test_should_keep_no_more_in_flight_than_a_closed_loop_has() -> None:
    engine = FakeEngine(answers=False)
    driver = Driver([engine], 8, 1)
    outcomes: list[Outcome] = []
    sender = threading.Thread(target=lambda: outcomes.extend(driver.closed_loop(PROMPTS, 2)))
    sender.start()
    for _ in range(2):
        assert engine.taken.acquire(timeout=PATIENCE_SECONDS)
    assert not engine.taken.acquire(blocking=False)
    engine.answer.set()
    sender.join()
    assert len(outcomes) == 6
    assert most_at_once(outcomes) <= 2


def test_should_raise_what_a_failed_request_raised() -> None:
    with pytest.raises(EngineError, match="it failed"):
        Driver([FakeEngine(fails=True)], 8, 1).closed_loop(PROMPTS, 2)
