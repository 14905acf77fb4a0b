# SPDX-License-Identifier: Apache-2.0
"""The layouts of one engine: of its model, and of each adapter that a request brought.

An adapter is identified by its content in a thread of its own, since that reads files; until then
its requests wait, and where it cannot be identified they are not shared. Owned by the scheduler;
used in its thread.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from kvpool import Layout, Pool
from kvpool.engine.jobs import LayoutSpec

_LAYOUTS_MAX = 60  # of one client; the daemon refuses more than 64

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A layout that blocks can be stored under. `number` is how jobs refer to it."""

    number: int
    spec: LayoutSpec
    layout: Layout


@dataclass(frozen=True)
class Adapter:
    """An adapter as a request names it. `key` stays the same as long as its content does."""

    key: Hashable
    name: str
    path: str


class Pending(Exception):
    """The adapter is being identified: ask again."""


class Book:
    """`identify` takes an adapter's path and returns a digest, or raises; it runs in a thread."""

    def __init__(self, pool: Pool, base: LayoutSpec, identify: Callable[[str], str]) -> None:
        self._pool = pool
        self._identify = identify
        self._base = base
        self._entries: dict[str | None, Entry] = {}
        self._numbers = itertools.count(1)
        self._digests: dict[Hashable, Future[str]] = {}
        self._said: set[Hashable] = set()
        self._threads: ThreadPoolExecutor | None = None

    def prepare(self, adapter: Adapter | None) -> None:
        """Begins to identify an adapter that was not seen before. Does not wait."""
        if adapter is None or adapter.key in self._digests:
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="kvpool-adapter")
        self._digests[adapter.key] = self._threads.submit(self._identify, adapter.path)

    def entry(self, adapter: Adapter | None) -> Entry | None:
        """The layout of requests with this adapter. None: they are not shared. Raises
        :class:`Pending` while that is not known."""
        if adapter is None:
            return self._entry(None)
        self.prepare(adapter)
        future = self._digests[adapter.key]
        if not future.done():
            raise Pending(adapter.name)
        problem = future.exception()
        if problem is None:
            return self._entry(future.result())
        self._say(adapter.key, f"adapter {adapter.name} is not shared: {problem}")
        return None

    def replace(self, base: LayoutSpec) -> None:
        """Other weights from now on: nothing stored before is found any more."""
        self._base = base
        self._entries.clear()
        self._digests.clear()

    def close(self) -> None:
        """Ends the thread, if there is one; what it was reading is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _entry(self, digest: str | None) -> Entry | None:
        entry = self._entries.get(digest)
        if entry is not None:
            return entry
        if len(self._entries) >= _LAYOUTS_MAX:
            self._say(
                "layouts", f"more than {_LAYOUTS_MAX} adapters: the others of them are not shared"
            )
            return None
        spec = dataclasses.replace(self._base, adapter=digest)
        entry = Entry(next(self._numbers), spec, open_layout(self._pool, spec))
        self._entries[digest] = entry
        return entry

    def _say(self, key: Hashable, sentence: str) -> None:
        if key not in self._said:
            self._said.add(key)
            log.warning("kvpool: %s", sentence)


def open_layout(pool: Pool, spec: LayoutSpec) -> Layout:
    """Describes a layout to the library; raises kvpool.Error where it refuses."""
    return pool.layout(**vars(spec))
