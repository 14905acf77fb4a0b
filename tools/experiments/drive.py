# SPDX-License-Identifier: Apache-2.0
"""Sends the prompts of a point to the engines of an arm and notes what became of each.

A request goes to the engine with the fewest unfinished requests; among equals a seeded generator
chooses. The sender sleeps between arrivals; each unfinished request has a thread that sleeps until
its answer is there, since client and engines share the CPUs.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from engine.process import Engine, Result

from experiments.mix import Prompt
from experiments.stats import Outcome


class Driver:
    """Drives one arm through one point. One use; the caller's thread is the sender."""

    def __init__(self, engines: Sequence[Engine], output_tokens: int, seed: int) -> None:
        self._engines = engines
        self._output_tokens = output_tokens
        self._ties = random.Random(f"{seed} routing")
        self._changed = threading.Condition()
        self._unfinished = [0] * len(engines)
        self._outcomes: dict[int, Outcome] = {}
        self._failure: Exception | None = None
        self._start = 0.0

    def open_loop(self, prompts: Sequence[Prompt], moments: Sequence[float]) -> list[Outcome]:
        """Sends each prompt at its moment (seconds), whatever is unfinished.

        Returns when all are answered. Raises EngineError where a request failed.
        """
        self._start = time.monotonic()
        for index, (prompt, moment) in enumerate(zip(prompts, moments, strict=True)):
            left = self._start + moment - time.monotonic()
            if left > 0:
                time.sleep(left)
            if self._failure is not None:
                break
            self._send(index, prompt, moment)
        return self._finish(len(prompts))

    def closed_loop(self, prompts: Sequence[Prompt], in_flight: int) -> list[Outcome]:
        """Sends the next prompt whenever fewer than `in_flight` are unfinished; else the same."""
        self._start = time.monotonic()
        for index, prompt in enumerate(prompts):
            self._wait(lambda: sum(self._unfinished) < in_flight)
            if self._failure is not None:
                break
            self._send(index, prompt, time.monotonic() - self._start)
        return self._finish(len(prompts))

    def _wait(self, enough: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or enough())

    def _finish(self, count: int) -> list[Outcome]:
        self._wait(lambda: len(self._outcomes) == count)
        if self._failure is not None:
            raise self._failure
        return [self._outcomes[index] for index in range(count)]

    def _route(self) -> int:
        with self._changed:
            fewest = min(self._unfinished)
            chosen = self._ties.choice([i for i, n in enumerate(self._unfinished) if n == fewest])
            self._unfinished[chosen] += 1
        return chosen

    def _send(self, index: int, prompt: Prompt, due: float) -> None:
        chosen = self._route()
        engine = self._engines[chosen]
        request = engine.submit(prompt.tokens, self._output_tokens, ignore_eos=True)

        def receive() -> None:
            try:
                self._note(index, chosen, due, engine.result(request))
            except Exception as error:
                with self._changed:
                    self._failure = self._failure or error
                    self._changed.notify_all()

        threading.Thread(target=receive, daemon=True).start()

    def _note(self, index: int, chosen: int, due: float, result: Result) -> None:
        first = result.done if result.first is None else result.first
        outcome = Outcome(
            due=due,
            sent=result.submitted - self._start,
            first=first - self._start,
            done=result.done - self._start,
            prompt_tokens=result.prompt_tokens,
            cached_tokens=result.cached,
            tokens=tuple(result.tokens),
            engine=chosen,
        )
        with self._changed:
            self._outcomes[index] = outcome
            self._unfinished[chosen] -= 1
            self._changed.notify_all()
