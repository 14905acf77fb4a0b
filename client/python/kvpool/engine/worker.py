# SPDX-License-Identifier: Apache-2.0
"""The half of a connector that lives where the KV memory is: copies into the pool and out of it.

One in each process that owns KV memory, as a member of the engine's client. Belongs to the thread
that runs the model. Copies run in C, without the interpreter's lock, and are over when the call is.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Sequence

import kvpool
from kvpool import Blocks, Channel, Layout, Plane, Planes, Pool
from kvpool.engine.book import open_layout
from kvpool.engine.counters import Counters
from kvpool.engine.jobs import Copy, LayoutSpec, Report, Step
from kvpool.engine.settings import Settings

log = logging.getLogger(__name__)


class Worker:
    """`planes[g]`: where the pages of group g lie in this process. `shard`: which part of a block
    this worker holds. `name`: shown by kvpoolctl."""

    def __init__(
        self, planes: Sequence[Sequence[Plane]], shard: int, settings: Settings, name: str
    ) -> None:
        self.counters = Counters()
        self._planes = [Planes(list(group)) for group in planes]
        self._bytes = [sum(plane.bytes for plane in group) for group in planes]
        self._shard = shard
        self._settings = settings
        self._name = name
        self._token: bytes | None = None
        self._pool: Pool | None = None
        self._channel: Channel | None = None
        self._layouts: dict[int, tuple[LayoutSpec, Layout]] = {}
        self._report = Report()

    def load(self, step: Step) -> tuple[set[str], set[str]]:
        """Fills the engine's pages from the pool. Returns the requests that are done with, and
        those of them whose pages hold nothing usable."""
        failed = set()
        for copy in step.loads:
            begun = time.monotonic()
            size = self._copy(step, copy, store=False)
            seconds = time.monotonic() - begun
            self._report.done[copy.id] = size is not None
            if size is None:
                failed.add(copy.request)
                continue
            self._report.load_bytes += size
            self._report.load_seconds += seconds
            self.counters.add("load_bytes", size)
            self.counters.add("load_seconds", seconds)
        return {copy.request for copy in step.loads}, failed

    def store(self, step: Step) -> None:
        """Copies the engine's pages into the pool and commits them. The step that computed them
        must be over, and the next must not have begun."""
        for copy in step.stores:
            begun = time.monotonic()
            size = self._copy(step, copy, store=True)
            seconds = time.monotonic() - begun
            self._report.done[copy.id] = size is not None
            if size is None:
                self._abort(copy)
                continue
            self._report.store_bytes += size
            self._report.store_seconds += seconds
            self.counters.add("store_bytes", size)
            self.counters.add("store_seconds", seconds)

    def take_report(self) -> Report | None:
        """What became of the copies since the last call."""
        if not self._report:
            return None
        report, self._report = self._report, Report()
        return report

    def close(self) -> None:
        """Leaves the engine's client."""
        self._leave()

    def _copy(self, step: Step, copy: Copy, *, store: bool) -> int | None:
        """Copies all parts. Returns the bytes, None where not all of it worked."""
        if not copy.parts:
            return None
        try:
            channel = self._join(step.token)
            layout = self._layout(copy.layout, step.layouts)
            return sum(
                self._copy_part(channel, layout, part.group, Blocks(part.blocks), part.pages, store)
                for part in copy.parts
            )
        except (kvpool.Error, KeyError, ValueError) as e:
            log.debug("kvpool: %s of %s: %s", "store" if store else "load", copy.request, e)
            return None

    def _copy_part(
        self,
        channel: Channel,
        layout: Layout,
        group: int,
        blocks: Blocks,
        pages: bytes,
        store: bool,
    ) -> int:
        numbers = array("I", pages)
        planes = self._planes[group]
        if store:
            channel.store_pages(layout, group, blocks, planes, numbers, shard=self._shard)
            if self._settings.checksum:
                taken = channel.commit_checksum(layout, group, blocks, shard=self._shard)
            else:
                taken = channel.commit(blocks, shard=self._shard)
            if taken < len(blocks):
                raise ValueError("not every block was taken: the daemon was restarted meanwhile")
        else:
            if self._settings.checksum and channel.verify(layout, group, blocks) > 0:
                raise ValueError("blocks are not what was stored, and were dropped")
            channel.load_pages(layout, group, blocks, planes, numbers, shard=self._shard)
        return len(blocks) * self._bytes[group]

    def _abort(self, copy: Copy) -> None:
        """Gives back what was not committed, so that others need not wait for it."""
        if self._channel is None:
            return
        for part in copy.parts:
            try:
                self._channel.abort(Blocks(part.blocks))
            except kvpool.Error as e:
                log.debug("kvpool: reservations of a daemon that is gone: %s", e)

    def _join(self, token: bytes | None) -> Channel:
        """The channel of the client that `token` names: another token, another life of the
        client."""
        if token is None:
            raise ValueError("the scheduler is not attached")
        if self._channel is None or token != self._token:
            self._leave()
            self._pool = Pool(
                socket=self._settings.socket,
                name=self._name,
                deadline=self._settings.deadline,
                join=token,
            )
            self._channel = self._pool.channel()
            self._token = token
        return self._channel

    def _layout(self, number: int, specs: dict[int, LayoutSpec]) -> Layout:
        spec = specs[number]
        known = self._layouts.get(number)
        if known is not None and known[0] == spec:
            return known[1]
        assert self._pool is not None
        layout = open_layout(self._pool, spec)
        self._layouts[number] = (spec, layout)
        return layout

    def _leave(self) -> None:
        self._layouts.clear()
        if self._channel is not None:
            self._channel.close()
        if self._pool is not None:
            self._pool.close()
        self._channel = self._pool = None
