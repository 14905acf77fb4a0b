# SPDX-License-Identifier: Apache-2.0
"""One request of the engine as the scheduler side sees it: what it offers, holds and writes.

Owned by the scheduler, from the first lookup until the request is finished; its thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvpool import Blocks, Match
from kvpool.engine.book import Adapter, Entry


class View(Protocol):
    """What an engine's shim must tell about a request. Read anew at each call."""

    @property
    def id(self) -> str:
        """Unique among the requests that are not finished."""

    @property
    def tokens(self) -> int:
        """Tokens known: prompt and what was accepted of the answer."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""

    @property
    def computed(self) -> int:
        """Tokens whose KV the engine has, before the step that is being planned."""

    @property
    def keys(self) -> Sequence[bytes]:
        """Keys of the whole blocks of the known tokens, chained; grows at the end only."""

    @property
    def readable(self) -> bool:
        """Whether the request may take KV from a cache at all."""

    @property
    def adapter(self) -> Adapter | None:
        """The adapter it runs with."""


@dataclass
class Offer:
    """A match that the engine was told of: `usable` blocks, of which it holds `local`."""

    local: int
    usable: int
    match: Match


@dataclass
class Run:
    """Reserved blocks of one group that were not handed to a worker yet, from key `start` on."""

    start: int
    blocks: Blocks


@dataclass
class Wait:
    """Since when a request waits for another engine's work, and until when it does unless more of
    it is there by then than the `needed` blocks that were there before."""

    since: float
    until: float
    needed: int


@dataclass
class Tracked:
    """Everything that is held for one request. The invariant: whatever the daemon granted is in
    `offer`, in `runs`, or in a copy that a worker has."""

    view: View
    seen: float  # when it was looked up first
    entry: Entry | None = None  # None: not known yet, or not shared
    resolved: bool = False  # whether `entry` is final
    offer: Offer | None = None
    wait: Wait | None = None
    waited: bool = False  # it will not wait a second time
    load_failed: bool = False  # it is computed, whatever the pool has
    looked_up: bool = False
    next: int = 0  # first key that was not reserved, nor found reserved or resident
    broken: bool = False  # what follows could not be found: nothing further is stored
    tried: int = 0  # whole blocks the request had when reserving was last tried
    runs: dict[int, list[Run]] = field(default_factory=dict)

    @property
    def claimed(self) -> bool:
        """Whether this request is the writer of blocks that nobody has yet."""
        return any(self.runs.values())
