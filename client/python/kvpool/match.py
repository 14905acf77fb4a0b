# SPDX-License-Identifier: Apache-2.0
"""What Channel.match() found: how long the prefix is, and where its blocks are.

Immutable; any thread may read it. The lease within is given back by Channel.release().
"""

from typing import Any

from kvpool.blocks import Blocks


class Match:
    """The longest resident prefix of the keys of one call.

    Attributes:
        blocks: its length in keys.
        pending: keys after it that somebody is writing now; 0 where that was not asked.
        reported: handles that came with it, of all groups together.
        n_groups: groups of the layout.
        lease: number of the lease that holds it; 0 where nothing is held.
        epoch: the client's life that gave it, as in its blocks.
    """

    __slots__ = (
        "_ranges",
        "_reported_blocks",
        "blocks",
        "epoch",
        "lease",
        "n_groups",
        "pending",
        "record",
        "reported",
    )

    def __init__(self, record: Any, reported: Blocks) -> None:
        self.record = record
        self.blocks: int = record.blocks
        self.pending: int = record.pending
        self.reported: int = record.reported
        self.n_groups: int = record.n_groups
        self.lease: int = record.lease
        self.epoch: int = record.epoch
        self._reported_blocks = reported
        self._ranges = [(g.first, g.count) for g in record.groups[0 : record.n_groups]]

    def range(self, group: int) -> tuple[int, int]:
        """(first, count): the group's blocks are those of keys first to first + count - 1."""
        return self._ranges[self._check(group)]

    def of(self, group: int) -> Blocks:
        """The group's blocks, in the order of their keys."""
        first = sum(count for _, count in self._ranges[: self._check(group)])
        return self._reported_blocks[first : first + self._ranges[group][1]]

    def __repr__(self) -> str:
        return f"<kvpool.Match: {self.blocks} keys, lease {self.lease:#x}, epoch {self.epoch:#x}>"

    def _check(self, group: int) -> int:
        if not 0 <= group < self.n_groups:
            raise IndexError(f"group {group} of {self.n_groups}")
        return group
