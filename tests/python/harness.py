# SPDX-License-Identifier: Apache-2.0
"""A private kvpoold for one test, and a pool's client as these tests want it.

Owned by the test that made it; one thread.
"""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kvpool

TOKENS = 16
SLOT = 4096
POOL_BYTES = 64 << 20
UNDER = ["setpriv", "--pdeathsig", "KILL"]  # it goes with the test, however that ends
PATIENCE = 20.0  # seconds that anything may take before a test fails


def until(condition: Callable[[], bool], what: str) -> None:
    """Asks again and again, and fails the test where the answer never is yes."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"


def keys(chain: int, first: int, count: int) -> bytes:
    """The keys first to first + count - 1 of a chain."""
    return b"".join(
        chain.to_bytes(8, "little") + i.to_bytes(8, "little") + b"\x5a" * 16
        for i in range(first, first + count)
    )


def content(chain: int, i: int, size: int = SLOT) -> bytes:
    """Bytes that tell which key they belong to."""
    seed = (chain * 1009 + i) % 251
    return bytes((seed + j * 7) % 256 for j in range(256)) * (size // 256)


def make_layout(pool: kvpool.Pool, **changes: Any) -> kvpool.Layout:
    """A layout of one full group of one shard, but for what is named."""
    description: dict[str, Any] = {
        "engine": "test",
        "hash_algorithm": "none",
        "hash_seed": None,
        "model": "stamps",
        "revision": None,
        "dtype": "bytes",
        "order": "as they come",
        "label": "test",
        "block_tokens": TOKENS,
        "groups": [kvpool.Group("full", SLOT)],
    }
    return pool.layout(**(description | changes))


def put(channel: kvpool.Channel, layout: kvpool.Layout, chain: int, count: int) -> int:
    """Reserves, writes and commits the first keys of a chain. Returns how many were granted."""
    blocks = channel.reserve(layout, 0, keys(chain, 0, count))
    for i in range(count):
        if blocks.granted(i):
            channel.store(layout, 0, blocks, i, [content(chain, i)])
    return channel.commit(blocks)


def get(channel: kvpool.Channel, layout: kvpool.Layout, chain: int, count: int) -> int:
    """Matches, checks every byte and releases. Returns the length of the hit."""
    match = channel.match(layout, keys(chain, 0, count))
    blocks = match.of(0)
    for i in range(len(blocks)):
        found = bytearray(SLOT)
        channel.load(layout, 0, blocks, i, [found])
        assert found == content(chain, i)
    channel.release(match)
    return match.blocks


class Daemon:
    """One kvpoold with a socket in `folder`, which may be killed and started again."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary = binary
        self.folder = folder
        self.socket = str(folder / "kvpool.sock")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it says that it is ready, and its pool is whole: else space may be short."""
        assert self.process is None
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            path = self.folder / "notify.sock"
            path.unlink(missing_ok=True)
            notify.bind(str(path))
            notify.settimeout(PATIENCE)
            with open(self.folder / "stderr", "ab") as log:
                self.process = subprocess.Popen(
                    [*UNDER, str(self.binary), "--socket", self.socket, "--size", str(POOL_BYTES)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    env=os.environ | {"NOTIFY_SOCKET": str(path)},
                )
            try:
                while b"READY=1" not in notify.recv(4096):
                    pass
            except TimeoutError:
                self.kill()
                raise AssertionError(f"kvpoold did not start:\n{self.errors()}") from None
        self.until("pool.ready_bytes", POOL_BYTES)

    def kill(self) -> None:
        """As a crash would end it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """As a service manager would end it; fails the test where it does not end well."""
        if self.process is None:
            return
        self.process.terminate()
        status = self.process.wait(PATIENCE)
        self.process = None
        assert status == 0, f"kvpoold ended with {status}:\n{self.errors()}"

    def errors(self) -> str:
        """What it has written to stderr."""
        return (self.folder / "stderr").read_text(errors="replace")

    def number(self, path: str) -> int:
        """A number of its status page, by its path."""
        connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        connection.sock = socket.socket(socket.AF_UNIX)
        with contextlib.closing(connection):
            connection.sock.connect(str(self.folder / "admin.sock"))
            connection.request("GET", "/v1/status")
            found: Any = json.load(connection.getresponse())
        for name in path.split("."):
            found = found[name]
        return found

    def until(self, path: str, value: int) -> None:
        """Waits until a number of the status page is this one."""
        until(lambda: self.number(path) == value, f"{path} is {value}")


@contextlib.contextmanager
def running(binary: Path, folder: Path) -> Iterator[Daemon]:
    """A daemon for the time of a block."""
    daemon = Daemon(binary, folder)
    daemon.start()
    try:
        yield daemon
        daemon.stop()
    finally:
        daemon.kill()


def run_peer(*arguments: str) -> str:
    """Another process: what peer.py does with these arguments, and says."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "peer.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
