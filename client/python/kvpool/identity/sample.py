# SPDX-License-Identifier: Apache-2.0
"""Tensors as identification sees them: name, type, shape, and a sample of the bytes.

A tensor of up to 3 KiB is read whole, a longer one at its start, its middle and its end, 1 KiB
each: less than 1 MiB for a Llama of 8 billion parameters (291 tensors).

What sampling cannot see: a change that lies wholly between the places it looks at, as when only a
few rows of an embedding were trained. Training a matrix, merging an adapter into it, editing it by
a rank-one update and quantising it otherwise change bytes everywhere and are seen.

Pure functions over a File that the caller owns.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from kvpool.identity.digest import Digest
from kvpool.identity.files import File

PIECE_BYTES = 1024


class Tensor(NamedTuple):
    """A tensor by its file's header. `offset` and `bytes` are of its data in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


class Sampled(NamedTuple):
    """A tensor and the SHA-256 of its sampled bytes. `place` tells equal names apart."""

    tensor: Tensor
    file: str
    sample: bytes
    place: str = ""


def pieces(n: int) -> list[tuple[int, int]]:
    """Which bytes of a tensor of `n` bytes are read: (offset, length), in order."""
    if n <= 3 * PIECE_BYTES:
        return [(0, n)] if n else []
    return [
        (0, PIECE_BYTES),
        ((n - PIECE_BYTES) // 2, PIECE_BYTES),
        (n - PIECE_BYTES, PIECE_BYTES),
    ]


def sample(file: File, name: str, tensors: list[Tensor]) -> list[Sampled]:
    """Reads the samples of a file's tensors, in the order in which they lie in the file."""
    out: list[Sampled] = []
    for tensor in sorted(tensors, key=lambda t: t.offset):
        sha = hashlib.sha256()
        for offset, length in pieces(tensor.bytes):
            sha.update(file.read(tensor.offset + offset, length))
        out.append(Sampled(tensor, name, sha.digest()))
    return out


def add(digest: Digest, sampled: list[Sampled]) -> None:
    """Adds tensors, ordered by name and, of one name, as given: how they are spread over files does
    not matter."""
    digest.number(len(sampled))
    for one in sorted(sampled, key=lambda s: (s.tensor.name, s.place)):
        digest.text(one.tensor.name)
        digest.text(one.place)
        digest.text(one.tensor.dtype)
        digest.number(len(one.tensor.shape))
        for extent in one.tensor.shape:
            digest.number(extent)
        digest.number(one.tensor.bytes)
        digest.raw(one.sample)
