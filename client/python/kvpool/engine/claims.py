# SPDX-License-Identifier: Apache-2.0
"""Reserving the blocks that a request is going to compute, and cutting them into copies.

A prompt's blocks are reserved before they are computed: whoever looks the same prefix up meanwhile
learns that it is being written, and waits. Used by the scheduler, in its thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from kvpool import Blocks, Group
from kvpool.engine import windows
from kvpool.engine.jobs import Part
from kvpool.engine.line import Line
from kvpool.engine.request import Run, Tracked

GRANTED, EXISTS, BUSY, NO_SPACE = 0, 9, 10, 11
_MOST = 16384  # keys in one call: what fits the default arena with room to spare


class Claims:
    """`full`: numbers of the groups that need every block. `tables[g]`: which of the engine's block
    tables the pages of group g are taken from."""

    def __init__(
        self, line: Line, groups: Sequence[Group], tables: Sequence[Sequence[int]], tokens: int
    ) -> None:
        self._line = line
        self._groups = groups
        self._tables = tables
        self._tokens = tokens  # a block
        self.full = [g for g, group in enumerate(groups) if group.kind == "full"]

    def take(self, request: Tracked, upto: int) -> list[int]:
        """Reserves keys `request.next` to `upto`. Returns the code of each (of the first full
        group); shorter where the daemon did not answer, or the chain broke for want of space."""
        first, keys = request.next, request.view.keys
        codes: list[int] = []
        while request.next < upto:
            last = min(upto, request.next + _MOST)
            more = self._take_full(request, keys, request.next, last)
            codes += more
            request.next += len(more)
            if request.next < last:
                break
        if codes:
            self._take_windows(request, keys, first, codes)
        return codes

    def _take_full(
        self, request: Tracked, keys: Sequence[bytes], first: int, last: int
    ) -> list[int]:
        assert request.entry is not None
        joined = b"".join(keys[first:last])
        parent = keys[first - 1] if first else None
        codes: list[int] = []
        for group in self.full:
            blocks = self._line.reserve(request.entry.layout, group, joined, parent)
            if blocks is None:
                return codes
            if group != self.full[0]:
                self._keep(request, group, first, blocks)
                continue
            codes = blocks.codes()
            # Behind a block that has no place nothing can be found.
            end = next((i for i, c in enumerate(codes) if c not in (GRANTED, EXISTS, BUSY)), None)
            if end is not None:
                request.broken = True
                self._line.abort(blocks[end:])
                blocks, codes = blocks[:end], codes[:end]
                joined = joined[: end * len(keys[first])]
            self._keep(request, group, first, blocks)
            if not codes:
                return codes
        return codes

    def _take_windows(
        self, request: Tracked, keys: Sequence[bytes], first: int, codes: list[int]
    ) -> None:
        assert request.entry is not None
        prompt = request.view.prompt_tokens // self._tokens
        ends = {prompt, (request.view.prompt_tokens - 1) // self._tokens}
        resident = next((i for i, c in enumerate(codes) if c != EXISTS), len(codes))
        if resident:
            ends.add(first + resident)  # a chain that was there branches off here
        for group, spec in enumerate(self._groups):
            if spec.kind != "window":
                continue
            for a, b in windows.wanted(
                ends, prompt, first, first + len(codes), spec.window, self._tokens
            ):
                blocks = self._line.reserve(
                    request.entry.layout, group, b"".join(keys[a:b]), keys[a - 1] if a else None
                )
                if blocks is not None:
                    self._keep(request, group, a, blocks)

    def _keep(self, request: Tracked, group: int, first: int, blocks: Blocks) -> None:
        if GRANTED in blocks.codes():
            request.runs.setdefault(group, []).append(Run(first, blocks))

    def ready_parts(
        self, request: Tracked, full_blocks: int, tables: Sequence[Sequence[int]]
    ) -> list[tuple[int, Part]]:
        """Takes out of the request what lies before block `full_blocks`, to be stored after this
        step, each part with its first key. What the engine has no page for is given back."""
        parts = []
        for group, runs in list(request.runs.items()):
            left = []
            for run in runs:
                here = min(max(full_blocks - run.start, 0), len(run.blocks))
                if here:
                    part = self._part(group, run.start, run.blocks[:here], tables)
                    if part is not None:
                        parts.append((run.start, part))
                if here < len(run.blocks):
                    left.append(Run(run.start + here, run.blocks[here:]))
            request.runs[group] = left
        return parts

    def _part(
        self, group: int, start: int, blocks: Blocks, tables: Sequence[Sequence[int]]
    ) -> Part | None:
        kept, pages, lost = select(blocks, start, [tables[t] for t in self._tables[group]])
        if lost is not None:
            self._line.abort(lost)
        return Part(group, kept.raw, pages.tobytes()) if len(kept) else None

    def give_back(self, request: Tracked) -> None:
        """Aborts what no worker was given yet; others may write these blocks from now on."""
        for runs in request.runs.values():
            for run in runs:
                self._line.abort(run.blocks)
        request.runs.clear()


def select(
    blocks: Blocks, start: int, tables: Sequence[Sequence[int]]
) -> tuple[Blocks, array[int], Blocks | None]:
    """Those of `blocks` (of keys `start` and on) that were granted and have a page in every table,
    with their pages, a row a table; and what was granted but has no page. Page 0 is none: engines
    keep it for positions that hold nothing."""
    n = len(blocks)
    rows = [table[start : start + n] for table in tables]
    paged = min((len(row) for row in rows), default=0)
    granted = [i for i, code in enumerate(blocks.codes()) if code == GRANTED]
    there = [i for i in granted if i < paged and all(row[i] != 0 for row in rows)]
    pages = array("I", [row[i] for row in rows for i in there])
    kept = blocks if len(there) == n else pick(blocks, there)
    if len(there) == len(granted):
        return kept, pages, None
    held = set(there)
    return kept, pages, pick(blocks, [i for i in granted if i not in held])


def pick(blocks: Blocks, indices: Sequence[int]) -> Blocks:
    """The blocks at these indices."""
    return Blocks(b"".join(blocks[i : i + 1].raw for i in indices))
