# SPDX-License-Identifier: Apache-2.0
"""The records that scheduler and workers of one engine exchange, once a step.

Plain picklable data. The scheduler owns what it builds until the engine has sent it; a worker's
report is merged with those of the other workers before the scheduler sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvpool.layout import Group


@dataclass(frozen=True)
class LayoutSpec:
    """Everything that makes KV bytes interchangeable; the arguments of ``Pool.layout()``."""

    engine: str
    hash_algorithm: str
    hash_seed: str
    model: str
    revision: str
    adapter: str | None
    dtype: str
    order: str
    label: str
    block_tokens: int
    shards: int
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Part:
    """Blocks of one group, and the engine's pages that hold the same tokens."""

    group: int
    blocks: bytes  # Blocks.raw
    pages: bytes  # uint32, a row of len(blocks) page numbers for each table of the group


@dataclass(frozen=True)
class Copy:
    """One request's blocks that a worker loads or stores. `parts` empty: it cannot be done."""

    id: int
    request: str
    layout: int
    parts: tuple[Part, ...]


@dataclass
class Step:
    """What the workers do in one step of the engine."""

    token: bytes | None = None  # with which workers join the engine's client
    layouts: dict[int, LayoutSpec] = field(default_factory=dict)
    loads: list[Copy] = field(default_factory=list)
    stores: list[Copy] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.loads or self.stores)


@dataclass
class Report:
    """What became of a step's copies, in one worker or merged over all."""

    done: dict[int, bool] = field(default_factory=dict)  # Copy.id -> whether all of it succeeded
    load_bytes: int = 0
    load_seconds: float = 0.0
    store_bytes: int = 0
    store_seconds: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.done)

    def merge(self, other: Report) -> Report:
        """Adds another worker's report: a copy succeeded where it did in every worker."""
        for job, ok in other.done.items():
            self.done[job] = self.done.get(job, True) and ok
        self.load_bytes += other.load_bytes
        self.load_seconds += other.load_seconds
        self.store_bytes += other.store_bytes
        self.store_seconds += other.store_seconds
        return self
