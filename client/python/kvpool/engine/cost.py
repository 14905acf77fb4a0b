# SPDX-License-Identifier: Apache-2.0
"""Whether a hit is worth its copy, and how long a wait for somebody else's work is.

Both are decided from what this engine measured of itself: seconds a token computed, seconds a byte
copied. Until something was measured a hit is taken and a wait is short. Owned by the scheduler; its
thread.
"""

from __future__ import annotations

_WEIGHT = 0.2  # of a new measurement
_MIN_TOKENS = 64  # of a step that tells about prefill rather than about one decode
_PROBE = 32  # every so many declined hits one is taken, so that the copy is measured again
_FIRST_WAIT = 1.0  # seconds, before anything was measured
_PATIENCE = 2.0  # with a writer: it may share a busy host with whoever waits


class Rate:
    """Seconds a unit, smoothed. None until there was one measurement."""

    def __init__(self) -> None:
        self.seconds: float | None = None

    def add(self, units: float, seconds: float) -> None:
        """Notes that so many units took so long."""
        if units <= 0 or seconds <= 0:
            return
        each = seconds / units
        self.seconds = (
            each if self.seconds is None else self.seconds + _WEIGHT * (each - self.seconds)
        )


class Cost:
    """The engine's speeds. All times are monotonic seconds."""

    def __init__(self) -> None:
        self.compute = Rate()  # a token
        self.copy = Rate()  # a byte, out of the pool
        self._declined = 0
        self._last_end = 0.0

    def step_ended(self, tokens: int, begun: float, ended: float) -> None:
        """Notes a step of the engine. Steps may overlap: what ran before is not counted twice."""
        begun = max(begun, self._last_end)
        self._last_end = ended
        if tokens >= _MIN_TOKENS:
            self.compute.add(tokens, ended - begun)

    def worth_copying(self, tokens: int, size: int) -> bool:
        """Whether copying `size` bytes is expected to be faster than computing `tokens`."""
        if self.compute.seconds is None or self.copy.seconds is None:
            return True
        if size * self.copy.seconds <= tokens * self.compute.seconds:
            return True
        self._declined += 1
        return self._declined % _PROBE == 0

    def wait_budget(self, tokens: int, most: float) -> float:
        """Seconds in which somebody as fast as this engine has computed `tokens`."""
        if self.compute.seconds is None:
            return min(_FIRST_WAIT, most)
        return min(tokens * self.compute.seconds * _PATIENCE, most)
