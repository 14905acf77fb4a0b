# SPDX-License-Identifier: Apache-2.0
"""Reads the header of a safetensors file and refuses one that does not fit its file.

Layout: 8 bytes length n, little-endian; n bytes of JSON that maps names to type, shape and place;
the tensors' bytes, without gaps. Pure functions over a File that the caller owns.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kvpool.identity import digest
from kvpool.identity.files import File
from kvpool.identity.result import Unidentified
from kvpool.identity.sample import Tensor

# The format's own limit.
HEADER_BYTES_MAX = 100_000_000

_DIMENSIONS_MAX = 64

# Bits of an element. A type that is not here is taken at its word about its length.
_BITS = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
}


class Header(NamedTuple):
    """What a safetensors file says about itself. `metadata` is in canonical form."""

    tensors: list[Tensor]
    metadata: bytes


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _tensor(where: str, name: str, entry: Any, start: int) -> Tensor:
    if not isinstance(entry, dict):
        raise Unidentified(f"{where}: tensor {name!r} is not described by an object")
    dtype, shape, place = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str):
        raise Unidentified(f"{where}: tensor {name!r} has no dtype")
    if not isinstance(shape, list) or len(shape) > _DIMENSIONS_MAX or not all(map(_count, shape)):
        raise Unidentified(f"{where}: tensor {name!r} has no shape of whole numbers")
    if not isinstance(place, list) or len(place) != 2 or not all(map(_count, place)):
        raise Unidentified(f"{where}: tensor {name!r} has no two data_offsets")
    begin, end = place
    if end < begin:
        raise Unidentified(f"{where}: tensor {name!r} ends at {end} before it begins at {begin}")
    bits = _BITS.get(dtype)
    if bits is not None and math.prod(shape) * bits != 8 * (end - begin):
        raise Unidentified(
            f"{where}: tensor {name!r} of shape {shape} and type {dtype} is not {end - begin} bytes"
        )
    return Tensor(name, dtype, tuple(shape), start + begin, end - begin)


def _check_places(where: str, tensors: list[Tensor], start: int, size: int) -> None:
    at = start
    for tensor in sorted(tensors, key=lambda t: (t.offset, t.bytes)):
        if tensor.offset < at:
            raise Unidentified(f"{where}: tensor {tensor.name!r} overlaps another")
        if tensor.offset > at:
            raise Unidentified(
                f"{where}: {tensor.offset - at} bytes before {tensor.name!r} belong to no tensor"
            )
        at += tensor.bytes
    if at > size:
        raise Unidentified(f"{where}: truncated: {size} bytes, its tensors end at {at}")
    if at < size:
        raise Unidentified(f"{where}: {size - at} bytes at the end belong to no tensor")


def read(file: File) -> Header:
    """The header, checked against the file's size. Unidentified where it lies."""
    where = file.path
    if file.size < 8:
        raise Unidentified(f"{where}: truncated: {file.size} bytes are no safetensors file")
    n = int.from_bytes(file.read(0, 8), "little")
    if n > HEADER_BYTES_MAX:
        raise Unidentified(
            f"{where}: a header of {n} bytes; at most {HEADER_BYTES_MAX} are allowed"
        )
    if n > file.size - 8:
        raise Unidentified(f"{where}: truncated: {file.size} bytes, its header ends at {n + 8}")
    entries = digest.parse(file.read(8, n), f"{where}: header")
    if not isinstance(entries, dict):
        raise Unidentified(f"{where}: header: not an object")
    metadata = digest.canonical(entries.pop("__metadata__", {}), f"{where}: __metadata__")
    tensors = [_tensor(where, name, entry, n + 8) for name, entry in entries.items()]
    _check_places(where, tensors, n + 8, file.size)
    return Header(tensors, metadata)
