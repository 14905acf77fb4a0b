# SPDX-License-Identifier: Apache-2.0
"""Several processes, several lives of the daemon, and children of fork()."""

import errno
import os
from collections.abc import Callable

import harness
import kvpool
import pytest
from harness import SLOT, keys


def test_should_share_between_two_processes(
    daemon: harness.Daemon, channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    assert harness.put(channel, layout, 1, 8) == 8
    assert harness.run_peer(daemon.socket, "get", "1") == "8"
    assert harness.run_peer(daemon.socket, "get", "2") == "0"


def test_should_let_a_member_write_what_another_reserved(
    daemon: harness.Daemon, pool: kvpool.Pool, channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    blocks = channel.reserve(layout, 0, keys(9, 0, 3))
    written = harness.run_peer(daemon.socket, "write", pool.token().hex(), blocks.raw.hex())
    assert written == "3"
    assert harness.get(channel, layout, 9, 3) == 3


def test_should_refuse_a_stranger_what_another_reserved(
    daemon: harness.Daemon, channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    blocks = channel.reserve(layout, 0, keys(3, 0, 1))
    with (
        kvpool.Pool(socket=daemon.socket, deadline=2.0) as stranger,
        pytest.raises(kvpool.Stale),
    ):
        stranger.channel().commit(blocks)
    assert channel.abort(blocks) == 1


def test_should_go_on_with_a_daemon_that_was_started_again(
    daemon: harness.Daemon, pool: kvpool.Pool, channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    assert harness.put(channel, layout, 4, 2) == 2
    match = channel.match(layout, keys(4, 0, 2))
    reserved = channel.reserve(layout, 0, keys(4, 2, 1), parent=keys(4, 1, 1))
    daemon.kill()
    with pytest.raises(kvpool.Error) as caught:
        channel.match(layout, keys(4, 0, 2))
    assert isinstance(caught.value, kvpool.NotConnected | kvpool.TimedOut)
    # What was leased is still mapped, but nobody vouches for it any more.
    with pytest.raises(kvpool.Stale):
        channel.load(layout, 0, match.of(0), 1, [bytearray(SLOT)])
    daemon.start()

    def answers() -> bool:
        try:
            return channel.match(layout, keys(4, 0, 2), lease=False).epoch != match.epoch
        except kvpool.NotConnected:
            return False

    harness.until(answers, "attached again")
    assert pool.attached
    with pytest.raises(kvpool.Stale):
        channel.commit(reserved)
    channel.release(match)
    with pytest.raises(kvpool.Stale):
        channel.store(layout, 0, reserved, 0, [b"x"])
    assert harness.get(channel, layout, 4, 2) == 0
    assert harness.put(channel, layout, 4, 2) == 2
    assert harness.get(channel, layout, 4, 2) == 2


def in_child(work: Callable[[], None]) -> None:
    """Runs it in a child of fork(), and fails the test where it fails there."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print("in the child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_should_tell_a_child_that_the_objects_are_not_its_own(
    daemon: harness.Daemon, pool: kvpool.Pool, channel: kvpool.Channel, layout: kvpool.Layout
) -> None:
    assert harness.put(channel, layout, 5, 1) == 1
    match = channel.match(layout, keys(5, 0, 1))

    def use_inherited() -> None:
        for call in (
            lambda: channel.match(layout, keys(5, 0, 1)),
            lambda: channel.reserve(layout, 0, keys(5, 1, 1)),
            lambda: channel.load(layout, 0, match.of(0), 0, [bytearray(SLOT)]),
            lambda: layout.keys([1] * 16),
            pool.token,
            pool.channel,
        ):
            with pytest.raises(kvpool.Error, match=r"fork\(\)") as caught:
                call()
            assert caught.value.errno == errno.EOWNERDEAD
        assert not pool.attached
        channel.release(match)
        channel.close()
        pool.close()
        with kvpool.Pool(socket=daemon.socket, deadline=2.0, require=True) as own:
            assert harness.get(own.channel(), harness.make_layout(own), 5, 1) == 1

    in_child(use_inherited)
    daemon.until("accounting.leases", 1)
    channel.release(match)
    assert harness.get(channel, layout, 5, 1) == 1
