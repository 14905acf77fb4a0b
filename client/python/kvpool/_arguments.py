# SPDX-License-Identifier: Apache-2.0
"""Arguments on their way into C: checked, with errors that name what is wrong.

Pure functions; any thread.
"""

import math
from typing import Any

from kvpool._library import ffi, lib

KEY_BYTES: int = lib.KVPOOL_KEY_SIZE
UINT32_MAX = 0xFFFFFFFF
UINT64_MAX = 0xFFFFFFFFFFFFFFFF


def to_nanoseconds(seconds: float, what: str) -> int:
    """Nanoseconds, at least one where it is more than 0 seconds; `inf` is the longest there is."""
    if not seconds >= 0:
        raise ValueError(f"{what}: {seconds!r} is not a number of seconds from 0 on")
    if math.isinf(seconds):
        return UINT64_MAX
    return min(math.ceil(seconds * 1e9), UINT64_MAX)


def count_keys(keys: bytes, what: str = "keys") -> int:
    """How many keys of 32 bytes these are."""
    if not isinstance(keys, bytes):
        raise TypeError(f"{what}: bytes, not {type(keys).__name__}")
    n, rest = divmod(len(keys), KEY_BYTES)
    if rest:
        raise ValueError(f"{what}: {len(keys)} bytes are not whole keys of {KEY_BYTES} bytes")
    return n


def one_key(key: bytes | None, what: str) -> bytes | None:
    """The key itself; None stays None."""
    if key is not None and count_keys(key, what) != 1:
        raise ValueError(f"{what}: {len(key)} bytes instead of one key of {KEY_BYTES} bytes")
    return key


def to_uint32(value: int, what: str) -> int:
    """The number itself, if C has room for it."""
    if not 0 <= value <= UINT32_MAX:
        raise ValueError(f"{what}: {value} is not from 0 to {UINT32_MAX}")
    return value


def is_uint32(view: memoryview) -> bool:
    """Whether a buffer holds unsigned numbers of 32 bits, in this machine's order."""
    return view.itemsize == 4 and view.format.lstrip("@=") in ("I", "L")


def borrow_uint32(buffer: Any, what: str) -> Any:
    """The numbers of a C-contiguous buffer of uint32, not copied; good while the result lives."""
    view = memoryview(buffer)
    if not is_uint32(view):
        raise TypeError(f"{what}: a buffer of uint32, not of format {view.format!r}")
    if not view.c_contiguous:
        raise ValueError(f"{what}: the buffer is not C-contiguous")
    return ffi.from_buffer("uint32_t[]", view)


def to_text(value: str | None, what: str) -> Any:
    """A C string, or NULL for None; good while the result lives."""
    if value is None:
        return ffi.NULL
    encoded = value.encode()
    if 0 in encoded:
        raise ValueError(f"{what}: {value!r} has a NUL in it")
    return ffi.new("char[]", encoded)
