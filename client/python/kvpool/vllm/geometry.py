# SPDX-License-Identifier: Apache-2.0
"""Where vLLM's KV memory lies: from its cache configuration and its tensors to planes.

vLLM's cache groups that need the same tokens (all, or the same window) become one group of the
pool; each keeps its own block table. Worker process: planes. Scheduler process: what every worker
described, checked to be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvpool import Group, Plane


class Unsupported(Exception):
    """Why this engine's KV is not shared; a sentence."""


@dataclass(frozen=True)
class CacheGroup:
    """Cache groups of vLLM that are one group of the pool. `tables`: their numbers in vLLM, which
    number the block tables of a request."""

    kind: str
    window: int
    tables: tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """What one worker has: for each group the planes' text (what makes bytes equal) and bytes."""

    rank: int
    order: tuple[str, ...]
    slot_bytes: tuple[int, ...]


def cache_groups(kv_cache_config: Any, block_tokens: int) -> list[CacheGroup]:
    """Sorts vLLM's cache groups by what they need. Raises Unsupported."""
    merged: dict[tuple[str, int], list[int]] = {}
    for number, group in enumerate(kv_cache_config.kv_cache_groups):
        if group.is_eagle_group:
            raise Unsupported("speculative decoding with draft layers in the KV cache")
        if not group.enable_kv_transfer or group.host_resident:
            raise Unsupported("a KV cache group that vLLM does not let connectors move")
        kind = _kind(group.kv_cache_spec)
        if group.kv_cache_spec.block_size != block_tokens:
            raise Unsupported(
                f"KV cache group {number} has blocks of {group.kv_cache_spec.block_size} tokens, "
                f"hashes are of {block_tokens}"
            )
        merged.setdefault(kind, []).append(number)
    if not any(kind == "full" for kind, _ in merged):
        raise Unsupported("no layer attends to all tokens")
    order = sorted(merged, key=lambda key: (key[0] != "full", key[1]))
    return [CacheGroup(kind, window, tuple(merged[kind, window])) for kind, window in order]


def _kind(spec: Any) -> tuple[str, int]:
    """What a group needs, by the exact name of its class: a subclass may need something else."""
    name = type(spec).__name__
    if name in ("FullAttentionSpec", "MLAAttentionSpec"):
        return "full", 0
    if name == "SlidingWindowSpec":
        if getattr(spec, "extra_retained_tokens", 0):
            raise Unsupported("a sliding window that retains extra tokens")
        return "window", int(spec.sliding_window)
    if name == "UniformTypeKVCacheSpecs":
        kinds = {_kind(each) for each in spec.kv_cache_specs.values()}
        if len(kinds) == 1:
            return kinds.pop()
    raise Unsupported(f"KV cache of kind {name}")


def planes(
    groups: Sequence[CacheGroup], kv_cache_config: Any, kv_caches: Mapping[str, Any], rank: int
) -> tuple[list[list[Plane]], Geometry]:
    """Planes of each group in this process, and their description. Raises Unsupported."""
    result, order, sizes = [], [], []
    for group in groups:
        mine: list[Plane] = []
        words = []
        for row, number in enumerate(group.tables):
            for layer in kv_cache_config.kv_cache_groups[number].layer_names:
                tensor = kv_caches.get(layer)
                if tensor is None:
                    raise Unsupported(f"vLLM gave no tensor for layer {layer}")
                found, text = _layer_planes(layer, tensor, kv_cache_config.num_blocks, row)
                mine += found
                words.append(text)
        result.append(merge(mine))
        order.append(f"{group.kind}:{group.window}:" + ",".join(words))
        sizes.append(sum(plane.bytes for plane in mine))
    return result, Geometry(rank, tuple(order), tuple(sizes))


def _layer_planes(layer: str, tensor: Any, num_blocks: int, row: int) -> tuple[list[Plane], str]:
    """One layer: its tensor has a dimension that counts blocks (or parts of blocks); what lies
    inside it must be dense, what lies outside makes a plane each."""
    if tensor.device.type != "cpu":
        raise Unsupported(
            f"KV cache in the memory of a {tensor.device.type} device: this release copies from "
            "and to the host's memory only"
        )
    shape, strides, item = list(tensor.shape), list(tensor.stride()), tensor.element_size()
    at = next((d for d, n in enumerate(shape) if n and n % num_blocks == 0), None)
    if at is None or at > 1:
        raise Unsupported(
            f"layer {layer}: no dimension of {tuple(shape)} counts {num_blocks} blocks"
        )
    parts = shape[at] // num_blocks  # pieces that vLLM's kernels cut a block into
    dense = _dense(shape[at + 1 :], strides[at + 1 :])
    if not dense or (parts > 1 and strides[at] != dense):
        raise Unsupported(f"layer {layer}: a block is not one run of memory (strides {strides})")
    found = [
        Plane(
            address=tensor.data_ptr() + outer * item,
            stride=strides[at] * parts * item,
            bytes=dense * parts * item,
            n_pages=num_blocks,
            table=row,
        )
        for outer in _offsets(shape[:at], strides[:at])
    ]
    text = f"{tensor.dtype}[{'x'.join(map(str, shape[:at] + [parts] + shape[at + 1 :]))}]" + (
        "/".join(map(str, strides[at + 1 :]))
    )
    return found, text


def _dense(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of a block where its dimensions, in some order, fill one run; else 0."""
    run = 1
    for stride, n in sorted(zip(strides, shape, strict=True)):
        if n > 1 and stride != run:
            return 0
        run *= n
    return run


def _offsets(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    offsets = [0]
    for n, stride in zip(shape, strides, strict=True):
        offsets = [offset + i * stride for offset in offsets for i in range(n)]
    return offsets


def merge(planes: Sequence[Plane]) -> list[Plane]:
    """Joins planes that follow one another in memory within every block, as where a block of all
    layers is one run."""
    merged: list[Plane] = []
    for plane in planes:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.address + last.bytes == plane.address
            and (last.stride, last.n_pages, last.table)
            == (plane.stride, plane.n_pages, plane.table)
            and last.bytes + plane.bytes <= plane.stride
        ):
            merged[-1] = Plane(
                address=last.address,
                stride=last.stride,
                bytes=last.bytes + plane.bytes,
                n_pages=last.n_pages,
                table=last.table,
            )
        else:
            merged.append(plane)
    return merged


def agree(groups: Sequence[CacheGroup], workers: Sequence[Geometry]) -> tuple[list[Group], str]:
    """The pool's groups and the text of all workers' order of bytes. Raises Unsupported."""
    if not workers:
        raise Unsupported("no worker described its KV cache")
    ranks = sorted(worker.rank for worker in workers)
    if ranks != list(range(len(workers))):
        raise Unsupported(f"workers of ranks {ranks} described their KV cache")
    by_rank = sorted(workers, key=lambda worker: worker.rank)
    if any(len(worker.slot_bytes) != len(groups) for worker in by_rank):
        raise Unsupported("workers and scheduler see different KV cache groups")
    sizes = [max(worker.slot_bytes[g] for worker in by_rank) for g in range(len(groups))]
    texts = ["|".join(worker.order) for worker in by_rank]
    order = texts[0] if len(set(texts)) == 1 else "&".join(texts)
    return [
        Group(group.kind, size, group.window) for group, size in zip(groups, sizes, strict=True)
    ], order
