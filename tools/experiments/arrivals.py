# SPDX-License-Identifier: Apache-2.0
"""When the requests of an open loop arrive. Pure logic.

A Poisson process, given that exactly `requests` of them arrive in `requests / rate` seconds: the
gaps are as random as ever, but a point never gets more or fewer requests than its load says. A
seed's arrivals at two rates are the same moments on another scale.
"""

from __future__ import annotations

import random


def arrivals(requests: int, rate: float, seed: int) -> list[float]:
    """Seconds from the start of the point at which each request arrives, in order.

    rate: requests a second. Raises ValueError for fewer than one request or no rate.
    """
    if requests < 1:
        raise ValueError(f"{requests} requests cannot arrive")
    if not rate > 0:
        raise ValueError(f"requests cannot arrive {rate:g} times a second")
    moments = random.Random(f"{seed} arrivals")
    span = requests / rate
    return sorted(moments.random() * span for _ in range(requests))
