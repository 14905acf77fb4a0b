# SPDX-License-Identifier: Apache-2.0
"""The scheduler's way to the daemon: every failure is a miss, and is counted.

Owns the engine's client (pool and channel). Belongs to the scheduler's thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TypeVar

import kvpool
from kvpool import Blocks, Layout, Match, Pool
from kvpool.engine.breaker import Breaker
from kvpool.engine.counters import Counters
from kvpool.engine.settings import Settings

T = TypeVar("T")

_SENTENCES = 16  # that are said in an engine's life

log = logging.getLogger(__name__)


class Line:
    """`clock`: monotonic seconds."""

    def __init__(
        self, settings: Settings, counters: Counters, name: str, clock: Callable[[], float]
    ) -> None:
        self.pool = Pool(socket=settings.socket, name=name, deadline=settings.deadline)
        self._channel = self.pool.channel()
        self._counters = counters
        self._clock = clock
        self._breaker = Breaker()
        self._pid = os.getpid()
        self._attached = False
        self._said: set[str] = set()

    @property
    def open(self) -> bool:
        """Whether it makes sense to ask now."""
        return self._breaker.allows(self._clock())

    def token(self) -> bytes | None:
        """With which the workers join; None where no daemon is attached."""
        try:
            return self.pool.token()
        except kvpool.Error:
            return None

    def match(self, layout: Layout, keys: bytes, skip: int) -> Match | None:
        """The usable prefix, leased, with what is being written behind it."""
        return self._ask(lambda: self._channel.match(layout, keys, skip=skip, pending=True))

    def reserve(
        self, layout: Layout, group: int, keys: bytes, parent: bytes | None
    ) -> Blocks | None:
        """Places to write blocks, with a code for each key that got none."""
        return self._ask(lambda: self._channel.reserve(layout, group, keys, parent=parent))

    def wait(self, layout: Layout, group: int, key: bytes, seconds: float) -> None:
        """Until a block is ready or given up, or the time is over."""
        try:
            self._channel.wait(layout, group, key, seconds)
        except kvpool.Error:
            pass

    def release(self, match: Match | None) -> None:
        """Gives a lease back. Never waits."""
        if match is not None and match.lease:
            try:
                self._channel.release(match)
            except kvpool.Error as e:
                log.debug("kvpool: a lease was not given back: %s", e)

    def abort(self, blocks: Blocks) -> None:
        """Gives reservations back. What the daemon does not hear now it is told later."""
        if len(blocks):
            try:
                self._channel.abort(blocks)
            except kvpool.Error as e:
                log.debug("kvpool: reservations of a daemon that is gone: %s", e)

    @property
    def no_space_text(self) -> str:
        """Why the last reservation found no place."""
        return self._channel.no_space_text

    def close(self) -> None:
        """Ends the client. Takes nothing back that it holds: the daemon does."""
        if os.getpid() == self._pid:
            self._channel.close()
            self.pool.close()

    def _ask(self, call: Callable[[], T]) -> T | None:
        now = self._clock()
        if not self._breaker.allows(now):
            return None
        try:
            answer = call()
        except kvpool.TimedOut:
            self._breaker.timed_out(self._clock())
            self._counters.add("unanswered")
            log.warning("kvpool: the daemon did not answer in time; computing without it for now")
            return None
        except (kvpool.NotConnected, kvpool.Stale) as e:
            self._counters.add("unanswered")
            log.debug("kvpool: %s", e)
            self._note_attachment(False)
            return None
        except kvpool.Error as e:
            self.say_once(f"KV is not shared: {e.strerror}")
            return None
        finally:
            self._counters.add("lookup_seconds", self._clock() - now)
        self._breaker.answered()
        self._note_attachment(True)
        return answer

    def say_once(self, sentence: str) -> None:
        """A line that a person should read, and read once."""
        if sentence not in self._said and len(self._said) < _SENTENCES:
            self._said.add(sentence)
            log.warning("kvpool: %s", sentence)

    def _note_attachment(self, attached: bool) -> None:
        if attached == self._attached:
            return
        self._attached = attached
        if attached:
            log.info("kvpool: attached; prompt KV is shared with the engines of this host")
        else:
            log.info("kvpool: the daemon went away; computing without it until it is back")
