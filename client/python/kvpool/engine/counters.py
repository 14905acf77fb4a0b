# SPDX-License-Identifier: Apache-2.0
"""What a connector counts since it was last asked. Owned by scheduler or worker; its thread."""

from __future__ import annotations

NAMES: dict[str, str] = {
    "lookups": "requests looked up in the pool",
    "lookup_seconds": "time the scheduler spent with the daemon, in seconds",
    "lookup_tokens": "tokens asked for beyond what the engine itself held",
    "hit_tokens": "tokens found in the pool and taken from it",
    "hits_declined": "hits that were slower to copy than to compute",
    "waits": "requests that waited for a prefix another engine was computing",
    "wait_seconds": "time these waited, in seconds",
    "waits_given_up": "waits that ended because computing would have been as fast",
    "load_bytes": "bytes copied out of the pool",
    "load_seconds": "time of these copies, in seconds",
    "load_failures": "loads that failed; their requests were computed",
    "store_bytes": "bytes copied into the pool",
    "store_seconds": "time of these copies, in seconds",
    "store_failures": "stores that failed; their blocks are not in the pool",
    "blocks_stored": "blocks committed to the pool",
    "no_space": "stores for which the pool had no place",
    "unanswered": "calls that the daemon did not answer in time, or at all",
    "private_requests": "requests not shared because their model or adapter is not identified",
}


class Counters:
    """Sums by name."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}

    def add(self, name: str, amount: float = 1) -> None:
        """Adds to a counter of :data:`NAMES`."""
        if amount:
            self._sums[name] = self._sums.get(name, 0) + amount

    def take(self) -> dict[str, float]:
        """What was counted since the last call."""
        sums, self._sums = self._sums, {}
        return sums
