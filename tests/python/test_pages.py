# SPDX-License-Identifier: Apache-2.0
"""Paged copies between blocks and an engine's memory, with buffers of Python alone."""

import ctypes
import errno
from array import array

import harness
import kvpool
import pytest
from harness import SLOT, content, keys

PAGES = 9
BYTES = 1024


class Memory:
    """An engine's: four planes of PAGES pages, a gap behind each page; planes 2, 3 by table 1."""

    def __init__(self, fill: bytes) -> None:
        self.stride = BYTES + 64
        self.bytes = bytearray(fill * (4 * PAGES * self.stride))
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))
        self.planes = kvpool.Planes(
            [
                kvpool.Plane(start + i * PAGES * self.stride, self.stride, BYTES, PAGES, i // 2)
                for i in range(4)
            ]
        )

    def place(self, plane: int, page: int) -> slice:
        start = (plane * PAGES + page) * self.stride
        return slice(start, start + BYTES)


# Of blocks 0, 1, 2: in table 0, then in table 1.
NUMBERS = array("I", [3, 0, 8, 1, 5, 2])


def test_should_bring_pages_from_one_engine_to_another(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    ours, theirs, expected = Memory(b"\1"), Memory(b"\2"), Memory(b"\2")
    for i in range(3):
        for plane in range(4):
            part = content(1, i)[plane * BYTES : (plane + 1) * BYTES]
            page = NUMBERS[(plane // 2) * 3 + i]
            ours.bytes[ours.place(plane, page)] = part
            expected.bytes[expected.place(plane, page)] = part
    blocks = channel.reserve(layout, 0, keys(1, 0, 3))
    channel.store_pages(layout, 0, blocks, ours.planes, NUMBERS)
    assert channel.commit(blocks) == 3
    assert harness.get(channel, layout, 1, 3) == 3
    match = channel.match(layout, keys(1, 0, 3))
    channel.load_pages(layout, 0, match.of(0), theirs.planes, memoryview(NUMBERS))
    channel.release(match)
    assert theirs.bytes == expected.bytes


def test_should_find_a_flipped_bit_in_what_came_with_a_checksum(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    blocks = channel.reserve(layout, 0, keys(1, 0, 3))
    for i in range(3):
        channel.store(layout, 0, blocks, i, [content(1, i)])
    bytes_ = channel.view(layout, 0, blocks, 1)
    assert channel.commit_checksum(layout, 0, blocks) == 3
    match = channel.match(layout, keys(1, 0, 3))
    assert channel.verify(layout, 0, match.of(0)) == 0
    bytes_[100] ^= 1
    assert channel.verify(layout, 0, match.of(0)) == 1
    channel.release(match)
    assert harness.get(channel, layout, 1, 3) == 1


def test_should_pass_over_blocks_that_were_not_granted(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    memory = Memory(b"\3")
    assert harness.put(channel, layout, 2, 1) == 1
    blocks = channel.reserve(layout, 0, keys(2, 0, 3))
    assert not blocks.granted(0)
    channel.store_pages(layout, 0, blocks, memory.planes, NUMBERS)
    with pytest.raises(kvpool.Error, match="block 0 was not granted"):
        channel.load_pages(layout, 0, blocks, memory.planes, NUMBERS)
    assert channel.commit(blocks) == 2
    assert harness.get(channel, layout, 2, 1) == 1
    channel.store_pages(layout, 0, kvpool.Blocks(), memory.planes, array("I"))


def test_should_refuse_a_page_that_is_not_there_before_a_byte_moves(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    memory = Memory(b"\4")
    before = bytes(memory.bytes)
    blocks = channel.reserve(layout, 0, keys(3, 0, 3))
    for i in range(3):
        channel.store(layout, 0, blocks, i, [bytes(SLOT)])
    beyond = array("I", [3, 0, 8, 1, 5, PAGES])
    with pytest.raises(kvpool.Error, match="page 9 of block 2: plane 2 has 9 pages") as caught:
        channel.load_pages(layout, 0, blocks, memory.planes, beyond)
    assert caught.value.errno == errno.EINVAL
    assert memory.bytes == before
    with pytest.raises(kvpool.Error, match="page 9 of block 2"):
        channel.store_pages(layout, 0, blocks, memory.planes, beyond)
    for i in range(3):
        assert channel.view(layout, 0, blocks, i) == bytes(SLOT)
    assert channel.abort(blocks) == 3


def test_should_refuse_page_numbers_of_another_kind(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    memory = Memory(b"\5")
    blocks = channel.reserve(layout, 0, keys(4, 0, 3))
    with pytest.raises(ValueError, match="pages: 5 numbers, not 2 tables of 3 blocks"):
        channel.store_pages(layout, 0, blocks, memory.planes, NUMBERS[:5])
    with pytest.raises(TypeError, match="uint32, not of format 'q'"):
        channel.store_pages(layout, 0, blocks, memory.planes, array("q", NUMBERS))
    with pytest.raises(TypeError):
        channel.store_pages(layout, 0, blocks, memory.planes, [3, 0, 8, 1, 5, 2])  # type: ignore[arg-type]
    assert channel.abort(blocks) == 3
