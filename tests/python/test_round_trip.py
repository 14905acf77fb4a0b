# SPDX-License-Identifier: Apache-2.0
"""What one engine writes is what another reads: single calls against a real daemon."""

import errno
import struct

import harness
import kvpool
import pytest
from harness import SLOT, content, keys
from kvpool import ReserveCode


def test_should_find_what_was_stored_and_nothing_else(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    assert harness.put(channel, layout, 1, 5) == 5
    assert harness.get(channel, layout, 1, 8) == 5
    assert harness.get(channel, layout, 2, 8) == 0
    assert harness.put(channel, layout, 1, 5) == 0


def test_should_gather_and_scatter_pieces_of_any_buffer(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    whole = content(3, 0)
    blocks = channel.reserve(layout, 0, keys(3, 0, 1))
    pieces = [whole[:7], bytearray(whole[7:100]), memoryview(whole)[100:]]
    channel.store(layout, 0, blocks, 0, pieces)
    first, rest = bytearray(1000), bytearray(SLOT - 1000)
    channel.load(layout, 0, blocks, 0, [first, memoryview(rest)])
    assert first + rest == whole
    first.extend(b"not borrowed any more")
    assert channel.abort(blocks) == 1


def test_should_refuse_buffers_that_do_not_fit(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    blocks = channel.reserve(layout, 0, keys(4, 0, 1))
    with pytest.raises(kvpool.Error, match="more than a slot") as caught:
        channel.store(layout, 0, blocks, 0, [bytes(SLOT), b"x"])
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(kvpool.Error, match="more than a slot"):
        channel.load(layout, 0, blocks, 0, [bytearray(SLOT + 1)])
    with pytest.raises((TypeError, BufferError, ValueError)):
        channel.load(layout, 0, blocks, 0, [bytes(SLOT)])
    with pytest.raises((TypeError, BufferError, ValueError)):
        channel.store(layout, 0, blocks, 0, [memoryview(bytes(SLOT))[::2]])
    with pytest.raises(IndexError, match="block 1 of 1"):
        channel.store(layout, 0, blocks, 1, [b"x"])
    with pytest.raises(kvpool.Error, match="layout, group, shard or block"):
        channel.store(layout, 0, blocks, 0, [b"x"], shard=1)
    assert channel.abort(blocks) == 1


def test_should_show_a_block_without_a_copy(
    daemon: harness.Daemon, channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    blocks = channel.reserve(layout, 0, keys(5, 0, 1))
    view = channel.view(layout, 0, blocks, 0)
    assert (len(view), view.readonly) == (SLOT, False)
    view[:] = content(5, 0)
    assert channel.commit(blocks) == 1
    assert harness.get(channel, layout, 5, 1) == 1
    with kvpool.Pool(socket=daemon.socket, read_only=True, deadline=2.0) as reader:
        theirs, other = reader.channel(), harness.make_layout(reader)
        match = theirs.match(other, keys(5, 0, 1))
        view = theirs.view(other, 0, match.of(0), 0)
        assert view.readonly
        assert view == content(5, 0)
        theirs.release(match)


def test_should_refuse_a_write_by_a_reader(
    daemon: harness.Daemon, channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    assert harness.put(channel, layout, 6, 1) == 1
    with kvpool.Pool(socket=daemon.socket, read_only=True, deadline=2.0) as reader:
        theirs, other = reader.channel(), harness.make_layout(reader)
        match = theirs.match(other, keys(6, 0, 1))
        with pytest.raises(kvpool.Error) as caught:
            theirs.store(other, 0, match.of(0), 0, [b"x"])
        assert caught.value.errno == errno.EACCES
        with pytest.raises(kvpool.Error, match="may only read") as caught:
            theirs.reserve(other, 0, keys(6, 0, 2))
        assert caught.value.errno == errno.EACCES
        theirs.release(match)
    assert harness.get(channel, layout, 6, 1) == 1


def test_should_hold_what_is_leased_and_no_more(
    daemon: harness.Daemon, channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    assert harness.put(channel, layout, 7, 4) == 4
    looked = channel.match(layout, keys(7, 0, 4), lease=False)
    assert (looked.blocks, looked.lease) == (4, 0)
    daemon.until("accounting.leases", 0)
    match = channel.match(layout, keys(7, 0, 4), skip=3)
    assert (match.blocks, match.reported, match.range(0)) == (4, 1, (3, 1))
    assert match.lease != 0
    daemon.until("accounting.leases", 1)
    channel.release(match, keep=2)
    channel.release(match)
    channel.release(looked)
    daemon.until("accounting.leases", 0)
    with pytest.raises(IndexError, match="group 1 of 1"):
        match.of(1)


def test_should_count_what_is_being_written(channel: kvpool.Channel, layout: kvpool.Layout) -> None:
    assert harness.put(channel, layout, 8, 2) == 2
    blocks = channel.reserve(layout, 0, keys(8, 2, 3), parent=keys(8, 1, 1))
    match = channel.match(layout, keys(8, 0, 6), pending=True, lease=False)
    assert (match.blocks, match.pending) == (2, 3)
    assert channel.abort(blocks) == 3
    assert channel.match(layout, keys(8, 0, 6), pending=True, lease=False).pending == 0


def test_should_say_why_a_block_was_not_granted(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    assert harness.put(channel, layout, 10, 1) == 1
    blocks = channel.reserve(layout, 0, keys(10, 0, 2))
    assert [blocks.code(i) for i in range(2)] == [ReserveCode.EXISTS, 0]
    again = channel.reserve(layout, 0, keys(10, 1, 1), parent=keys(10, 0, 1))
    assert again.code(0) == ReserveCode.BUSY
    orphan = channel.reserve(layout, 0, keys(10, 4, 1), parent=keys(10, 3, 1))
    assert orphan.code(0) == ReserveCode.NO_PARENT
    assert channel.abort(blocks) == 1
    with pytest.raises(kvpool.Stale):
        channel.commit(blocks)


def test_should_say_who_holds_a_full_pool(pool: kvpool.Pool, channel: kvpool.Channel) -> None:
    large = harness.make_layout(pool, groups=[kvpool.Group("full", 1 << 20)])
    blocks = channel.reserve(large, 0, keys(11, 0, 100))
    refused = [i for i in range(100) if not blocks.granted(i)]
    assert 0 < len(refused) < 100
    assert blocks.code(refused[0]) == ReserveCode.NO_SPACE
    assert {blocks.code(i) for i in refused[1:]} <= {ReserveCode.NO_SPACE, ReserveCode.NO_PARENT}
    assert channel.no_space_text != "no error"
    assert channel.abort(blocks) == 100 - len(refused)


def test_should_make_a_block_ready_with_its_last_shard(
    pool: kvpool.Pool, channel: kvpool.Channel
) -> None:
    halves = harness.make_layout(pool, shards=2)
    blocks = channel.reserve(halves, 0, keys(12, 0, 1))
    for shard in range(2):
        channel.store(halves, 0, blocks, 0, [content(12, shard)], shard=shard)
        assert channel.match(halves, keys(12, 0, 1), lease=False).blocks == 0
        assert channel.commit(blocks, shard=shard) == 1
    match = channel.match(halves, keys(12, 0, 1))
    for shard in range(2):
        assert channel.view(halves, 0, match.of(0), 0, shard=shard) == content(12, shard)
    channel.release(match)


def test_should_match_windows_beside_full_groups(
    pool: kvpool.Pool, channel: kvpool.Channel
) -> None:
    groups = [kvpool.Group("full", SLOT), kvpool.Group("window", 512, window=32)]
    hybrid = harness.make_layout(pool, groups=groups)
    for group in range(2):
        blocks = channel.reserve(hybrid, group, keys(13, 0, 6))
        for i in range(6):
            channel.store(hybrid, group, blocks, i, [struct.pack("=II", group, i)])
        assert channel.commit(blocks) == 6
    match = channel.match(hybrid, keys(13, 0, 6))
    assert (match.blocks, match.n_groups, match.range(0)) == (6, 2, (0, 6))
    first, count = match.range(1)
    assert first > 0
    assert first + count == 6
    assert match.reported == 6 + count
    for group in range(2):
        first, count = match.range(group)
        assert len(match.of(group)) == count
        for i in range(count):
            view = channel.view(hybrid, group, match.of(group), i)
            assert view[:8] == struct.pack("=II", group, first + i)
    channel.release(match)


def test_should_drop_what_is_not_true_any_more(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    assert harness.put(channel, layout, 14, 4) == 4
    assert channel.forget(layout, 0, b"") == 0
    assert channel.forget(layout, 0, keys(14, 2, 1)) == 2
    assert harness.get(channel, layout, 14, 4) == 2
    assert harness.put(channel, layout, 15, 1) == 1
    assert channel.forget(layout, 0) == 3
    assert harness.get(channel, layout, 15, 1) == 0


def test_should_name_the_arena_where_a_list_is_too_long(daemon: harness.Daemon) -> None:
    with kvpool.Pool(socket=daemon.socket, arena_bytes=65536, deadline=2.0) as small:
        layout, channel = harness.make_layout(small), small.channel()
        with pytest.raises(kvpool.Error, match="arena") as caught:
            channel.match(layout, keys(16, 0, 4096))
        assert caught.value.errno == errno.E2BIG


def test_should_answer_a_wait_at_once_where_it_can(
    channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    assert harness.put(channel, layout, 17, 1) == 1
    assert channel.wait(layout, 0, keys(17, 0, 1), 20.0) == "ready"
    assert channel.wait(layout, 0, keys(17, 1, 1), 20.0) == "absent"
    blocks = channel.reserve(layout, 0, keys(17, 1, 1))
    assert channel.wait(layout, 0, keys(17, 1, 1), 0.001) == "timeout"
    assert channel.abort(blocks) == 1
    with pytest.raises(kvpool.Error, match="wait: group or key"):
        channel.wait(layout, 1, keys(17, 1, 1), 0.001)


def test_should_give_the_token_of_an_attached_pool(pool: kvpool.Pool) -> None:
    assert pool.attached
    assert len(pool.token()) == 16
    assert pool.token() == pool.token()
