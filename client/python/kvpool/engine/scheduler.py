# SPDX-License-Identifier: Apache-2.0
"""The half of a connector that lives where the engine decides what runs next.

Looks prompts up, reserves what is going to be computed, and tells the workers what to copy. Belongs
to the engine's scheduler thread. Nothing raises because of the pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from kvpool import Blocks, Group, Match
from kvpool.engine.book import Adapter, Book, Pending
from kvpool.engine.claims import BUSY, EXISTS, Claims, select
from kvpool.engine.cost import Cost
from kvpool.engine.counters import Counters
from kvpool.engine.jobs import Copy, LayoutSpec, Part, Report, Step
from kvpool.engine.line import Line
from kvpool.engine.request import Offer, Tracked, View, Wait
from kvpool.engine.settings import Settings

_IN_FLIGHT = 3  # steps that an engine has under way at most, pipeline aside
_NAP = 0.02  # seconds that an engine with nothing else to do sleeps on a block being written


class Scheduler:
    """`spec`: the layout of the engine's model without an adapter. `tables[g]`: which of the
    engine's block tables the layers of group g use. `identify`: see Book. `clock`: monotonic
    seconds."""

    def __init__(
        self,
        spec: LayoutSpec,
        tables: Sequence[Sequence[int]],
        identify: Callable[[str], str],
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = Counters()
        # Given to the workers by the step planned last: request, first key, keys. What is not read
        # by the next step is gone, so that it does not grow where nobody reads it.
        self.stored: list[tuple[str, int, int]] = []
        self._settings = settings
        self._clock = clock
        self._tokens = spec.block_tokens
        self._groups: Sequence[Group] = spec.groups
        self._tables = tables
        self._line = Line(settings, self.counters, spec.label, clock)
        self._book = Book(self._line.pool, spec, identify)
        self._claims = Claims(self._line, spec.groups, tables, spec.block_tokens)
        self._cost = Cost()
        self._requests: dict[str, Tracked] = {}
        self._loads: list[Copy] = []  # of the step being planned
        self._leases: dict[int, tuple[str, Match]] = {}  # by the load that reads under them
        self._stores: dict[int, int] = {}  # store -> blocks
        self._begun: list[tuple[int, float]] = []  # steps in flight: tokens, when planned
        self._last_job = 0
        self._idle = False  # the engine had nothing to run in its last step

    # ---- what the engine asks and tells ----

    def prepare(self, adapter: Adapter | None) -> None:
        """A request with this adapter arrived; it is identified while the request queues."""
        self._book.prepare(adapter)

    def lookup(self, view: View, local_tokens: int) -> int | None:
        """How many tokens beyond `local_tokens` (whole blocks) the pool has for a request that has
        no page yet. None: ask again, somebody computes them just now. May be called again and
        again; each call makes the answers before it void."""
        request = self._requests.get(view.id)
        if request is None:
            request = self._requests[view.id] = Tracked(view, self._clock())
        request.view = view
        if not self._resolve(request):
            return None
        if request.entry is None:
            return 0
        return self._offer(request, local_tokens // self._tokens)

    def allocated(self, view: View, external_tokens: int, tables: Sequence[Sequence[int]]) -> None:
        """The engine gave the request pages, and takes so many tokens of what was offered."""
        request = self._requests.get(view.id)
        if request is None or request.offer is None:
            return
        offer, request.offer = request.offer, None
        if external_tokens <= 0 or request.entry is None:
            self._line.release(offer.match)
            return
        parts = self._load_parts(offer, external_tokens // self._tokens, tables)
        job = self._job()
        self._leases[job] = (view.id, offer.match)
        self._loads.append(Copy(job, view.id, request.entry.number, parts))
        self.counters.add("hit_tokens", external_tokens)

    def step(
        self,
        scheduled: Iterable[tuple[str, int, Callable[[], Sequence[Sequence[int]]]]],
        preempted: Iterable[str] = (),
    ) -> Step:
        """Plans a step's copies. `scheduled`: id, tokens whose KV this step computes, and the
        request's block tables."""
        step, total = Step(), 0
        self.stored = []
        for id in preempted:
            self._preempted(id)
        step.loads, self._loads = self._loads, []
        for copy in step.loads:
            self._use_layout(step, copy.request)
        for id, tokens, tables in scheduled:
            total += tokens
            self._plan_stores(step, id, tokens, tables)
        self._idle = total == 0
        self._begun = [*self._begun[-_IN_FLIGHT:], (total, self._clock())]
        if step:
            step.token = self._line.token()
        return step

    def report(self, report: Report | None) -> set[str]:
        """Takes what the workers tell about the oldest step in flight. Returns the requests whose
        load failed."""
        if self._begun:
            tokens, begun = self._begun.pop(0)
            self._cost.step_ended(tokens, begun, self._clock())
        if report is None:
            return set()
        self._cost.copy.add(report.load_bytes, report.load_seconds)
        failed = set()
        for job, ok in report.done.items():
            if job in self._leases:
                id, match = self._leases.pop(job)
                self._line.release(match)
                if not ok:
                    failed.add(id)
                    self._load_failed(id)
            elif job in self._stores:
                blocks = self._stores.pop(job)
                self.counters.add("blocks_stored" if ok else "store_failures", blocks if ok else 1)
        return failed

    def finished(self, id: str) -> None:
        """The request is over, however it ended. What a worker has of it goes on."""
        request = self._requests.pop(id, None)
        if request is not None:
            self._drop_offer(request)
            self._claims.give_back(request)
            self._note_wait(request)

    def replace_model(self, spec: LayoutSpec) -> None:
        """The engine's weights are others from now on."""
        for request in self._requests.values():
            self._drop_offer(request)
            self._claims.give_back(request)
            request.entry, request.resolved, request.broken = None, True, True
        self._book.replace(spec)

    def close(self) -> None:
        """Gives everything back."""
        for id in list(self._requests):
            self.finished(id)
        self._book.close()
        self._line.close()

    # ---- lookups ----

    def _resolve(self, request: Tracked) -> bool:
        """Finds the request's layout. False: not known yet."""
        if request.resolved:
            return True
        try:
            request.entry = self._book.entry(request.view.adapter)
        except Pending:
            if self._clock() - request.seen < self._settings.identify:
                return False
        request.resolved = True
        if request.entry is None:
            self.counters.add("private_requests")
        return True

    def _offer(self, request: Tracked, local: int) -> int | None:
        if request.offer is not None and request.offer.local == local:
            return max(request.offer.usable - local, 0) * self._tokens
        self._drop_offer(request)
        if not self._line.open:
            return 0
        usable, pending = self._match(request, local)
        needed = max(usable, local)
        if not request.claimed:
            # What another engine is writing now, and this one lacks.
            ahead = usable + pending - needed
            if ahead <= 0 and usable >= request.next:
                ahead = self._claim(request, usable, needed)
            if ahead > 0 and self._may_wait(request, needed, ahead):
                self._drop_offer(request)
                return None
            if ahead > 0 and not request.broken and request.next <= usable:
                self._claim(request, usable, needed)
        self._note_wait(request)
        return self._accept(request, local, usable)

    def _match(self, request: Tracked, local: int) -> tuple[int, int]:
        """The usable prefix in blocks, and how many behind it are being written."""
        view = request.view
        limit = min((view.tokens - 1) // self._tokens, len(view.keys))
        if limit <= local or not view.readable or request.load_failed or request.entry is None:
            return 0, 0
        if not request.looked_up:
            request.looked_up = True
            self.counters.add("lookups")
            self.counters.add("lookup_tokens", view.tokens - local * self._tokens)
        match = self._line.match(request.entry.layout, b"".join(view.keys[:limit]), local)
        if match is None:
            return 0, 0
        if match.blocks > local and match.lease:
            request.offer = Offer(local, match.blocks, match)
        else:
            self._line.release(match)
        return match.blocks, match.pending

    def _claim(self, request: Tracked, usable: int, needed: int) -> int:
        """Reserves what the request will have to compute. Returns how many blocks, from `needed`
        on, somebody else is writing."""
        view = request.view
        end = min(view.tokens // self._tokens, len(view.keys))
        request.next = max(request.next, usable)
        first = request.next
        codes = self._claims.take(request, end)
        if request.broken:
            self.counters.add("no_space")
            self._line.say_once(
                f"not all is stored (counted as no_space): {self._line.no_space_text}"
            )
        behind = codes[max(needed - first, 0) :]
        missing = next((i for i, code in enumerate(behind) if code != EXISTS), len(behind))
        busy = 0
        while missing + busy < len(behind) and behind[missing + busy] == BUSY:
            busy += 1
        return busy

    def _may_wait(self, request: Tracked, needed: int, ahead: int) -> bool:
        if request.waited:
            return False
        now, most = self._clock(), self._settings.wait
        if request.wait is None:
            request.wait = Wait(now, now, -1)
            self.counters.add("waits")
        if needed > request.wait.needed:  # the writer goes on
            budget = self._cost.wait_budget(ahead * self._tokens, most)
            request.wait.until = min(now + budget, request.wait.since + most)
            request.wait.needed = needed
        if now >= request.wait.until:
            self.counters.add("waits_given_up")
            request.waited = True
            return False
        # Claims of what lies behind the others' blocks are kept only by whoever computes.
        self._claims.give_back(request)
        request.next, request.broken = 0, False
        if self._idle and request.entry is not None and self._claims.full:
            keys = request.view.keys
            self._line.wait(
                request.entry.layout,
                self._claims.full[0],
                keys[min(needed, len(keys) - 1)],
                min(_NAP, request.wait.until - now),
            )
        return True

    def _accept(self, request: Tracked, local: int, usable: int) -> int:
        offer = request.offer
        if offer is None:
            return 0
        tokens = (usable - local) * self._tokens
        size = sum(
            offer.match.range(g)[1] * group.slot_bytes for g, group in enumerate(self._groups)
        )
        if self._settings.decline and not self._cost.worth_copying(tokens, size):
            self.counters.add("hits_declined")
            self._drop_offer(request)
            return 0
        return tokens

    def _drop_offer(self, request: Tracked) -> None:
        if request.offer is not None:
            self._line.release(request.offer.match)
            request.offer = None

    def _note_wait(self, request: Tracked) -> None:
        if request.wait is not None:
            self.counters.add("wait_seconds", self._clock() - request.wait.since)
            request.wait, request.waited = None, True

    # ---- copies ----

    def _load_parts(
        self, offer: Offer, blocks: int, tables: Sequence[Sequence[int]]
    ) -> tuple[Part, ...]:
        """Pages to fill from the match. Empty where a page that the engine counts on is not in it:
        the load then fails, and the request is computed."""
        parts = []
        end = offer.local + blocks
        for group in range(len(self._groups)):
            first, count = offer.match.range(group)
            rows = [tables[t] for t in self._tables[group]]
            for row in rows:
                held = [i for i in range(offer.local, min(end, len(row))) if row[i] != 0]
                if held and (held[0] < first or held[-1] >= first + count):
                    return ()
            found = offer.match.of(group)
            skip = max(offer.local - first, 0)
            kept, pages, _ = select(found[skip : end - first], first + skip, rows)
            if len(kept):
                parts.append(Part(group, kept.raw, pages.tobytes()))
        return tuple(parts)

    def _plan_stores(
        self, step: Step, id: str, tokens: int, tables: Callable[[], Sequence[Sequence[int]]]
    ) -> None:
        request = self._requests.get(id)
        if request is None or request.entry is None:
            return
        full = min((request.view.computed + tokens) // self._tokens, len(request.view.keys))
        if full > max(request.next, request.tried) and not request.broken and self._line.open:
            request.tried = full
            self._claims.take(request, full)
        if not any(run.start < full for runs in request.runs.values() for run in runs):
            return
        parts = self._claims.ready_parts(request, full, tables())
        if not parts:
            return
        job = self._job()
        self._stores[job] = sum(len(Blocks(part.blocks)) for _, part in parts)
        for first, part in parts:
            if part.group in self._claims.full[:1]:
                self.stored.append((id, first, len(Blocks(part.blocks))))
        step.stores.append(Copy(job, id, request.entry.number, tuple(part for _, part in parts)))
        step.layouts[request.entry.number] = request.entry.spec

    def _use_layout(self, step: Step, id: str) -> None:
        request = self._requests.get(id)
        if request is not None and request.entry is not None:
            step.layouts[request.entry.number] = request.entry.spec

    def _preempted(self, id: str) -> None:
        request = self._requests.get(id)
        if request is None:
            return
        self._drop_offer(request)
        self._claims.give_back(request)
        # What was stored stays; looked up again, it is found.
        request.next, request.tried, request.broken, request.waited = 0, 0, False, False

    def _load_failed(self, id: str) -> None:
        self.counters.add("load_failures")
        request = self._requests.get(id)
        if request is not None:
            request.load_failed = True

    def _job(self) -> int:
        self._last_job += 1
        return self._last_job
