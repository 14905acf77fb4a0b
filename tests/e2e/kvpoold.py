# SPDX-License-Identifier: Apache-2.0
"""A private kvpoold for a test: started in a folder of its own, killed, restarted, asked.

Owned by the test that made it; one thread.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

START_SECONDS = 30.0
STOP_SECONDS = 30.0


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Asks again and again until the condition holds. Raises AssertionError naming `what`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.002)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(10)
        self.sock.connect(str(self._path))


class Daemon:
    """kvpoold of the build in $KVPOOL_BUILD. start False: made, and not yet running."""

    def __init__(self, size: str = "2G", *arguments: str, start: bool = True) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kvpool-e2e-"))
        self.socket = self.folder / "kvpool.sock"
        self._log = self.folder / "log"
        program = Path(os.environ["KVPOOL_BUILD"]) / "daemon" / "kvpoold"
        self._command = [str(program), "--socket", str(self.socket), "--size", size]
        self._command += ["--populate", "no", *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        if start:
            self.start()

    def start(self) -> None:
        """Starts it, for the first time or again, and waits until it serves."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log, stdin=subprocess.DEVNULL)
        until(self._serves, START_SECONDS, "kvpoold serves")

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"kvpoold ended: {self.log_text()}"
        try:
            return self.status()["state"] == "serving"
        except (OSError, http.client.HTTPException):
            return False

    def status(self) -> dict[str, Any]:
        """What `kvpoolctl status --json` prints."""
        connection = _UnixConnection(self.folder / "admin.sock")
        try:
            connection.request("GET", "/v1/status")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def stored_bytes(self) -> int:
        """Bytes of the pool that finished blocks take."""
        return self.status()["accounting"]["bytes"]["ready"]

    def stored_blocks(self) -> int:
        """Finished blocks in the pool."""
        return self.status()["accounting"]["blocks"]["ready"]

    def reserved_blocks(self) -> int:
        """Blocks that somebody is writing."""
        return self.status()["accounting"]["blocks"]["reserved"]

    def matches(self) -> int:
        """Prompts that were looked up."""
        return self.status()["counters"]["matches"]

    def clients(self) -> int:
        """Attached clients, engines and their workers."""
        return self.status()["clients"]["attached_or_quarantined"]

    def log_text(self) -> str:
        """All that it has said, over all its lives."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: it is there and does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """SIGTERM; checks that it left as it should, and removes its folder."""
        process, self._process = self._process, None
        try:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(STOP_SECONDS) == 0, self.log_text()
        finally:
            if process is not None and process.poll() is None:
                process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
