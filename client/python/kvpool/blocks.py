# SPDX-License-Identifier: Apache-2.0
"""Handles of blocks, as the library gives and takes them.

Immutable, so any thread may hold them; any process of the same engine too.
"""

import enum
import struct
from array import array
from typing import overload

from kvpool._library import lib

# struct kvpool_block: block, generation, segment, offset, epoch.
_RECORD = struct.Struct("=IIIIQ")


class ReserveCode(enum.IntEnum):
    """Why Channel.reserve() gave no place for a key."""

    EXISTS = lib.KVPOOL_RESERVE_EXISTS  # it is there already
    BUSY = lib.KVPOOL_RESERVE_BUSY  # somebody is writing it
    NO_SPACE = lib.KVPOOL_RESERVE_NO_SPACE  # Channel.no_space_text says who holds it
    NO_PARENT = lib.KVPOOL_RESERVE_NO_PARENT  # the key before it is not there


class Blocks:
    """A sequence of block handles in one bytes object, 24 bytes each; it pickles as these bytes.

    Args:
        raw: what `Blocks.raw` of another one was.

    Raises:
        ValueError: raw is not a whole number of records.
    """

    __slots__ = ("raw",)
    raw: bytes

    def __init__(self, raw: bytes = b"") -> None:
        if len(raw) % _RECORD.size:
            raise ValueError(
                f"Blocks: {len(raw)} bytes are not whole records of {_RECORD.size} bytes"
            )
        object.__setattr__(self, "raw", bytes(raw))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Blocks are immutable, so {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Blocks are immutable, so {name!r} cannot be deleted")

    def __reduce__(self) -> tuple[type["Blocks"], tuple[bytes]]:
        return Blocks, (self.raw,)

    def __len__(self) -> int:
        return len(self.raw) // _RECORD.size

    @overload
    def __getitem__(self, at: int) -> "Blocks": ...
    @overload
    def __getitem__(self, at: slice) -> "Blocks": ...
    def __getitem__(self, at: int | slice) -> "Blocks":
        """Some of the blocks; an integer index gives a sequence of one."""
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step == 1:
                return Blocks(self.raw[start * _RECORD.size : stop * _RECORD.size])
            return Blocks(b"".join(self._record(i) for i in range(start, stop, step)))
        return Blocks(self._record(self._index(at)))

    def __add__(self, other: "Blocks") -> "Blocks":
        if not isinstance(other, Blocks):
            return NotImplemented
        return Blocks(self.raw + other.raw)

    def __eq__(self, other: object) -> bool:
        return self.raw == other.raw if isinstance(other, Blocks) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        granted = sum(self.granted(i) for i in range(len(self)))
        return f"<kvpool.Blocks: {len(self)}, {granted} of them granted>"

    def granted(self, index: int) -> bool:
        """Whether there is a block at all: reserve() may have given none for a key."""
        return self._fields(index)[0] != 0

    def code(self, index: int) -> int:
        """0 where a block was granted, else why not: one of ReserveCode."""
        block, generation, *_ = self._fields(index)
        return 0 if block else generation

    def codes(self) -> list[int]:
        """The code of every block; the same as code() for each, much faster."""
        words = array("I", self.raw)
        return [0 if block else code for block, code in zip(words[0::6], words[1::6], strict=True)]

    def epoch(self, index: int) -> int:
        """The client's life that gave the block: others have the same numbers."""
        return self._fields(index)[4]

    def _index(self, index: int) -> int:
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"block {index} of {len(self)}")
        return at

    def _record(self, index: int) -> bytes:
        return self.raw[index * _RECORD.size : (index + 1) * _RECORD.size]

    def _fields(self, index: int) -> tuple[int, int, int, int, int]:
        return _RECORD.unpack_from(self.raw, self._index(index) * _RECORD.size)
