# SPDX-License-Identifier: Apache-2.0
"""The run itself: arms up, capacity, points in order, answers compared. One thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.process import Engine, Result

from experiments import mix
from experiments.arms import Arms
from experiments.arrivals import arrivals
from experiments.drive import Driver
from experiments.plan import CAPACITY_POINT, WARM_UP_PART, Point, order, requests_for
from experiments.stats import Outcome, figures, steady_rate
from experiments.work import Answers, Work, compare

WARM_UP_REQUESTS = 12


@dataclass(frozen=True)
class Settings:
    """What is measured and how. Seconds are of the whole run, the start of the engines included."""

    points: tuple[Point, ...]
    seed: int
    seconds: float
    output_tokens: int
    in_flight: int  # of a closed loop, over both engines
    closed_requests: int
    samples: int
    end_seconds: float = 10.0  # to close the engines and write the results


class SharingError(Exception):
    """The arm kvpool shares nothing, so that it would be no experiment."""


class Run:
    """One run over arms that are up. Writes every finished row into the work file."""

    def __init__(
        self,
        arms: Arms,
        settings: Settings,
        work: Work,
        began: float,
        say: Callable[[str], None],
    ) -> None:
        self._arms = arms
        self._settings = settings
        self._work = work
        self._began = began
        self._say = say

    def all(self) -> list[str]:
        """Measures what is not measured yet; returns the points that there was no time for."""
        self._warm_up()
        if not self._work.data["samples"]:
            self._work.data["samples"] = self._samples()
            self._work.write()
        left_out = []
        for point, arms in order(self._settings.points):
            wanted = [
                arm for arm in arms if arm in self._arms and not self._work.has(point.name, arm)
            ]
            first = point.name == CAPACITY_POINT
            if wanted and not first and self._left() < self._estimate(point, wanted):
                left_out.append(point.name)
                continue
            for arm in wanted:
                self._measure(point, arm)
            if first:
                self._decide()
        self._work.data["seconds"] += time.monotonic() - self._began
        self._work.write()
        return left_out

    def _left(self) -> float:
        spent = time.monotonic() - self._began
        return self._settings.seconds - spent - self._settings.end_seconds

    def _requests(self, point: Point) -> int:
        ordinary = self._settings.closed_requests
        if point.load is not None:
            ordinary = self._work.data["requests"]
        return round(ordinary * point.weight)

    def _estimate(self, point: Point, arms: list[str]) -> float:
        rate = self._work.data["capacity"] * (point.load or 1)
        return len(arms) * self._requests(point) / rate

    def _decide(self) -> None:
        """Capacity from the first rows, and from it how many requests a point gets."""
        capacity = self._work.row(CAPACITY_POINT, "none")["requests_per_second"]
        if self._work.data["requests"] is None:
            rest = [p for p in self._settings.points if p.name != CAPACITY_POINT]
            self._work.data["capacity"] = capacity
            self._work.data["requests"] = requests_for(
                rest, self._arms.names, capacity, self._settings.closed_requests, self._left()
            )
            self._work.write()
        self._say(
            f"the arm none carries {capacity:.2f} requests a second; "
            f"{self._work.data['requests']} requests a point"
        )

    def _warm_up(self) -> None:
        for arm in self._arms.names:
            prompts = mix.deck(WARM_UP_REQUESTS, 0, self._settings.seed, f"warm-up {arm}")
            self._driver(arm).closed_loop(prompts, self._settings.in_flight)

    def _driver(self, arm: str) -> Driver:
        return Driver(self._arms[arm], self._settings.output_tokens, self._settings.seed)

    def _measure(self, point: Point, arm: str) -> None:
        seed = self._settings.seed
        count = self._requests(point)
        prompts = mix.deck(count, point.mix / 100, seed, point.name)
        driver = self._driver(arm)
        rate = None
        uncounted = 0
        if point.load is None:
            outcomes = driver.closed_loop(prompts, self._settings.in_flight)
        else:
            rate = point.load * self._work.data["capacity"]
            uncounted = round(WARM_UP_PART * count)
            outcomes = driver.open_loop(prompts, arrivals(count, rate, seed))
        row: dict[str, Any] = {
            "arm": arm,
            "mix": point.mix,
            "mix_actual": round(100 * mix.mix_actual(prompts[uncounted:]), 2),
            "load": point.load,
            "loop": "closed" if point.load is None else "open",
            "offered_per_second": rate,
            "requests": count - uncounted,
            "requests_uncounted": uncounted,
            "seed": seed,
        }
        row |= {key: round(value, 5) for key, value in figures(outcomes[uncounted:]).items()}
        if point.load is None:
            rate = steady_rate(outcomes, self._settings.in_flight)
            row["requests_per_second"] = round(rate, 5)
        daemon = self._arms.daemon
        row["pool_bytes"] = daemon.ready_bytes() if daemon and arm == "kvpool" else 0
        self._work.add(point.name, arm, row, [list(o.tokens) for o in outcomes])
        self._say(_line(point, row, outcomes))

    def _samples(self) -> dict[str, dict[str, int]]:
        """Some prompts one at a time, on an engine that has nothing of them and then once more.

        The second time is on the same engine, except in arm kvpool: there it is on the other one.
        Raises SharingError where that one computed all.
        """
        prompts = mix.deck(self._settings.samples, 0, self._settings.seed, "samples")
        answers: dict[str, Answers] = {}
        for arm in self._arms.names:
            engines = self._arms[arm]
            again = engines[1 if arm == "kvpool" else 0]
            taken = Answers([], [], 0)
            for prompt in prompts:
                cold = self._ask(engines[0], prompt)
                warm = self._ask(again, prompt)
                taken.cold.append(cold.tokens)
                taken.warm.append(warm.tokens)
                taken.cached += warm.cached
            answers[arm] = taken
        if "kvpool" in answers and answers["kvpool"].cached == 0:
            raise SharingError(
                "the engines of arm kvpool share nothing: see their logs, and "
                "python -m kvpool doctor with the engines' Python"
            )
        found = compare(answers)
        for arm, row in found.items():
            self._say(f"sample answers of arm {arm}: {row}")
        return found

    def _ask(self, engine: Engine, prompt: mix.Prompt) -> Result:
        return engine.generate(prompt.tokens, self._settings.output_tokens, ignore_eos=True)


def _line(point: Point, row: dict[str, Any], outcomes: list[Outcome]) -> str:
    return (
        f"{point.name:>10} {row['arm']:<6} p50 {row['p50_s']:6.2f} s  p90 {row['p90_s']:6.2f} s  "
        f"first token {row['ttft_p50_s']:6.2f} s  {row['requests_per_second']:5.2f} a second  "
        f"hits {100 * row['token_hit_rate']:4.1f} of {row['mix_actual']:4.1f} %  "
        f"late {1000 * row['sent_late_p99_s']:.0f} ms  {len(outcomes)} requests"
    )
