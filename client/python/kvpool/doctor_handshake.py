# SPDX-License-Identifier: Apache-2.0
"""Attaches to a daemon as PROTOCOL.md says, looks at the answer, and leaves.

The library does the same and keeps its reasons to one sentence; the doctor wants each of them, also
where the extension is not built. Nothing is mapped and no block is touched.

One thread; at most `timeout` seconds.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass
from typing import Any

VERSION_MIN = 1
VERSION_MAX = 1
_PATH_BYTES_MAX = 107

MAGIC = 0x6C6F6F70766B
_HELLO, _ATTACH, _WELCOME, _REFUSED = 1, 2, 3, 4

# Head (type, bytes) included; shm/handshake.h is the original.
HELLO_FORMAT = struct.Struct("<IIQIIIIQQ16x")
ATTACH_FORMAT = struct.Struct("<IIIIIIQ16s64s16x")
WELCOME_FORMAT = struct.Struct("<IIIIQII16sQQ64s32x")
REFUSED_FORMAT = struct.Struct("<IIIIII232s")
_PACKET_BYTES_MAX = 512
_HEAD_BYTES = 8

_READ_ONLY = 1
# The least that a channel may have.
_RING_ENTRIES = 16
_ARENA_BYTES = 64 << 10


class Refused(Exception):
    """No attaching: `kind` for programs, and a sentence.

    Kinds: "absent", "unheard" (a socket, but nobody listens), "permission", "foreign" (not a
    kvpoold), "silent", "version", "refused" (with the daemon's own words).
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


@dataclass(frozen=True)
class Welcome:
    """What a daemon says to a client that it takes. `epoch`: 16 hexadecimal digits, one daemon
    life. `segment_bytes`: of its largest segment. `extent_bytes`: most that one block may take."""

    version: int
    epoch: str
    domain: str
    segment_bytes: int
    extent_bytes: int


def _text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode("ascii", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def _connect(path: str, timeout: float) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(timeout)
    try:
        peer.connect(path)
    except OSError as error:
        peer.close()
        if error.errno in (errno.EACCES, errno.EPERM):
            raise Refused("permission", f"{path}: this user may not connect") from None
        if error.errno == errno.ECONNREFUSED:
            raise Refused("unheard", f"{path}: a socket is there, nobody listens") from None
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise Refused("absent", f"{path}: not there") from None
        if error.errno == errno.EPROTOTYPE:
            what = "another kind of socket, not where clients attach"
            raise Refused("foreign", f"{path}: {what}") from None
        if isinstance(error, TimeoutError) or error.errno == errno.EAGAIN:
            raise Refused("silent", f"{path}: the daemon does not accept") from None
        raise Refused("foreign", f"{path}: {error.strerror or error}") from None
    return peer


def _receive(peer: socket.socket, path: str) -> tuple[int, bytes]:
    try:
        # No room for descriptors: the kernel closes those that come along.
        packet = peer.recv(_PACKET_BYTES_MAX)
    except TimeoutError:
        raise Refused("silent", f"{path}: the daemon does not answer") from None
    except OSError as error:
        raise Refused("silent", f"{path}: the daemon went away: {error.strerror}") from None
    if not packet:
        raise Refused("silent", f"{path}: the daemon closed the connection without a word")
    if len(packet) < _HEAD_BYTES or int.from_bytes(packet[4:8], "little") != len(packet):
        raise Refused("foreign", f"{path}: what answers is not kvpoold")
    return int.from_bytes(packet[:4], "little"), packet


def _unpack(form: struct.Struct, packet: bytes, path: str) -> tuple[Any, ...]:
    if len(packet) != form.size:
        raise Refused("foreign", f"{path}: what answers is not kvpoold, or another version of it")
    return form.unpack(packet)


def _refused(packet: bytes, path: str) -> Refused:
    text = _text(_unpack(REFUSED_FORMAT, packet, path)[6])
    return Refused("refused", f"{path}: the daemon refuses: {text or 'it gives no reason'}")


def _version(kind: int, packet: bytes, path: str) -> int:
    """The protocol version to speak with a daemon that says hello."""
    if kind == _REFUSED:
        raise _refused(packet, path)
    _, _, magic, least, most, *_ = _unpack(HELLO_FORMAT, packet, path)
    if kind != _HELLO or magic != MAGIC:
        raise Refused("foreign", f"{path}: what answers is not kvpoold")
    version = min(int(most), VERSION_MAX)
    if version < max(int(least), VERSION_MIN):
        raise Refused(
            "version",
            f"{path}: the daemon speaks protocol versions {least} to {most}, this package"
            f" {VERSION_MIN} to {VERSION_MAX}",
        )
    return version


def _request(version: int) -> bytes:
    return ATTACH_FORMAT.pack(
        _ATTACH,
        ATTACH_FORMAT.size,
        version,
        0,
        _READ_ONLY,
        _RING_ENTRIES,
        _ARENA_BYTES,
        bytes(16),
        b"kvpool doctor",
    )


def attach(path: str, *, timeout: float = 2.0) -> Welcome:
    """Attaches as a reader and leaves. Raises Refused with what stood in the way."""
    if not 0 < len(os.fsencode(path)) <= _PATH_BYTES_MAX or "\0" in path:
        raise Refused("absent", f"{path!r}: a socket's path has 1 to {_PATH_BYTES_MAX} bytes")
    with _connect(path, timeout) as peer:
        version = _version(*_receive(peer, path), path)
        try:
            peer.send(_request(version))
        except OSError as error:
            raise Refused("silent", f"{path}: the daemon went away: {error.strerror}") from None
        kind, packet = _receive(peer, path)
    if kind == _REFUSED:
        raise _refused(packet, path)
    if kind != _WELCOME:
        raise Refused("foreign", f"{path}: it sends message {kind} out of turn")
    fields = _unpack(WELCOME_FORMAT, packet, path)
    return Welcome(
        version=int(fields[2]),
        epoch=f"{fields[4]:016x}",
        domain=_text(fields[10]),
        segment_bytes=int(fields[8]),
        extent_bytes=int(fields[9]),
    )
