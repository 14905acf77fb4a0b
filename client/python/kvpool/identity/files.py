# SPDX-License-Identifier: Apache-2.0
"""Files as identification reads them: regular, unchanged while read, never written or mapped.

A File belongs to who opened it. Reading is by pread, so a file that shrinks meanwhile is an error
and not a signal. Symbolic links are followed: the Hugging Face cache is made of them.
"""

from __future__ import annotations

import os
import stat
from types import TracebackType

from kvpool.identity.result import Unidentified

Stamp = tuple[int, int, int, int, int]


def printable(path: str) -> str:
    """A path as it can be written anywhere: bytes that are no text become escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _stamp(status: os.stat_result) -> Stamp:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def resolve(path: str | os.PathLike[str]) -> str:
    """A path without links, the same for all ways to one place."""
    name = os.fsdecode(path)
    try:
        return os.path.realpath(name)
    except (OSError, ValueError) as error:
        raise Unidentified(f"{printable(name)}: {_why(error)}") from None


class File:
    """A regular file open for reading.

    `path` as given, `size` in bytes at opening, `bytes_read` so far. Leaving its `with` block
    checks that the file is still what it was at opening.
    """

    def __init__(self, path: str) -> None:
        self.path = printable(path)
        self.bytes_read = 0
        try:
            # A FIFO under a weight file's name must not hold the engine's start up.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise Unidentified(f"{self.path}: {_why(error)}") from None
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                raise Unidentified(f"{self.path}: not a regular file")
        except BaseException:
            os.close(self._fd)
            raise
        self.size = status.st_size
        self._stamp = _stamp(status)

    def __enter__(self) -> File:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            changed = _stamp(os.fstat(self._fd)) != self._stamp
        finally:
            os.close(self._fd)
        if changed and error is None:
            raise Unidentified(f"{self.path}: changed while it was read")

    def read(self, offset: int, n: int) -> bytes:
        """Exactly `n` bytes at `offset`. Unidentified where the file has not as many."""
        parts: list[bytes] = []
        while n > 0:
            try:
                part = os.pread(self._fd, n, offset)
            except (OSError, OverflowError) as error:
                raise Unidentified(f"{self.path}: {_why(error)}") from None
            if not part:
                raise Unidentified(f"{self.path}: truncated: nothing at byte {offset}")
            self.bytes_read += len(part)
            parts.append(part)
            offset += len(part)
            n -= len(part)
        return b"".join(parts)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def whole(path: str, limit: int) -> bytes:
    """The bytes of a small file. Unidentified where it is longer than `limit` bytes."""
    with File(path) as file:
        if file.size > limit:
            raise Unidentified(f"{file.path}: {file.size} bytes; at most {limit} are read")
        return file.read(0, file.size)


def names(folder: str) -> list[str]:
    """Names in a folder, sorted by their bytes, without hidden ones."""
    try:
        found = os.listdir(folder)
    except (OSError, ValueError) as error:
        raise Unidentified(f"{printable(folder)}: {_why(error)}") from None
    return sorted((name for name in found if not name.startswith(".")), key=os.fsencode)


def survey(path: str) -> tuple[tuple[str, Stamp], ...]:
    """The state of a file, or of all that lies in a folder: equal as long as nothing changed."""
    entries = [("", path)]
    if os.path.isdir(path):
        entries += [(name, os.path.join(path, name)) for name in names(path)]
    out: list[tuple[str, Stamp]] = []
    for name, entry in entries:
        try:
            out.append((name, _stamp(os.stat(entry))))
        except FileNotFoundError:
            # A link to nowhere. Whoever needs the file says so.
            continue
        except (OSError, ValueError) as error:
            raise Unidentified(f"{printable(entry)}: {_why(error)}") from None
    return tuple(out)
