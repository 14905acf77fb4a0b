# SPDX-License-Identifier: Apache-2.0
"""A kvpoold for each test that asks for one, from the build folder $KVPOOL_BUILD."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import harness
import kvpool
import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """For sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="kvpool-test-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def daemon(folder: Path) -> Iterator[harness.Daemon]:
    binary = Path(os.environ.get("KVPOOL_BUILD", "")).resolve() / "daemon" / "kvpoold"
    if not os.access(binary, os.X_OK):
        pytest.fail(f"KVPOOL_BUILD names no build folder with a daemon: {binary} is not there")
    with harness.running(binary, folder) as daemon:
        yield daemon


@pytest.fixture
def pool(daemon: harness.Daemon) -> Iterator[kvpool.Pool]:
    """A client of the daemon that is patient, for a machine with other things to do."""
    with kvpool.Pool(socket=daemon.socket, name="test", deadline=2.0, require=True) as pool:
        yield pool


@pytest.fixture
def layout(pool: kvpool.Pool) -> kvpool.Layout:
    return harness.make_layout(pool)


@pytest.fixture
def channel(pool: kvpool.Pool) -> kvpool.Channel:
    return pool.channel()
