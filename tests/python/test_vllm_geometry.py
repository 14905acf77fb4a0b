# SPDX-License-Identifier: Apache-2.0
"""Where KV memory lies, told from tensors as vLLM has them; vLLM itself is not needed."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from kvpool import Group, Plane
from kvpool.vllm.geometry import (
    CacheGroup,
    Geometry,
    Unsupported,
    agree,
    cache_groups,
    merge,
    planes,
)

BLOCKS = 10


class Tensor:
    """Shape and strides of a tensor of two-byte elements at an address."""

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, address: int = 4096
    ) -> None:
        self.shape = shape
        self._strides = strides or tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
        self._address = address
        self.device = SimpleNamespace(type="cpu")
        self.dtype = "torch.bfloat16"

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def element_size(self) -> int:
        return 2

    def data_ptr(self) -> int:
        return self._address


class FullAttentionSpec(SimpleNamespace):
    pass


class SlidingWindowSpec(SimpleNamespace):
    pass


class MambaSpec(SimpleNamespace):
    pass


def group(spec: Any, *layers: str, **changes: Any) -> SimpleNamespace:
    fields = {"is_eagle_group": False, "enable_kv_transfer": True, "host_resident": False}
    return SimpleNamespace(kv_cache_spec=spec, layer_names=list(layers), **(fields | changes))


def config(*groups: Any) -> SimpleNamespace:
    return SimpleNamespace(kv_cache_groups=list(groups), num_blocks=BLOCKS)


ONE = config(group(FullAttentionSpec(block_size=16), "layer.0"))
FULL = [CacheGroup("full", 0, (0,))]


def test_should_join_the_groups_that_need_the_same_tokens() -> None:
    window = SlidingWindowSpec(block_size=16, sliding_window=512)
    found = cache_groups(
        config(
            group(window, "a"), group(FullAttentionSpec(block_size=16), "b"), group(window, "c")
        ),
        16,
    )

    assert found == [CacheGroup("full", 0, (1,)), CacheGroup("window", 512, (0, 2))]


@pytest.mark.parametrize(
    ("broken", "word"),
    [
        (group(MambaSpec(block_size=16), "a"), "MambaSpec"),
        (group(FullAttentionSpec(block_size=32), "a"), "blocks of 32 tokens"),
        (group(SlidingWindowSpec(block_size=16, sliding_window=8), "a"), "no layer attends"),
        (group(FullAttentionSpec(block_size=16), "a", is_eagle_group=True), "draft layers"),
        (group(FullAttentionSpec(block_size=16), "a", host_resident=True), "does not let"),
    ],
)
def test_should_refuse_a_cache_that_it_does_not_know(broken: Any, word: str) -> None:
    with pytest.raises(Unsupported, match=word):
        cache_groups(config(broken), 16)


def test_should_take_a_layer_whose_blocks_are_runs() -> None:
    found, geometry = planes(FULL, ONE, {"layer.0": Tensor((BLOCKS, 3, 16, 128))}, 0)

    size = 3 * 16 * 128 * 2
    assert found == [[Plane(4096, size, size, BLOCKS, 0)]]
    assert geometry.slot_bytes == (size,)


def test_should_take_a_layer_whose_blocks_are_runs_in_another_order() -> None:
    tensor = Tensor((BLOCKS, 3, 16, 128), (3 * 16 * 128, 128, 3 * 128, 1))
    found, geometry = planes(FULL, ONE, {"layer.0": tensor}, 0)
    _, other = planes(FULL, ONE, {"layer.0": Tensor((BLOCKS, 3, 16, 128))}, 0)

    assert found[0][0].bytes == 3 * 16 * 128 * 2
    assert geometry.order != other.order


def test_should_take_keys_and_values_that_lie_apart() -> None:
    found, _ = planes(FULL, ONE, {"layer.0": Tensor((2, BLOCKS, 16, 3, 64))}, 0)

    half = 16 * 3 * 64 * 2
    assert found == [
        [Plane(4096, half, half, BLOCKS, 0), Plane(4096 + BLOCKS * half, half, half, BLOCKS, 0)]
    ]


def test_should_take_a_block_that_kernels_cut_into_parts() -> None:
    found, _ = planes(FULL, ONE, {"layer.0": Tensor((BLOCKS * 4, 3, 16, 128))}, 0)

    size = 4 * 3 * 16 * 128 * 2
    assert found == [[Plane(4096, size, size, BLOCKS, 0)]]


def test_should_join_layers_that_make_one_run_of_a_block() -> None:
    both = config(group(FullAttentionSpec(block_size=16), "layer.0", "layer.1"))
    page = 3 * 16 * 128
    strides = (2 * page, 16 * 128, 128, 1)
    found, _ = planes(
        FULL,
        both,
        {
            "layer.0": Tensor((BLOCKS, 3, 16, 128), strides),
            "layer.1": Tensor((BLOCKS, 3, 16, 128), strides, 4096 + page * 2),
        },
        0,
    )

    assert found == [[Plane(4096, page * 4, page * 4, BLOCKS, 0)]]


def test_should_not_join_planes_of_different_tables() -> None:
    apart = [Plane(0, 64, 32, 4, 0), Plane(32, 64, 32, 4, 1)]

    assert merge(apart) == apart


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (Tensor((7, 3, 16, 128)), "no dimension"),
        (Tensor((BLOCKS, 3, 16, 128), (3 * 16 * 256, 16 * 256, 256, 1)), "not one run"),
    ],
)
def test_should_refuse_memory_that_it_cannot_copy(tensor: Tensor, word: str) -> None:
    with pytest.raises(Unsupported, match=word):
        planes(FULL, ONE, {"layer.0": tensor}, 0)


def test_should_refuse_memory_of_a_device() -> None:
    tensor = Tensor((BLOCKS, 3, 16, 128))
    tensor.device = SimpleNamespace(type="cuda")

    with pytest.raises(Unsupported, match="cuda device"):
        planes(FULL, ONE, {"layer.0": tensor}, 0)


def test_should_refuse_a_layer_without_a_tensor() -> None:
    with pytest.raises(Unsupported, match=r"layer\.0"):
        planes(FULL, ONE, {}, 0)


def test_should_make_the_groups_that_all_workers_agree_on() -> None:
    workers = [Geometry(1, ("full:0:x",), (64,)), Geometry(0, ("full:0:x",), (64,))]

    assert agree(FULL, workers) == ([Group("full", 64, 0)], "full:0:x")


def test_should_refuse_workers_that_are_missing_or_see_other_groups() -> None:
    with pytest.raises(Unsupported, match="no worker"):
        agree(FULL, [])
    with pytest.raises(Unsupported, match=r"ranks \[0, 2\]"):
        agree(FULL, [Geometry(0, ("x",), (64,)), Geometry(2, ("x",), (64,))])
    with pytest.raises(Unsupported, match="different KV cache groups"):
        agree(FULL, [Geometry(0, ("x",), (64, 64))])
