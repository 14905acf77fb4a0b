# SPDX-License-Identifier: Apache-2.0
"""Layouts: what must be equal for two processes to share bytes, and the keys that follow from it.

Owned by a Pool and good until it is closed; any thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kvpool._arguments import KEY_BYTES, borrow_uint32, one_key, to_text, to_uint32
from kvpool._library import ffi, lib
from kvpool.errors import make_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kvpool._gate import Gate

_KINDS = {"full": lib.KVPOOL_FULL, "window": lib.KVPOOL_WINDOW, "state": lib.KVPOOL_STATE}


class Group(NamedTuple):
    """Layers that need the same blocks.

    Attributes:
        kind: "full" (the blocks of every token), "window" (of the last `window` tokens) or "state"
            (a snapshot at the end of the prefix).
        slot_bytes: of one shard of one block in this group.
        window: in tokens; 0 but for "window".
    """

    kind: str
    slot_bytes: int
    window: int = 0


class Description(NamedTuple):
    """All that goes into a layout's fingerprint, and its label. See Pool.layout()."""

    engine: str | None
    hash_algorithm: str | None
    hash_seed: str | None
    model: str | None
    revision: str | None
    adapter: str | None
    dtype: str | None
    order: str | None
    label: str | None
    block_tokens: int
    shards: int
    groups: tuple[Group, ...]


_TEXTS = Description._fields[: Description._fields.index("block_tokens")]


class Layout:
    """A layout of one Pool, made by Pool.layout().

    Attributes:
        fingerprint: the SHA-256 that names it, 32 bytes.
        block_tokens: tokens a block.
        shards: parts that a block is written in, such as tensor-parallel ranks.
        groups: its groups, in order.
    """

    __slots__ = ("block_tokens", "fingerprint", "gate", "groups", "handle", "shards")

    def __init__(self, handle: Any, gate: Gate, description: Description) -> None:
        self.handle = handle
        self.gate = gate
        self.fingerprint: bytes = ffi.buffer(lib.kvpool_layout_fingerprint(handle), 32)[:]
        self.block_tokens = description.block_tokens
        self.shards = description.shards
        self.groups = description.groups

    def keys(
        self,
        tokens: Sequence[int] | Buffer,
        *,
        salt: bytes = b"",
        parent: bytes | None = None,
    ) -> bytes:
        """Chained SHA-256 keys of the whole blocks of tokens, 32 bytes each, side by side.

        Args:
            tokens: numbers of 32 bits, unsigned; a buffer of uint32 is not copied.
            salt: goes into the first key, and so into all.
            parent: go on after this key, instead of starting a chain.

        Raises:
            ValueError: a token that is no such number, a parent that is no key, a closed pool.
            TypeError: a buffer of anything but uint32.
            Error: EINVAL, EIO (the hash), EOWNERDEAD.
        """
        numbers = _to_numbers(tokens)
        most = len(numbers) // self.block_tokens * KEY_BYTES
        out = ffi.new("uint8_t[]", most)
        before = one_key(parent, "parent") or ffi.NULL
        with self.gate:
            r = lib.kvpool_keys(self.handle, salt, len(salt), before, numbers, len(numbers), out)
        if r < 0:
            raise make_error(r)
        return ffi.buffer(out, r * KEY_BYTES)[:]

    def __repr__(self) -> str:
        return f"<kvpool.Layout: {self.fingerprint.hex()[:16]}, {len(self.groups)} groups>"


def make_layout(pool: Any, description: Description) -> tuple[int, Any]:
    """Has the library make it: (0, the struct kvpool_layout *) or (negative errno, NULL).

    Raises:
        ValueError: what cannot even be said to C.
    """
    texts = {name: to_text(getattr(description, name), name) for name in _TEXTS}
    groups = ffi.new("struct kvpool_group_spec[]", len(description.groups))
    for i, (to, group) in enumerate(zip(groups, description.groups, strict=True)):
        if group.kind not in _KINDS:
            raise ValueError(f"group {i}: kind {group.kind!r} is not one of {', '.join(_KINDS)}")
        to.kind = _KINDS[group.kind]
        to.window = to_uint32(group.window, f"group {i}: window")
        if not 0 <= group.slot_bytes < 1 << 64:
            raise ValueError(f"group {i}: slot_bytes: {group.slot_bytes} is no size")
        to.slot_bytes = group.slot_bytes
    spec = ffi.new("struct kvpool_layout_spec *", texts)
    spec.size = ffi.sizeof("struct kvpool_layout_spec")
    spec.block_tokens = to_uint32(description.block_tokens, "block_tokens")
    spec.n_shards = to_uint32(description.shards, "shards")
    spec.n_groups = len(description.groups)
    spec.groups = groups
    out = ffi.new("struct kvpool_layout **")
    r = lib.kvpool_layout(pool, spec, out)
    return r, out[0]


def _to_numbers(tokens: Sequence[int] | Buffer) -> Any:
    try:
        view = memoryview(tokens)  # type: ignore[arg-type]
    except TypeError:
        try:
            return ffi.from_buffer("uint32_t[]", array("I", tokens))  # type: ignore[arg-type]
        except OverflowError:
            raise ValueError("tokens: a number that is not from 0 to 4294967295") from None
    return borrow_uint32(view, "tokens")
