# SPDX-License-Identifier: Apache-2.0
"""From what happened to each request to the figures of a row. Pure logic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Outcome:
    """One request. Times are seconds from the start of its point."""

    due: float  # when it should have been sent: latencies count from here
    sent: float
    first: float  # first token
    done: float
    prompt_tokens: int
    cached_tokens: int  # counted by the engine
    tokens: tuple[int, ...]  # the answer
    engine: int


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which `part` (0 to 1) of the values lie, linear between neighbours.

    Raises ValueError without values or with a part outside 0 to 1.
    """
    if not values:
        raise ValueError("no values, so no percentile")
    if not 0 <= part <= 1:
        raise ValueError(f"{part:g} is no part of a whole")
    row = sorted(values)
    place = part * (len(row) - 1)
    low = math.floor(place)
    high = min(low + 1, len(row) - 1)
    return row[low] + (row[high] - row[low]) * (place - low)


def figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Latencies in seconds (whole answer; ttft: first token), hits, throughput."""
    whole = [o.done - o.due for o in outcomes]
    ttft = [o.first - o.due for o in outcomes]
    late = [o.sent - o.due for o in outcomes]
    prompt = sum(o.prompt_tokens for o in outcomes)
    span = max(o.done for o in outcomes) - min(o.due for o in outcomes)
    return {
        "token_hit_rate": sum(o.cached_tokens for o in outcomes) / prompt,
        "p50_s": percentile(whole, 0.5),
        "p90_s": percentile(whole, 0.9),
        "p99_s": percentile(whole, 0.99),
        "ttft_p50_s": percentile(ttft, 0.5),
        "ttft_p90_s": percentile(ttft, 0.9),
        "ttft_p99_s": percentile(ttft, 0.99),
        "requests_per_second": len(outcomes) / span,
        "prompt_tokens_per_second": prompt / span,
        "sent_late_p99_s": percentile(late, 0.99),
        "sent_late_max_s": max(late),
    }


def steady_rate(outcomes: Sequence[Outcome], in_flight: int) -> float:
    """Requests a second of a closed loop while it was full.

    From the end of the first `in_flight` requests to the last start. Counted in prompt tokens over
    the mean length, so that it does not matter which requests ended in that time. Raises ValueError
    where too few requests were sent for there to be such a time.
    """
    begin = sorted(o.done for o in outcomes)[min(in_flight, len(outcomes)) - 1]
    end = max(o.sent for o in outcomes)
    if end <= begin:
        raise ValueError(f"{len(outcomes)} requests are too few with {in_flight} in flight")
    mean = sum(o.prompt_tokens for o in outcomes) / len(outcomes)
    return sum(o.prompt_tokens for o in outcomes if begin < o.done <= end) / mean / (end - begin)


def crossing(points: Sequence[tuple[float, float]], level: float) -> float | None:
    """The x at which y reaches a level, linear between points (x, y) in the order of x.

    The last crossing counts, since noise may cross a level twice on its way up. None: the level is
    not reached between the first point and the last.
    """
    row = sorted(points)
    found = None
    for (x0, y0), (x1, y1) in pairwise(row):
        if y0 <= level <= y1:
            found = x0 if y1 == y0 else x0 + (x1 - x0) * (level - y0) / (y1 - y0)
    return found
