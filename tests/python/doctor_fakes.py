# SPDX-License-Identifier: Apache-2.0
"""Daemons that answer a client with whatever a test wants, and a /proc of a test's own.

A fake serves one connection in a thread of its own, which ends with the `with` block.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kvpool import doctor_handshake as handshake

EPOCH = 0x0123456789ABCDEF


def hello(least: int = 1, most: int = 1, magic: int = handshake.MAGIC) -> bytes:
    """A daemon's first message."""
    form = handshake.HELLO_FORMAT
    return form.pack(1, form.size, magic, least, most, 3, 4096, 64 << 20, EPOCH)


def welcome(domain: bytes = b"uid-7") -> bytes:
    """What a daemon says to a client that it takes."""
    form = handshake.WELCOME_FORMAT
    return form.pack(3, form.size, 1, 0, EPOCH, 1, 1, b"t" * 16, 16 << 20, 4 << 20, domain)


def refused(text: bytes) -> bytes:
    """What a daemon says to one that it does not take."""
    form = handshake.REFUSED_FORMAT
    return form.pack(4, form.size, 4, 1, 1, 0, text)


@contextlib.contextmanager
def fake_daemon(path: Path, *answers: bytes) -> Iterator[list[bytes]]:
    """Says the first answer to who connects, and each further one after a message of theirs.

    Gives the messages that came.
    """
    came: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as peer:
                for i, answer in enumerate(answers):
                    if i > 0:
                        came.append(peer.recv(512))
                    peer.send(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield came
        finally:
            # Ends an accept() that nobody came to.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextlib.contextmanager
def fake_admin(path: Path, answer: bytes) -> Iterator[None]:
    """Answers one request with these bytes, whatever it was."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as peer:
                peer.recv(4096)
                peer.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def http(body: bytes, status: str = "200 OK") -> bytes:
    """An HTTP answer."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def add_process(
    proc: Path, pid: int, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> None:
    """A process as /proc shows it."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in command))
    pairs = (f"{name}={value}".encode() + b"\0" for name, value in (environment or {}).items())
    (folder / "environ").write_bytes(b"".join(pairs))
