# SPDX-License-Identifier: Apache-2.0
"""Which points are measured, in which order, on which arms, and with how many requests. Pure logic.

A point is a mix and a load; a load is a part of what the arm "none" carries, or "closed": as many
requests in flight as there are places, for throughput at saturation. All arms of a point follow
each other at once, and the arm that begins moves on by one from point to point, so that a machine
that changes its speed slowly favours none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ARMS = ("none", "engine", "kvpool")
CAPACITY_POINT = "30@closed"
MAIN_MIX = 30
# The point that the goal is about and the one that all loads refer to get more requests than the
# others.
MAIN_WEIGHT = 2.5
WEIGHTS = {"30@0.9": MAIN_WEIGHT, CAPACITY_POINT: 1.75}
SIDE_WEIGHT = 0.75
DEFAULT_POINTS = (
    "30@closed,30@0.9,30@0.7,30@0.85,30@0.5,30@0.95,60@0.9,0@0.9,15@0.9,90@0.9,"
    "0@closed,60@closed,90@closed,15@closed,30@1.1,30@1.2,30@1.35"
)
QUICK_POINTS = "30@closed,30@0.9"
FEWEST_REQUESTS = 20
MOST_REQUESTS = 400
# Between arms of a point: the last answers, and the change of arms.
PAUSE_SECONDS = 3.0
# The first requests of an open loop find empty queues and empty caches, in all arms: they are sent
# and not counted.
WARM_UP_PART = 0.2


@dataclass(frozen=True)
class Point:
    """A mix (percent of repeated tokens) and a load (None: closed loop)."""

    mix: int
    load: float | None

    @property
    def name(self) -> str:
        """As --points writes it."""
        return f"{self.mix}@{'closed' if self.load is None else format(self.load, 'g')}"

    @property
    def arms(self) -> tuple[str, ...]:
        """Beyond arm none's capacity there is kvpool alone: the others have no steady state."""
        return ARMS if self.load is None or self.load < 1 else ARMS[-1:]

    @property
    def weight(self) -> float:
        """Its requests over those of an ordinary point of its loop."""
        if self.name in WEIGHTS:
            return WEIGHTS[self.name]
        ordinary = self.load is None or (self.mix == MAIN_MIX and 0.5 < self.load < 1)
        return 1.0 if ordinary else SIDE_WEIGHT


def parse_points(text: str) -> list[Point]:
    """Points from "MIX@LOAD,MIX@closed,...", each once. Raises ValueError: what is wrong."""
    points: list[Point] = []
    for word in (w.strip() for w in text.split(",")):
        mix, at, load = word.partition("@")
        if not at or not mix.isdecimal() or int(mix) > 95:
            raise ValueError(f"{word!r} is no point; one is MIX@LOAD, as 30@0.9 or 30@closed")
        if load == "closed":
            point = Point(int(mix), None)
        else:
            try:
                value = float(load)
            except ValueError:
                raise ValueError(f"{word!r}: {load!r} is neither a load nor closed") from None
            if not 0.05 <= value <= 3:
                raise ValueError(f"{word!r}: a load is 0.05 to 3 of the arm none's capacity")
            point = Point(int(mix), value)
        if point not in points:
            points.append(point)
    return points


def order(points: Sequence[Point]) -> list[tuple[Point, tuple[str, ...]]]:
    """Points with their arms in turn. The one that capacity comes from is first, arm none first."""
    capacity = parse_points(CAPACITY_POINT)[0]
    rest = [p for p in points if p != capacity]
    rows = [(capacity, ARMS)]
    for turn, point in enumerate(rest):
        shift = turn % len(point.arms)
        rows.append((point, point.arms[shift:] + point.arms[:shift]))
    return rows


def requests_for(
    points: Sequence[Point], arms: Sequence[str], capacity: float, closed: int, seconds: float
) -> int:
    """Requests of an ordinary open-loop point, so that all of them fit into the seconds left.

    capacity: requests a second of the arm none. closed: requests of a closed-loop point. Arms with
    a cache are counted as if theirs served nothing: the estimate errs on the long side.
    """
    fixed = 0.0
    each = 0.0
    for point in points:
        turns = sum(arm in arms for arm in point.arms)
        fixed += PAUSE_SECONDS * turns
        if point.load is None:
            fixed += turns * point.weight * closed / capacity
        else:
            each += turns * point.weight / (point.load * capacity)
    if each == 0:
        return FEWEST_REQUESTS
    return min(max(int((seconds - fixed) / each), FEWEST_REQUESTS), MOST_REQUESTS)
