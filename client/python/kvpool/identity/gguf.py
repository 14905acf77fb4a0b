# SPDX-License-Identifier: Apache-2.0
"""Reads the header of a GGUF file and refuses one that does not fit its file.

Layout, little-endian: magic, version, number of tensors, number of metadata pairs; the pairs; the
tensors' names, dimensions, types and offsets; from the next multiple of the alignment on, the
tensors' bytes. The header is covered as it stands, byte for byte; it is walked through only to find
the tensors. Pure functions over a File that the caller owns.
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import NamedTuple

from kvpool.identity.files import File, printable
from kvpool.identity.result import Unidentified
from kvpool.identity.sample import Tensor

# Tokenizers are in the header: those of 2026 take 5 to 20 MB.
HEADER_BYTES_MAX = 256 << 20

_READ_BYTES = 1 << 20
_ALIGNMENT = 32
_DIMENSIONS_MAX = 4
_NESTING_MAX = 4

_STRING, _ARRAY = 8, 9
_UINT32 = 4
# Bytes of a metadata value by its type.
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

# Elements a block and bytes a block, by ggml's type number.
_BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
}


class Header(NamedTuple):
    """What a GGUF file says about itself. `sha256` is of the header's bytes."""

    tensors: list[Tensor]
    sha256: bytes


class _Info(NamedTuple):
    name: str
    kind: int
    shape: tuple[int, ...]
    offset: int


class _Cursor:
    """Goes through a header from its start and reads the file as far as needed."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.buffer = bytearray()
        self.at = 0

    def fail(self, what: str) -> Unidentified:
        return Unidentified(f"{self._file.path}: {what} (header, byte {self.at})")

    def skip(self, n: int) -> int:
        """Goes on by `n` bytes, which are then in the buffer. Returns where they begin."""
        begin, end = self.at, self.at + n
        if end > self._file.size:
            raise self.fail("truncated, or a length that is too large")
        if end > HEADER_BYTES_MAX:
            raise self.fail(f"a header of more than {HEADER_BYTES_MAX} bytes")
        if end > len(self.buffer):
            more = min(max(end - len(self.buffer), _READ_BYTES), self._file.size - len(self.buffer))
            self.buffer += self._file.read(len(self.buffer), more)
        self.at = end
        return begin

    def u32(self) -> int:
        begin = self.skip(4)
        return int(struct.unpack_from("<I", self.buffer, begin)[0])

    def u64(self) -> int:
        begin = self.skip(8)
        return int(struct.unpack_from("<Q", self.buffer, begin)[0])

    def string(self) -> bytes:
        n = self.u64()
        begin = self.skip(n)
        return bytes(self.buffer[begin : begin + n])

    def value(self, kind: int, nesting: int = 0) -> None:
        """Goes past one metadata value."""
        if kind in _SCALARS:
            self.skip(_SCALARS[kind])
        elif kind == _STRING:
            self.skip(self.u64())
        elif kind == _ARRAY and nesting < _NESTING_MAX:
            inner, n = self.u32(), self.u64()
            if inner in _SCALARS:
                self.skip(_SCALARS[inner] * n)
                return
            # Each takes 8 bytes at least, so a count that lies ends at the end of the file.
            for _ in range(n):
                self.value(inner, nesting + 1)
        else:
            raise self.fail(f"metadata of unknown type {kind}")


def _alignment(cursor: _Cursor, n: int) -> int:
    alignment = _ALIGNMENT
    for _ in range(n):
        key, kind = cursor.string(), cursor.u32()
        begin = cursor.at
        cursor.value(kind)
        if key == b"general.alignment":
            if kind != _UINT32:
                raise cursor.fail("general.alignment is no 32-bit number")
            alignment = int(struct.unpack_from("<I", cursor.buffer, begin)[0])
    if alignment == 0 or alignment & (alignment - 1):
        raise cursor.fail(f"general.alignment {alignment} is no power of two")
    return alignment


def _info(cursor: _Cursor) -> _Info:
    try:
        name = cursor.string().decode("utf-8")
    except UnicodeDecodeError:
        raise cursor.fail("a tensor's name is not UTF-8") from None
    dimensions = cursor.u32()
    if dimensions > _DIMENSIONS_MAX:
        raise cursor.fail(f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(cursor.u64() for _ in range(dimensions))
    return _Info(name, cursor.u32(), shape, cursor.u64())


def _bytes(cursor: _Cursor, info: _Info) -> int | None:
    """Bytes of a tensor; None where its type is not known."""
    block = _BLOCKS.get(info.kind)
    if block is None:
        return None
    elements = math.prod(info.shape)
    if (info.shape[0] if info.shape else 1) % block[0]:
        raise cursor.fail(f"rows of tensor {info.name!r} are no whole blocks of {block[0]}")
    return elements // block[0] * block[1]


def _tensors(file: File, cursor: _Cursor, infos: list[_Info], start: int) -> list[Tensor]:
    """Gives each tensor its bytes, and checks that they are its own and in the file."""
    out: list[Tensor] = []
    infos = sorted(infos, key=lambda i: i.offset)
    for i, info in enumerate(infos):
        begin = start + info.offset
        limit = start + infos[i + 1].offset if i + 1 < len(infos) else file.size
        n = _bytes(cursor, info)
        if begin > file.size or (n is not None and begin + n > file.size):
            raise Unidentified(
                f"{file.path}: truncated: {file.size} bytes, tensor {info.name!r}"
                f" ends at {begin + (n or 0)}"
            )
        # Of an unknown type all that lies before the next tensor is taken, padding included.
        if n is None:
            n = limit - begin
            if n <= 0 < math.prod(info.shape):
                raise Unidentified(f"{file.path}: tensor {info.name!r} has no bytes of its own")
        if begin + n > limit:
            raise Unidentified(f"{file.path}: tensor {info.name!r} overlaps another")
        out.append(Tensor(info.name, f"ggml-{info.kind}", info.shape, begin, n))
    return out


def read(file: File) -> Header:
    """The header, checked against the file's size. Unidentified where it lies."""
    cursor = _Cursor(file)
    if file.size < 24 or file.read(0, 4) != b"GGUF":
        raise Unidentified(f"{file.path}: not a GGUF file")
    cursor.skip(4)
    version = cursor.u32()
    if version not in (2, 3):
        raise Unidentified(f"{file.path}: GGUF version {version}; 2 and 3 are known, little-endian")
    n_tensors, n_pairs = cursor.u64(), cursor.u64()
    alignment = _alignment(cursor, n_pairs)
    infos = [_info(cursor) for _ in range(n_tensors)]
    seen: set[str] = set()
    for info in infos:
        if info.name in seen:
            raise Unidentified(f"{printable(file.path)}: two tensors are named {info.name!r}")
        seen.add(info.name)
        if info.offset % alignment:
            raise Unidentified(f"{file.path}: tensor {info.name!r} is not aligned")
    end = cursor.at
    start = -(-end // alignment) * alignment
    sha = hashlib.sha256(memoryview(cursor.buffer)[:end]).digest()
    return Header(_tensors(file, cursor, infos, start), sha)
