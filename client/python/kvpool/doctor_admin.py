# SPDX-License-Identifier: Apache-2.0
"""Reads documents from a daemon's admin socket: HTTP and JSON over a Unix socket.

One thread; at most `timeout` seconds a document.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from typing import Any

_ANSWER_BYTES_MAX = 64 << 20
_SUFFIX = ".sock"


class Unreadable(Exception):
    """No answer from the admin socket; the sentence says why."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def beside(data: str) -> str:
    """Where the admin socket of a daemon is, by its data socket, unless it was told otherwise."""
    named = os.environ.get("KVPOOL_ADMIN_SOCKET")
    if named:
        return named
    folder, name = os.path.split(data)
    stem = name.removesuffix(_SUFFIX) or name
    return os.path.join(folder, "admin.sock" if stem == "kvpool" else f"{stem}-admin.sock")


def get(path: str, resource: str, *, timeout: float = 2.0) -> dict[str, Any]:
    """The document of `resource`, as /v1/status. Raises Unreadable."""
    connection = _UnixConnection(path, timeout)
    try:
        connection.request("GET", resource)
        response = connection.getresponse()
        body = response.read(_ANSWER_BYTES_MAX)
        if response.status != http.client.OK:
            raise Unreadable(f"{path}: {response.status} {response.reason}")
        document = json.loads(body)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from None
    except (http.client.HTTPException, ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: not the answer of a kvpoold: {error}") from None
    finally:
        connection.close()
    if not isinstance(document, dict):
        raise Unreadable(f"{path}: not the answer of a kvpoold: not an object")
    return document


def field(document: Any, *names: str, default: Any = None) -> Any:
    """A member at a path of names; `default` where there is none, as with an older daemon."""
    for name in names:
        if not isinstance(document, dict) or name not in document:
            return default
        document = document[name]
    return document


def count(document: Any, *names: str) -> int:
    """A number at a path of names; 0 where there is none."""
    value = field(document, *names, default=0)
    return int(value) if isinstance(value, (int, float)) else 0
