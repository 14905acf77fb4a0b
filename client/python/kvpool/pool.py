# SPDX-License-Identifier: Apache-2.0
"""A process's membership of one client of the pool.

Any thread; close() waits for calls of other threads. In a child of fork() everything raises Error
with EOWNERDEAD, except close().
"""

from __future__ import annotations

import errno
import math
import weakref
from collections.abc import Sequence
from typing import Any

from kvpool._arguments import UINT64_MAX, to_nanoseconds, to_text
from kvpool._gate import Gate
from kvpool._library import ffi, lib
from kvpool.channel import Channel
from kvpool.errors import make_error
from kvpool.layout import Description, Group, Layout, make_layout

_TOKEN_BYTES = 16


class Pool:
    """Membership of one client (an engine), over any number of lives of the daemon.

    With no daemon there it is made all the same: calls miss until one is, and the library attaches
    by itself. Use it with `with`, or call close().

    Args:
        socket: of the daemon; None: $KVPOOL_SOCKET, /run/kvpool/kvpool.sock,
            $XDG_RUNTIME_DIR/kvpool.sock.
        name: shown by kvpoolctl; None: the program's name.
        deadline: seconds, of a call that gives none; 0: the library's, 50 ms.
        spin: seconds that a call spins before it sleeps; None: the library's; 0: sleep at once;
            math.inf: never sleep.
        join: token of a client to become a member of; None: be a client of one's own.
        read_only: map blocks so that the kernel refuses writes.
        require: fail where no daemon answers now.
        arena_bytes: of each channel: bounds the keys of one call; 0: 2 MiB (32768 keys).

    Raises:
        ValueError: an argument that makes no sense.
        NotConnected: no daemon, with `require`.
        Error: EINVAL (arena_bytes, name), ENAMETOOLONG (socket), ENOMEM; with `require` also
            EACCES and EPROTO.
    """

    _handle: Any = ffi.NULL

    def __init__(
        self,
        *,
        socket: str | None = None,
        name: str | None = None,
        deadline: float = 0.0,
        spin: float | None = None,
        join: bytes | None = None,
        read_only: bool = False,
        require: bool = False,
        arena_bytes: int = 0,
    ) -> None:
        if join is not None and len(join) != _TOKEN_BYTES:
            raise ValueError(f"join: {len(join)} bytes instead of a token of {_TOKEN_BYTES}")
        texts = [to_text(socket, "socket"), to_text(name, "name")]
        token = ffi.from_buffer(join) if join is not None else ffi.NULL
        options = ffi.new("struct kvpool_options *")
        options.size = ffi.sizeof("struct kvpool_options")
        options.socket, options.name = texts
        options.deadline_ns = to_nanoseconds(deadline, "deadline")
        options.spin_ns = _to_spin(spin)
        options.flags = read_only * lib.KVPOOL_OPEN_READ_ONLY | require * lib.KVPOOL_OPEN_REQUIRE
        options.arena_bytes = arena_bytes
        options.join = ffi.cast("uint8_t *", token)
        out = ffi.new("struct kvpool **")
        r = lib.kvpool_open(options, out)
        if r != 0:
            raise make_error(r, _explain_open(r, socket))
        self._handle = out[0]
        self._gate = Gate()
        self._channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self.read_only = read_only

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._handle:
            self.close()

    @property
    def attached(self) -> bool:
        """Whether a daemon is attached now; False once closed. Makes no call to the daemon."""
        if not self._gate.open or self._gate.forked:
            return False
        with self._gate:
            return lib.kvpool_attached(self._handle) == 1

    @property
    def error(self) -> str:
        """What went wrong last with attaching, in a sentence; "no error" where nothing did."""
        with self._gate:
            return self._text()

    def token(self) -> bytes:
        """The 16 bytes with which further processes of this engine join.

        Good for the client's life, also over restarts of a daemon that keeps its pool.

        Raises:
            NotConnected: no daemon now.
        """
        out = ffi.new("uint8_t[]", _TOKEN_BYTES)
        with self._gate:
            r = lib.kvpool_token(self._handle, out)
            if r != 0:
                raise make_error(r, self._text())
        return ffi.buffer(out)[:]

    def layout(
        self,
        *,
        engine: str | None,
        hash_algorithm: str | None,
        hash_seed: str | None,
        model: str | None,
        revision: str | None,
        adapter: str | None = None,
        dtype: str | None,
        order: str | None,
        label: str | None,
        block_tokens: int,
        shards: int = 1,
        groups: Sequence[Group],
    ) -> Layout:
        """Describes what must be equal for two processes to share bytes.

        The daemon learns of it with the first call that uses it. Good until the pool is closed.

        Args:
            engine: whose bytes these are, such as "vllm".
            hash_algorithm: that made the keys.
            hash_seed: that went into them.
            model: identity of the weights, by contents and not by name.
            revision: of the model, where it has one.
            adapter: identity of the adapter, by contents; None: none.
            dtype: of the numbers within.
            order: of the bytes within.
            label: for people, at most 63 bytes; not part of the fingerprint.
            block_tokens: tokens a block.
            shards: parts that a block is written in, such as tensor-parallel ranks.
            groups: 1 to 16 of them.

        Raises:
            ValueError: a kind of group that there is not, a number out of range, a NUL.
            Error: EINVAL with a sentence, EDQUOT (more than 64), ENOMEM, EOWNERDEAD.
        """
        description = Description(
            engine,
            hash_algorithm,
            hash_seed,
            model,
            revision,
            adapter,
            dtype,
            order,
            label,
            block_tokens,
            shards,
            tuple(Group(*group) for group in groups),
        )
        with self._gate:
            r, handle = make_layout(self._handle, description)
            if r != 0:
                raise make_error(r, self._text())
            return Layout(handle, self._gate, description)

    def channel(self) -> Channel:
        """A way to the daemon for one thread at a time. Made also with no daemon there.

        Raises:
            ValueError: the pool is closed.
            Error: ENOMEM, EOWNERDEAD.
        """
        out = ffi.new("struct kvpool_channel **")
        with self._gate:
            r = lib.kvpool_channel_open(self._handle, out)
            if r != 0:
                raise make_error(r, self._text())
            channel = Channel(out[0], self, self._gate)
            self._channels.add(channel)
        return channel

    def close(self) -> None:
        """Ends leases and reservations of this process, channels and layouts; unmaps the blocks.

        Waits for calls of other threads, so a wait() in one of them holds it up. Views of blocks
        must not be looked at any more. Closing twice is fine; not from a signal handler.
        """
        if not self._gate.close():
            return
        for channel in list(self._channels):
            channel.abandon()
        handle, self._handle = self._handle, ffi.NULL
        lib.kvpool_close(handle)

    def _text(self) -> str:
        return ffi.string(lib.kvpool_error(self._handle)).decode(errors="replace")


def _to_spin(spin: float | None) -> int:
    if spin is None:
        return 0
    if spin == 0:
        return 1  # 0 is the library's default
    return UINT64_MAX if math.isinf(spin) else to_nanoseconds(spin, "spin")


def _explain_open(r: int, socket: str | None) -> str:
    where = repr(socket) if socket else "any of the usual sockets"
    if r == -errno.ENOTCONN:
        return f"no daemon answers at {where}"
    return f"open, with the socket {where}: {make_error(r).strerror}"
