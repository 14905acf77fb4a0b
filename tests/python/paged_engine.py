# SPDX-License-Identifier: Apache-2.0
"""An engine with paged KV memory and no model: what is in a page is made from the block's key.

Drives kvpool.engine as a real engine does: looks up, allocates pages, runs steps of a bounded
number of tokens, frees. Checks every byte that it got from the pool. Owned by one test; one thread.
"""

import ctypes
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from kvpool import Group, Plane
from kvpool.engine.book import Adapter
from kvpool.engine.jobs import LayoutSpec, Report
from kvpool.engine.scheduler import Scheduler
from kvpool.engine.settings import Settings
from kvpool.engine.worker import Worker

TOKENS = 16
PAGE = 512  # bytes of one layer of one block
LAYERS = 2  # of each group
PAGES = 256


def make_spec(groups: Sequence[tuple[str, int]] = (("full", 0),), **changes: Any) -> LayoutSpec:
    """A layout whose groups have LAYERS layers each."""
    spec = LayoutSpec(
        engine="paged",
        hash_algorithm="sha256",
        hash_seed="none",
        model="stamps",
        revision="",
        adapter=None,
        dtype="bytes",
        order="layers",
        label="paged",
        block_tokens=TOKENS,
        shards=1,
        groups=tuple(Group(kind, PAGE * LAYERS, window) for kind, window in groups),
    )
    return dataclasses.replace(spec, **changes)


class Request:
    """A request as kvpool.engine.request.View; its tokens are numbers, its keys their hashes."""

    def __init__(self, id: str, tokens: Sequence[int], adapter: Adapter | None = None) -> None:
        self.id = id
        self.all = list(tokens)
        self.prompt_tokens = len(self.all)
        self.computed = 0
        self.readable = True
        self.adapter = adapter
        self.tables: list[list[int]] = []

    @property
    def tokens(self) -> int:
        return len(self.all)

    @property
    def keys(self) -> list[bytes]:
        keys, parent = [], b""
        for end in range(TOKENS, len(self.all) + 1, TOKENS):
            parent = hashlib.sha256(parent + repr(self.all[end - TOKENS : end]).encode()).digest()
            keys.append(parent)
        return keys


class Clock:
    """Seconds that pass only where a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stamp(key: bytes, group: int, layer: int, shard: int) -> bytes:
    """What the engine's model computes for a block."""
    seed = key + bytes([group, layer, shard])
    return hashlib.sha256(seed).digest() * (PAGE // 32)


class Engine:
    """Scheduler and workers of one engine in one process. `chunk`: tokens a step computes."""

    def __init__(
        self,
        socket: str,
        spec: LayoutSpec | None = None,
        *,
        identify: Callable[[str], str] = str,
        chunk: int = 10**6,
        clock: Callable[[], float] | None = None,
        **settings: Any,
    ) -> None:
        self.spec = spec or make_spec()
        self.chunk = chunk
        chosen = Settings(socket=socket, deadline=2.0, **settings)
        tables = [(g,) for g in range(len(self.spec.groups))]
        more = {} if clock is None else {"clock": clock}
        self.scheduler = Scheduler(self.spec, tables, identify, chosen, **more)
        self.memory = [
            [
                [ctypes.create_string_buffer(PAGE * PAGES) for _ in range(LAYERS)]
                for _ in self.spec.groups
            ]
            for _ in range(self.spec.shards)
        ]
        self.workers = [
            Worker([self._planes(shard, g) for g in range(len(tables))], shard, chosen, "worker")
            for shard in range(self.spec.shards)
        ]
        self.free = list(range(1, PAGES))
        self.failed: set[str] = set()
        self.computed_tokens = 0

    def _planes(self, shard: int, group: int) -> list[Plane]:
        return [
            Plane(ctypes.addressof(memory), PAGE, PAGE, PAGES)
            for memory in self.memory[shard][group]
        ]

    # ---- what the tests call ----

    def run(self, id: str, tokens: Sequence[int], answer: Sequence[int] = ()) -> int:
        """Runs one request to its end. Returns the prompt tokens that came from the pool."""
        request = Request(id, tokens)
        cached = self.admit(request)
        assert cached is not None, "somebody else is computing this prompt"
        while request.computed < request.tokens:
            self.step(request)
        for token in answer:
            request.all.append(token)
            self.grow(request)
            self.step(request)
        self.finish(request)
        return cached

    def admit(self, request: Request, local: int = 0) -> int | None:
        """Looks a request up and loads what there is. None: ask again."""
        found = self.scheduler.lookup(request, local)
        if found is None:
            return None
        self.grow(request)
        self.forget_outside_windows(request, local + found)
        self.scheduler.allocated(request, found, request.tables)
        if found and request.id in self.run_step([]):
            found = 0
        request.computed = local + found
        self.check(request, request.computed)
        return found

    def grow(self, request: Request) -> None:
        """Pages for every token that is known."""
        while len(request.tables) < len(self.spec.groups):
            request.tables.append([])
        for table in request.tables:
            while len(table) * TOKENS < request.tokens:
                table.append(self.free.pop())

    def forget_outside_windows(self, request: Request, tokens: int) -> None:
        """Page 0 where a window does not reach, as engines do."""
        for group, table in zip(self.spec.groups, request.tables, strict=True):
            if group.kind == "window":
                for i in range(max(tokens - group.window + 1, 0) // TOKENS):
                    if table[i]:
                        self.free.append(table[i])
                        table[i] = 0

    def step(self, request: Request) -> set[str]:
        """Computes the next chunk of one request, and stores what became whole."""
        tokens = min(self.chunk, request.tokens - request.computed)
        failed = self.run_step([(request, tokens)])
        request.computed += tokens
        self.computed_tokens += tokens
        self.forget_outside_windows(request, request.computed)
        return failed

    def run_step(self, scheduled: Sequence[tuple[Request, int]]) -> set[str]:
        """One step of the engine: loads, the model, stores, the report."""
        plan = self.scheduler.step(
            [(r.id, n, lambda r=r: r.tables) for r, n in scheduled]  # type: ignore[misc]
        )
        for worker in self.workers:
            worker.load(plan)
        for request, n in scheduled:
            self.compute(request, request.computed, request.computed + n)
        report = None
        for worker in self.workers:
            worker.store(plan)
            told = worker.take_report()
            report = told if report is None or told is None else report.merge(told)
        self.failed = self.scheduler.report(report if report is not None else Report())
        return self.failed

    def compute(self, request: Request, start: int, end: int) -> None:
        for i in range(start // TOKENS, end // TOKENS):
            self._visit(request, i, write=True)

    def check(self, request: Request, tokens: int) -> None:
        """Every byte of the first tokens is what the model would have computed."""
        for i in range(tokens // TOKENS):
            self._visit(request, i, write=False)

    def _visit(self, request: Request, i: int, *, write: bool) -> None:
        key = request.keys[i]
        for shard, groups in enumerate(self.memory):
            for g, layers in enumerate(groups):
                page = request.tables[g][i]
                for layer, memory in enumerate(layers):
                    right = stamp(key, g, layer, shard)
                    if page and write:
                        ctypes.memmove(ctypes.addressof(memory) + page * PAGE, right, PAGE)
                    elif page:
                        there = memory[page * PAGE : (page + 1) * PAGE]
                        assert there == right, f"wrong bytes in block {i} of group {g}"

    def finish(self, request: Request) -> None:
        """Ends a request, in whatever state it is."""
        self.scheduler.finished(request.id)
        self.free += [page for table in request.tables for page in table if page]
        request.tables = []

    def counted(self) -> dict[str, float]:
        """Counters of scheduler and workers since the last call."""
        sums = self.scheduler.counters.take()
        for worker in self.workers:
            for name, amount in worker.counters.take().items():
                sums[name] = sums.get(name, 0) + amount
        return sums

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.scheduler.close()
