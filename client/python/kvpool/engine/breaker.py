# SPDX-License-Identifier: Apache-2.0
"""Stops asking a daemon that does not answer.

A stopped daemon would cost every request a deadline; after a timeout the pool is left alone for a
time that doubles up to half a minute. One owner, one thread.
"""

from __future__ import annotations

_FIRST = 0.5  # seconds
_MOST = 30.0


class Breaker:
    """Closed: ask. Open until a time: do not."""

    def __init__(self) -> None:
        self._pause = _FIRST
        self._until = 0.0

    def allows(self, now: float) -> bool:
        """Whether to ask at the time `now` (monotonic seconds)."""
        return now >= self._until

    def timed_out(self, now: float) -> None:
        """Notes that a call ran into its deadline."""
        self._until = now + self._pause
        self._pause = min(self._pause * 2, _MOST)

    def answered(self) -> None:
        """Notes an answer, whatever it said."""
        self._pause = _FIRST
