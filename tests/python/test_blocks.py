# SPDX-License-Identifier: Apache-2.0
"""Blocks and planes: what the objects do without a daemon."""

import pickle
import struct

import kvpool
import pytest


def record(block: int, generation: int = 7, epoch: int = 99) -> bytes:
    return struct.pack("=IIIIQ", block, generation, 3, 4, epoch)


@pytest.fixture
def blocks() -> kvpool.Blocks:
    """Granted, refused as there already, granted."""
    return kvpool.Blocks(record(5) + record(0, kvpool.ReserveCode.EXISTS) + record(6, epoch=100))


def test_should_tell_what_was_granted_and_why_not(blocks: kvpool.Blocks) -> None:
    assert len(blocks) == 3
    assert [blocks.granted(i) for i in range(3)] == [True, False, True]
    assert [blocks.code(i) for i in range(3)] == [0, kvpool.ReserveCode.EXISTS, 0]
    assert blocks.codes() == [0, kvpool.ReserveCode.EXISTS, 0]
    assert [blocks.epoch(i) for i in range(3)] == [99, 99, 100]
    assert blocks.granted(-1)


def test_should_be_cut_and_put_together(blocks: kvpool.Blocks) -> None:
    assert blocks[:1] + blocks[1:] == blocks
    assert blocks[::2].raw == record(5) + record(6, epoch=100)
    assert blocks[-1] == blocks[2:3]
    assert [b.code(0) for b in blocks] == [0, 9, 0]
    assert not blocks[3:]
    assert hash(blocks[:]) == hash(blocks)
    with pytest.raises(TypeError):
        blocks + blocks.raw  # type: ignore[operator]


def test_should_survive_pickling(blocks: kvpool.Blocks) -> None:
    again = pickle.loads(pickle.dumps(blocks))
    assert again == blocks
    assert again.raw == blocks.raw
    assert len(pickle.dumps(blocks)) < len(blocks.raw) + 100


def test_should_refuse_to_change(blocks: kvpool.Blocks) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        blocks.raw = b""
    with pytest.raises(AttributeError, match="immutable"):
        del blocks.raw
    source = bytearray(blocks.raw)
    copied = kvpool.Blocks(source)
    source[0] ^= 1
    assert copied == blocks


def test_should_refuse_bytes_that_are_no_records(blocks: kvpool.Blocks) -> None:
    with pytest.raises(ValueError, match="25 bytes are not whole records of 24"):
        kvpool.Blocks(record(1) + b"x")
    for index in (3, -4):
        with pytest.raises(IndexError, match="of 3"):
            blocks.granted(index)
        with pytest.raises(IndexError, match="of 3"):
            blocks[index]


def test_should_keep_planes_as_they_were_given() -> None:
    given = [kvpool.Plane(4096, 128, 100, 9), kvpool.Plane(8192, 64, 64, 4, table=2)]
    planes = kvpool.Planes(given)
    assert list(planes) == given
    assert (planes.block_bytes, planes.n_tables) == (164, 3)
    assert kvpool.Planes([]).n_tables == 0


@pytest.mark.parametrize(
    ("plane", "name"),
    [
        (kvpool.Plane(-1, 1, 1, 1), "address"),
        (kvpool.Plane(0, 1 << 64, 1, 1), "stride"),
        (kvpool.Plane(0, 1, -5, 1), "bytes"),
        (kvpool.Plane(0, 1, 1, 1 << 32), "n_pages"),
        (kvpool.Plane(0, 1, 1, 1, 0xFFFFFFFF), "table"),
    ],
)
def test_should_refuse_a_plane_that_c_has_no_room_for(plane: kvpool.Plane, name: str) -> None:
    with pytest.raises(ValueError, match=f"plane 1: {name}"):
        kvpool.Planes([kvpool.Plane(0, 1, 1, 1), plane])
