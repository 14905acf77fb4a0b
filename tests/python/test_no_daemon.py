# SPDX-License-Identifier: Apache-2.0
"""A pool without a daemon: everything misses, nothing breaks; and arguments that make no sense."""

import errno
import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import kvpool
import pytest


@pytest.fixture
def alone(folder: Path) -> Iterator[kvpool.Pool]:
    with kvpool.Pool(socket=str(folder / "none.sock")) as pool:
        yield pool


def test_should_miss_where_there_is_no_daemon(alone: kvpool.Pool) -> None:
    layout, channel = harness.make_layout(alone), alone.channel()
    key = harness.keys(1, 0, 1)
    assert not alone.attached
    for call in (
        lambda: channel.match(layout, key),
        lambda: channel.reserve(layout, 0, key),
        lambda: channel.wait(layout, 0, key, 0.001),
        lambda: channel.forget(layout, 0, key),
        alone.token,
    ):
        with pytest.raises(kvpool.NotConnected, match="no daemon") as caught:
            call()
        assert caught.value.errno == errno.ENOTCONN
    assert "none.sock" in alone.error
    assert channel.commit(kvpool.Blocks()) == 0


def test_should_name_the_socket_where_a_daemon_is_required(folder: Path) -> None:
    path = str(folder / "none.sock")
    with pytest.raises(kvpool.NotConnected, match=r"no daemon answers at '.*none\.sock'"):
        kvpool.Pool(socket=path, require=True)
    with pytest.raises(kvpool.Error) as caught:
        kvpool.Pool(socket="/" + "x" * 200)
    assert caught.value.errno == errno.ENAMETOOLONG


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"join": b"short"}, "join: 5 bytes"),
        ({"socket": "a\0b"}, "socket: .* NUL"),
        ({"deadline": -0.1}, "deadline: -0.1"),
        ({"deadline": math.nan}, "deadline: nan"),
        ({"spin": -1.0}, "spin: -1.0"),
    ],
)
def test_should_refuse_options_that_make_no_sense(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kvpool.Pool(**arguments)


@pytest.mark.parametrize("spin", [None, 0, 1e-12, 0.5, math.inf])
def test_should_take_every_way_to_spin(folder: Path, spin: float | None) -> None:
    with kvpool.Pool(socket=str(folder / "s"), spin=spin, deadline=math.inf) as pool:
        assert not pool.attached


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"groups": [kvpool.Group("half", 1)]}, ValueError, "group 0: kind 'half'"),
        ({"groups": [kvpool.Group("full", -1)]}, ValueError, "group 0: slot_bytes"),
        ({"groups": [kvpool.Group("window", 1, -1)]}, ValueError, "group 0: window"),
        ({"groups": []}, kvpool.Error, "group"),
        ({"block_tokens": -1}, ValueError, "block_tokens: -1"),
        ({"shards": 1 << 32}, ValueError, "shards"),
        ({"shards": 65}, kvpool.Error, "shard"),
        ({"model": "a\0b"}, ValueError, "model: .* NUL"),
        ({"label": "x" * 64}, kvpool.Error, "63 bytes"),
    ],
)
def test_should_refuse_a_layout_that_cannot_be(
    alone: kvpool.Pool, changes: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        harness.make_layout(alone, **changes)


def test_should_chain_keys_of_whole_blocks(alone: kvpool.Pool) -> None:
    layout = harness.make_layout(alone)
    tokens = list(range(3 * harness.TOKENS + 5))
    keys = layout.keys(tokens)
    assert len(keys) == 3 * 32
    assert layout.keys(tokens[: 2 * harness.TOKENS]) == keys[:64]
    assert layout.keys(tokens[2 * harness.TOKENS :], parent=keys[32:64]) == keys[64:]
    assert layout.keys(array("I", tokens)) == keys
    assert layout.keys(memoryview(array("I", tokens))) == keys
    assert layout.keys(tokens, salt=b"a") != keys
    assert layout.keys([]) == b""
    other = harness.make_layout(alone, model="other")
    assert other.fingerprint != layout.fingerprint
    assert other.keys(tokens) != keys


def test_should_refuse_tokens_that_are_no_tokens(alone: kvpool.Pool) -> None:
    layout = harness.make_layout(alone)
    with pytest.raises(TypeError, match="uint32, not of format 'q'"):
        layout.keys(array("q", [1] * 16))
    with pytest.raises(TypeError, match="uint32, not of format 'B'"):
        layout.keys(b"\1" * 64)
    with pytest.raises(ValueError, match="not C-contiguous"):
        layout.keys(memoryview(array("I", range(64)))[::2])
    with pytest.raises(ValueError, match="from 0 to 4294967295"):
        layout.keys([1, -1])
    with pytest.raises(ValueError, match="parent: 31 bytes"):
        layout.keys([1] * 16, parent=b"x" * 31)


def test_should_refuse_keys_of_a_wrong_length(alone: kvpool.Pool) -> None:
    layout, channel = harness.make_layout(alone), alone.channel()
    with pytest.raises(ValueError, match="33 bytes are not whole keys"):
        channel.match(layout, b"x" * 33)
    with pytest.raises(TypeError, match="bytes, not list"):
        channel.match(layout, [b"x" * 32])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="key: 64 bytes instead of one key"):
        channel.wait(layout, 0, b"x" * 64, 1.0)
    with pytest.raises(ValueError, match="parent: 0 bytes"):
        channel.reserve(layout, 0, b"", parent=b"")
    with pytest.raises(ValueError, match="skip: 2 of 1 keys"):
        channel.match(layout, b"x" * 32, skip=2)
    with pytest.raises(ValueError, match="group: -1"):
        channel.reserve(layout, -1, b"")
    with pytest.raises(ValueError, match="deadline: -1"):
        channel.match(layout, b"", deadline=-1)


def test_should_refuse_what_is_closed(folder: Path) -> None:
    pool = kvpool.Pool(socket=str(folder / "none.sock"))
    layout, channel, closed = harness.make_layout(pool), pool.channel(), pool.channel()
    closed.close()
    closed.close()
    with pytest.raises(ValueError, match="channel is closed"):
        closed.match(layout, b"")
    assert channel.match(layout, b"").blocks == 0
    pool.close()
    pool.close()
    channel.close()
    assert not pool.attached
    with pytest.raises(ValueError, match="channel is closed"):
        channel.match(layout, b"")
    for call in (pool.token, pool.channel, lambda: pool.error, lambda: layout.keys([1] * 16)):
        with pytest.raises(ValueError, match="pool is closed"):
            call()


def test_should_refuse_a_layout_of_another_pool(alone: kvpool.Pool, folder: Path) -> None:
    with kvpool.Pool(socket=str(folder / "other.sock")) as other:
        layout = harness.make_layout(other)
        with pytest.raises(ValueError, match="another pool"):
            alone.channel().match(layout, b"")


def test_should_end_well_in_any_order(folder: Path) -> None:
    pool = kvpool.Pool(socket=str(folder / "none.sock"))
    layout, channel = harness.make_layout(pool), pool.channel()
    del pool
    assert channel.match(layout, b"").blocks == 0
    del channel
    assert len(layout.fingerprint) == 32
