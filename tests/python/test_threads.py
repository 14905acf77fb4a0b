# SPDX-License-Identifier: Apache-2.0
"""Threads: calls that wait let others run, and a channel takes one thread at a time."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import harness
import kvpool
import pytest
from harness import keys


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


@pytest.fixture
def no_switching() -> Iterator[None]:
    """A thread goes on until it gives the GIL up by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    yield
    sys.setswitchinterval(before)


def start_wait(
    executor: ThreadPoolExecutor, channel: kvpool.Channel, layout: kvpool.Layout, key: bytes
) -> "Future[str]":
    """Another thread waits for a key; without switching, this one goes on once that is in C."""
    entering = threading.Event()

    def wait() -> str:
        entering.set()
        return channel.wait(layout, 0, key, harness.PATIENCE)

    waiting = executor.submit(wait)
    entering.wait()
    return waiting


@pytest.mark.usefixtures("no_switching")
def test_should_let_other_threads_run_while_one_waits(
    executor: ThreadPoolExecutor,
    pool: kvpool.Pool,
    channel: kvpool.Channel,
    layout: kvpool.Layout,
) -> None:
    blocks = channel.reserve(layout, 0, keys(1, 0, 1))
    waiting = start_wait(executor, pool.channel(), layout, keys(1, 0, 1))
    # Were the GIL kept, this would come after the wait had timed out.
    assert channel.commit(blocks) == 1
    assert waiting.result() == "ready"


@pytest.mark.usefixtures("no_switching")
def test_should_refuse_a_second_thread_in_one_channel(
    executor: ThreadPoolExecutor,
    daemon: harness.Daemon,
    pool: kvpool.Pool,
    channel: kvpool.Channel,
    layout: kvpool.Layout,
) -> None:
    blocks = channel.reserve(layout, 0, keys(2, 0, 1))
    busy = pool.channel()
    waiting = start_wait(executor, busy, layout, keys(2, 0, 1))
    with pytest.raises(RuntimeError, match="another thread"):
        busy.match(layout, keys(2, 0, 1))
    daemon.until("service.waits", 1)
    assert channel.abort(blocks) == 1
    assert waiting.result() == "abandoned"
    assert busy.match(layout, keys(2, 0, 1)).blocks == 0


@pytest.mark.usefixtures("no_switching")
def test_should_wait_for_calls_before_it_closes(
    executor: ThreadPoolExecutor, daemon: harness.Daemon, channel: kvpool.Channel
) -> None:
    pool = kvpool.Pool(socket=daemon.socket, deadline=2.0, require=True)
    layout = harness.make_layout(pool)
    blocks = channel.reserve(harness.make_layout(channel._pool), 0, keys(3, 0, 1))
    waiting = start_wait(executor, pool.channel(), layout, keys(3, 0, 1))
    closing = executor.submit(pool.close)
    assert channel.commit(blocks) == 1
    assert waiting.result() == "ready"
    closing.result()
    with pytest.raises(ValueError, match="closed"):
        pool.channel()


def test_should_serve_many_threads_at_once(
    executor: ThreadPoolExecutor, pool: kvpool.Pool, layout: kvpool.Layout
) -> None:
    def work(chain: int) -> int:
        with pool.channel() as channel:
            for _ in range(20):
                harness.put(channel, layout, chain, 6)
                assert harness.get(channel, layout, chain, 6) == 6
                assert channel.forget(layout, 0, keys(chain, 0, 1)) == 6
                layout.keys(range(64))
        return chain

    assert list(executor.map(work, range(100, 108))) == list(range(100, 108))
