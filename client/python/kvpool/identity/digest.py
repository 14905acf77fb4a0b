# SPDX-License-Identifier: Apache-2.0
"""SHA-256 over fields that are each framed by their length, and the canonical form of JSON.

Framing makes the encoding injective: no two lists of fields give the same bytes, so ("ab", "c")
and ("a", "bc") differ. It is the idea of the layout fingerprint (shm/fingerprint.h), with lengths
of 8 bytes.

A Digest belongs to who made it; the functions are pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from kvpool.identity.result import Unidentified

_DEPTH_MAX = 64


class Digest:
    """A running SHA-256. `domain` keeps digests of different kinds of things apart."""

    def __init__(self, domain: str) -> None:
        self._sha = hashlib.sha256()
        self.text(domain)

    def raw(self, field: bytes) -> None:
        """Adds bytes, framed."""
        self.number(len(field))
        self._sha.update(field)

    def text(self, field: str) -> None:
        """Adds text as UTF-8, framed; JSON's lone surrogates are taken as they are."""
        self.raw(field.encode("utf-8", "surrogatepass"))

    def number(self, field: int) -> None:
        """Adds an integer from 0 to 2**64 - 1, always 8 bytes."""
        self._sha.update(field.to_bytes(8, "little"))

    def hex(self) -> str:
        """The digest so far, 64 hexadecimal digits."""
        return self._sha.hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r} occurs twice")
            seen.add(key)
    return out


def parse(text: bytes, where: str) -> Any:
    """Reads JSON of which every reader makes the same: UTF-8, and no key twice in one object."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise Unidentified(f"{where}: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise Unidentified(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise Unidentified(f"{where}: not JSON: {error}") from None


def _plain(value: Any, where: str, drop: frozenset[str], depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise Unidentified(f"{where}: nested too deeply")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        out: dict[str, Any] = {}
        for key, item in value.items():
            if isinstance(key, bool) or not isinstance(key, (str, int)):
                raise Unidentified(f"{where}: a key of type {type(key).__name__}")
            name = str(key)
            if name in out:
                raise Unidentified(f"{where}: the key {name!r} occurs twice")
            if name not in drop:
                out[name] = _plain(item, f"{where}.{name}", drop, depth + 1)
        return out
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_plain(item, f"{where}[{i}]", drop, depth + 1) for i, item in enumerate(value)]
    raise Unidentified(f"{where}: a value of type {type(value).__name__} has no canonical form")


def canonical(value: Any, where: str, drop: frozenset[str] = frozenset()) -> bytes:
    """One spelling for equal values: keys sorted, no blanks, ASCII.

    Takes what JSON can hold (and tuples, and keys that are integers). `drop`: keys left out, at
    every depth. Unidentified where a value is of another type, whose text might differ from
    process to process.
    """
    plain = _plain(value, where, drop, 0)
    return json.dumps(plain, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()
