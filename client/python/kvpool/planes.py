# SPDX-License-Identifier: Apache-2.0
"""An engine's paged KV memory, described once for Channel.store_pages() and load_pages().

Immutable, so any thread may use it. The memory is borrowed: it must outlive the calls.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvpool._arguments import UINT64_MAX, to_uint32
from kvpool._library import ffi


class Plane(NamedTuple):
    """Pages of one kind, usually one layer: page i begins at `address + i * stride`.

    Attributes:
        address: of page 0 in this process.
        stride: bytes from one page to the next; at least `bytes`.
        bytes: of each page, side by side, that belong to a block.
        n_pages: that the plane has.
        table: which row of the page numbers of a call is this plane's.
    """

    address: int
    stride: int
    bytes: int
    n_pages: int
    table: int = 0


class Planes(Sequence[Plane]):
    """Planes in the order in which their pages lie in a block, kept as a C array.

    Attributes:
        block_bytes: what all planes together take of a block.
        n_tables: rows of page numbers that a call must give.

    Raises:
        ValueError: a number that C has no room for.
    """

    __slots__ = ("_planes", "array", "block_bytes", "n_tables")

    def __init__(self, planes: Sequence[Plane]) -> None:
        self._planes = tuple(planes)
        for i, plane in enumerate(self._planes):
            _check(i, plane)
        self.block_bytes = sum(plane.bytes for plane in self._planes)
        self.n_tables = max((plane.table + 1 for plane in self._planes), default=0)
        self.array: Any = ffi.new("struct kvpool_plane[]", len(self._planes))
        for to, plane in zip(self.array, self._planes, strict=True):
            to.base = ffi.cast("void *", plane.address)
            to.stride = plane.stride
            to.bytes = plane.bytes
            to.n_pages = plane.n_pages
            to.table = plane.table

    def __len__(self) -> int:
        return len(self._planes)

    def __getitem__(self, at: Any) -> Any:
        return self._planes[at]

    def __repr__(self) -> str:
        return f"<kvpool.Planes: {len(self)}, {self.block_bytes} bytes a block>"


def _check(i: int, plane: Plane) -> None:
    for name in ("address", "stride", "bytes"):
        if not 0 <= getattr(plane, name) <= UINT64_MAX:
            raise ValueError(f"plane {i}: {name}: {getattr(plane, name)} is no size")
    to_uint32(plane.n_pages, f"plane {i}: n_pages")
    if to_uint32(plane.table, f"plane {i}: table") == 0xFFFFFFFF:
        raise ValueError(f"plane {i}: table: more than there can be")
