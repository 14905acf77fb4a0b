# SPDX-License-Identifier: Apache-2.0
"""Lets calls in until it is closed, and is closed once the last of them has left.

Owned by a Pool; any thread. In a child of fork() it lets nobody in.
"""

import os
import threading

from kvpool.errors import make_forked_error


class Gate:
    """Keeps what its calls use alive while they use it: `with gate:` around each of them."""

    __slots__ = ("_changed", "_inside", "_lock", "_open", "_process")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._inside = 0
        self._open = True
        self._process = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is another process than the one that made it."""
        return os.getpid() != self._process

    @property
    def open(self) -> bool:
        """Whether calls may come in."""
        return self._open

    def __enter__(self) -> None:
        if self.forked:
            raise make_forked_error()
        with self._lock:
            if not self._open:
                raise ValueError("this pool is closed")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and not self._open:
                self._changed.notify_all()

    def close(self) -> bool:
        """Waits for those inside. True for the one call that closed it, False for all others."""
        if self.forked:
            # Whoever was inside or held the lock stayed behind in the parent.
            first, self._open = self._open, False
            return first
        with self._lock:
            first, self._open = self._open, False
            while self._inside > 0:
                self._changed.wait()
        return first
