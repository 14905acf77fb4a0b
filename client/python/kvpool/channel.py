# SPDX-License-Identifier: Apache-2.0
"""One thread's way to the daemon: lookups, reservations, and copies of blocks.

Owned by whoever made it, and closed with its Pool at the latest. It belongs to one thread at a
time; a second one that comes in meanwhile gets a RuntimeError. All calls release the GIL.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from kvpool._arguments import (
    borrow_uint32,
    count_keys,
    one_key,
    to_nanoseconds,
    to_uint32,
)
from kvpool._library import ffi, lib
from kvpool.blocks import Blocks
from kvpool.errors import Error, make_error, make_forked_error
from kvpool.match import Match

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kvpool._gate import Gate
    from kvpool.layout import Layout
    from kvpool.planes import Planes
    from kvpool.pool import Pool

_BLOCK_BYTES: int = ffi.sizeof("struct kvpool_block")

# Memory that the library fills: not cleared before.
_new = ffi.new_allocator(should_clear_after_alloc=False)

_WAITED: dict[int, Literal["ready", "absent", "abandoned", "timeout"]] = {
    0: "ready",
    -errno.ENOENT: "absent",
    -errno.ECANCELED: "abandoned",
    -errno.ETIMEDOUT: "timeout",
}


class Channel:
    """A way to the daemon for one thread at a time, made by Pool.channel().

    Deadlines are in seconds from the call on; 0 takes the pool's. A call raises

    - NotConnected where there is no daemon, or it went away: a later call attaches again,
    - TimedOut where the deadline passed,
    - Stale where blocks or leases are of a client's life that is over, or no daemon is there to
      say what they hold,
    - Error with another errno: EINVAL, E2BIG (more keys than the arena holds), EDQUOT, EACCES,
      ENOMEM, EPROTO, and EOWNERDEAD in a child of fork(),
    - ValueError or TypeError for arguments that make no sense, and for a channel that is closed,
    - RuntimeError where another thread is in a call of this channel.
    """

    def __init__(self, handle: Any, pool: Pool, gate: Gate) -> None:
        self._handle = handle
        self._pool = pool  # keeps it open
        self._gate = gate
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    # ---- reading ----

    def match(
        self,
        layout: Layout,
        keys: bytes,
        *,
        skip: int = 0,
        lease: bool = True,
        pending: bool = False,
        deadline: float = 0.0,
    ) -> Match:
        """The longest prefix of keys that is resident, held until release().

        Args:
            layout: of the pool that this channel is of.
            keys: chained, 32 bytes each.
            skip: leading keys whose blocks the caller has already: counted, not reported.
            lease: False: look only, so that the blocks may go at any time.
            pending: count the keys after the prefix that somebody is writing now.
            deadline: in seconds.
        """
        n = count_keys(keys)
        if not 0 <= skip <= n:
            raise ValueError(f"skip: {skip} of {n} keys")
        flags = 0 if lease else lib.KVPOOL_MATCH_NO_LEASE
        if pending:
            flags |= lib.KVPOOL_MATCH_PENDING
        capacity = (n - skip) * len(layout.groups)
        out = _new("struct kvpool_block[]", capacity)
        record = ffi.new("struct kvpool_match *")
        ns = to_nanoseconds(deadline, "deadline")
        with self._call(layout) as handle:
            self._check(
                lib.kvpool_match(
                    handle, layout.handle, keys, n, skip, flags, ns, out, capacity, record
                )
            )
        return Match(record, _to_blocks(out, record.reported))

    def release(self, match: Match, keep: int = 0) -> None:
        """Gives a match's lease back; never waits. A match without a lease is passed over.

        Args:
            match: of any channel of the pool.
            keep: leading keys to hold on to, until it is released again.
        """
        keep = to_uint32(keep, "keep")
        with self._call() as handle:
            lib.kvpool_release(handle, match.record, keep)

    def wait(
        self, layout: Layout, group: int, key: bytes, timeout: float
    ) -> Literal["ready", "absent", "abandoned", "timeout"]:
        """Until somebody's block of this key is there. Signal handlers run only afterwards.

        Args:
            layout: of the pool that this channel is of.
            group: index of the layout's group.
            key: 32 bytes.
            timeout: seconds; 0: the pool's deadline.

        Returns:
            "ready"; "absent": nobody is writing it; "abandoned": its writer gave it up;
            "timeout": still being written.
        """
        ns = to_nanoseconds(timeout, "timeout")
        key = one_key(key, "key") or b""
        group = to_uint32(group, "group")
        with self._call(layout) as handle:
            r = lib.kvpool_wait(handle, layout.handle, group, key, ns)
            if r not in _WAITED:
                raise self._error(r)
        return _WAITED[r]

    # ---- writing ----

    def reserve(
        self,
        layout: Layout,
        group: int,
        keys: bytes,
        *,
        parent: bytes | None = None,
        deadline: float = 0.0,
    ) -> Blocks:
        """Places to write the blocks of keys, one entry a key.

        What was granted must be committed or aborted. Where Blocks.granted(i) is false,
        Blocks.code(i) says why; for want of space, no_space_text says who holds it.

        Args:
            layout: of the pool that this channel is of.
            group: index of the layout's group.
            keys: chained, 32 bytes each.
            parent: the key before the first; None where a chain starts.
            deadline: in seconds.
        """
        n = count_keys(keys)
        before = one_key(parent, "parent") or ffi.NULL
        ns = to_nanoseconds(deadline, "deadline")
        group = to_uint32(group, "group")
        out = ffi.new("struct kvpool_block[]", n)
        with self._call(layout) as handle:
            self._check(lib.kvpool_reserve(handle, layout.handle, group, before, keys, n, ns, out))
        return _to_blocks(out, n)

    @property
    def no_space_text(self) -> str:
        """Why the last reserve() found no space and who holds it; "no error" otherwise."""
        with self._call() as handle:
            return ffi.string(lib.kvpool_no_space_text(handle)).decode(errors="replace")

    def commit(self, blocks: Blocks, *, shard: int | None = None, deadline: float = 0.0) -> int:
        """These blocks' bytes are written: others find a block once its last shard is.

        Args:
            blocks: from reserve(), of this pool's client; those not granted are passed over.
            shard: the one that is written; None: all.
            deadline: in seconds.

        Returns:
            How many were taken; where none was although there were some, it raises Stale.
        """
        which = lib.KVPOOL_ALL_SHARDS if shard is None else to_uint32(shard, "shard")
        ns = to_nanoseconds(deadline, "deadline")
        with self._call() as handle:
            return self._check(
                lib.kvpool_commit(handle, _from_blocks(blocks), len(blocks), which, ns)
            )

    def commit_checksum(
        self,
        layout: Layout,
        group: int,
        blocks: Blocks,
        *,
        shard: int | None = None,
        deadline: float = 0.0,
    ) -> int:
        """As commit(), with a checksum of the bytes that lie in the pool: see verify()."""
        which = lib.KVPOOL_ALL_SHARDS if shard is None else to_uint32(shard, "shard")
        ns = to_nanoseconds(deadline, "deadline")
        group = to_uint32(group, "group")
        array, n = _from_blocks(blocks), len(blocks)
        with self._call(layout) as handle:
            return self._check(
                lib.kvpool_commit_checksum(handle, layout.handle, group, array, n, which, ns)
            )

    def abort(self, blocks: Blocks, *, deadline: float = 0.0) -> int:
        """Gives reservations back unwritten. Returns how many; raises Stale as commit() does.

        Where the daemon did not hear of it by the deadline, it is told with a later call.
        """
        ns = to_nanoseconds(deadline, "deadline")
        with self._call() as handle:
            return self._check(lib.kvpool_abort(handle, _from_blocks(blocks), len(blocks), ns))

    def forget(
        self, layout: Layout, group: int, keys: bytes | None = None, *, deadline: float = 0.0
    ) -> int:
        """Drops the blocks of these keys and all that follow them; returns how many.

        Args:
            layout: of the pool that this channel is of.
            group: index of the layout's group.
            keys: 32 bytes each; None: the whole layout; no keys: nothing.
            deadline: in seconds.
        """
        n = count_keys(keys) if keys is not None else 0
        ns = to_nanoseconds(deadline, "deadline")
        group = to_uint32(group, "group")
        with self._call(layout) as handle:
            if keys is not None and n == 0:
                return 0
            return self._check(
                lib.kvpool_forget(handle, layout.handle, group, keys or ffi.NULL, n, ns)
            )

    def verify(self, layout: Layout, group: int, blocks: Blocks, *, deadline: float = 0.0) -> int:
        """Compares blocks that are leased with the checksums they were committed with.

        Reads all shards of each; blocks without a checksum are passed over. What differs is
        dropped, with all that follows it, and found by nobody any more.

        Returns:
            How many differ.
        """
        ns = to_nanoseconds(deadline, "deadline")
        group = to_uint32(group, "group")
        array, n = _from_blocks(blocks), len(blocks)
        with self._call(layout) as handle:
            return self._check(
                lib.kvpool_verify(handle, layout.handle, group, array, n, ns, ffi.NULL)
            )

    # ---- bytes ----

    def view(
        self, layout: Layout, group: int, blocks: Blocks, index: int, *, shard: int = 0
    ) -> memoryview:
        """The bytes of one shard of a block, not copied; read-only where the pool is.

        Only good while the block is leased or reserved and the pool is open: whoever looks at it
        later sees other bytes, or the process dies. Committed blocks must not be written to. What
        is read after the daemon ended this client may be of others; load() finds that out.

        Args:
            layout: of the pool that this channel is of.
            group: index of the layout's group.
            blocks: whose `index`-th is meant.
            index: from 0 on.
            shard: from 0 on.

        Returns:
            slot_bytes bytes of the group.
        """
        block = _from_blocks(blocks) + _to_index(blocks, index)
        group, shard = to_uint32(group, "group"), to_uint32(shard, "shard")
        out = ffi.new("void **")
        with self._call(layout) as handle:
            self._check(lib.kvpool_pointer(handle, layout.handle, group, block, shard, out))
        view = memoryview(ffi.buffer(out[0], layout.groups[group].slot_bytes))
        return view.toreadonly() if self._pool.read_only else view

    def store(
        self,
        layout: Layout,
        group: int,
        blocks: Blocks,
        index: int,
        pieces: Sequence[Buffer],
        *,
        shard: int = 0,
    ) -> None:
        """Gathers pieces, in order, into one shard of a block that was reserved.

        Makes no call to the daemon. The pieces are C-contiguous buffers of at most slot_bytes
        bytes together. EACCES where the pool is read-only, EINVAL for more bytes than that.
        """
        self._copy_pieces(
            lib.kvpool_store, layout, group, blocks, index, pieces, shard, writable=False
        )

    def load(
        self,
        layout: Layout,
        group: int,
        blocks: Blocks,
        index: int,
        pieces: Sequence[Buffer],
        *,
        shard: int = 0,
    ) -> None:
        """Scatters one shard of a block that is leased into writable pieces; see store()."""
        self._copy_pieces(
            lib.kvpool_load, layout, group, blocks, index, pieces, shard, writable=True
        )

    def store_pages(
        self,
        layout: Layout,
        group: int,
        blocks: Blocks,
        planes: Planes,
        pages: Buffer,
        *,
        shard: int = 0,
    ) -> None:
        """Gathers pages of an engine's memory into blocks that were reserved, many at once.

        Block i takes, plane after plane, page `pages[plane.table * len(blocks) + i]`. Blocks that
        were not granted are passed over. Makes no call to the daemon.

        Args:
            layout: of the pool that this channel is of.
            group: index of the layout's group.
            blocks: from reserve().
            planes: together at most slot_bytes of the group.
            pages: C-contiguous buffer of uint32, len(blocks) numbers for each table.
            shard: from 0 on.

        Raises:
            ValueError: `pages` is of another length.
            TypeError: `pages` is no buffer of uint32.
            Error: before any byte is copied: EINVAL (a page beyond its plane, sizes), EACCES; later
                too: ESTALE.
        """
        self._copy_pages(lib.kvpool_store_pages, layout, group, blocks, planes, pages, shard)

    def load_pages(
        self,
        layout: Layout,
        group: int,
        blocks: Blocks,
        planes: Planes,
        pages: Buffer,
        *,
        shard: int = 0,
    ) -> None:
        """Scatters blocks that are leased into pages; otherwise as store_pages().

        A block that was not granted is EINVAL: its pages would keep what they had.
        """
        self._copy_pages(lib.kvpool_load_pages, layout, group, blocks, planes, pages, shard)

    def close(self) -> None:
        """Closes it; waits for a call of another thread. What it took stays held. Twice is fine."""
        handle = self._take()
        if not handle:
            return
        if self._gate.forked:
            if self._gate.open:
                lib.kvpool_channel_close(handle)
            return
        try:
            with self._gate:
                lib.kvpool_channel_close(handle)
        except ValueError:
            pass  # the pool is closed, and closed this with it

    def abandon(self) -> None:
        """For the pool, which is about to close this itself: waits for a call of another thread."""
        self._take()

    # ---- within ----

    def _take(self) -> Any:
        """The handle, which nobody uses now and nobody gets any more."""
        if os.getpid() != self._process:
            # In a child of fork() whoever held the lock stayed behind in the parent.
            handle, self._handle = self._handle, None
            return handle
        with self._lock:
            handle, self._handle = self._handle, None
        return handle

    @contextmanager
    def _call(self, layout: Layout | None = None) -> Iterator[Any]:
        if not self._lock.acquire(blocking=False):
            if os.getpid() != self._process:
                raise make_forked_error()
            raise RuntimeError(
                "this channel is in a call of another thread: open one channel a thread"
            )
        try:
            if not self._handle:
                raise ValueError("this channel is closed")
            if layout is not None and layout.gate is not self._gate:
                raise ValueError("this layout is of another pool")
            yield self._handle
        finally:
            self._lock.release()

    def _check(self, r: int) -> int:
        if r < 0:
            raise self._error(r)
        return r

    def _error(self, r: int) -> Error:
        text = ffi.string(lib.kvpool_channel_error(self._handle))
        return make_error(r, text.decode(errors="replace"))

    def _copy_pieces(
        self,
        function: Any,
        layout: Layout,
        group: int,
        blocks: Blocks,
        index: int,
        pieces: Sequence[Buffer],
        shard: int,
        *,
        writable: bool,
    ) -> None:
        array, _borrowed = _borrow_pieces(pieces, writable=writable)
        block = _from_blocks(blocks) + _to_index(blocks, index)
        group, shard = to_uint32(group, "group"), to_uint32(shard, "shard")
        with self._call(layout) as handle:
            self._check(function(handle, layout.handle, group, block, shard, array, len(pieces)))

    def _copy_pages(
        self,
        function: Any,
        layout: Layout,
        group: int,
        blocks: Blocks,
        planes: Planes,
        pages: Buffer,
        shard: int,
    ) -> None:
        n = len(blocks)
        numbers = borrow_uint32(pages, "pages")
        if len(numbers) != planes.n_tables * n:
            raise ValueError(
                f"pages: {len(numbers)} numbers, not {planes.n_tables} tables of {n} blocks"
            )
        group, shard = to_uint32(group, "group"), to_uint32(shard, "shard")
        with self._call(layout) as handle:
            self._check(
                function(
                    handle,
                    layout.handle,
                    group,
                    _from_blocks(blocks),
                    n,
                    shard,
                    planes.array,
                    len(planes),
                    numbers,
                    planes.n_tables,
                )
            )


def _to_blocks(array: Any, n: int) -> Blocks:
    return Blocks(ffi.buffer(array, n * _BLOCK_BYTES)[:])


def _from_blocks(blocks: Blocks) -> Any:
    """The handles as C has them, not copied; good while `blocks` lives."""
    return ffi.from_buffer("struct kvpool_block[]", blocks.raw)


def _to_index(blocks: Blocks, index: int) -> int:
    if not 0 <= index < len(blocks):
        raise IndexError(f"block {index} of {len(blocks)}")
    return index


def _borrow_pieces(pieces: Sequence[Buffer], *, writable: bool) -> tuple[Any, list[Any]]:
    """The pieces as C has them, not copied; good while both results live."""
    borrowed = [ffi.from_buffer("char[]", piece, require_writable=writable) for piece in pieces]
    array = ffi.new("struct kvpool_piece[]", len(borrowed))
    for to, piece in zip(array, borrowed, strict=True):
        to.address = piece
        to.bytes = len(piece)
    return array, borrowed
