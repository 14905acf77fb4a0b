# SPDX-License-Identifier: Apache-2.0
"""What calls raise when they fail: an errno and the library's sentence about it.

Every failure is a miss: the engine computes, as if the pool were not there.
"""

import errno
import os


class Error(OSError):
    """A call of the library failed: `errno`, and `strerror` with the library's sentence.

    Subclasses exist for the errors that callers tell apart; all others are plain: EINVAL, E2BIG,
    EACCES, EDQUOT, ENOMEM, EPROTO, and EOWNERDEAD for an object that came through fork().
    """


class NotConnected(Error):
    """ENOTCONN: no daemon, or it went away. The library attaches again by itself."""


class TimedOut(Error):
    """ETIMEDOUT: the deadline passed."""


class Stale(Error):
    """ESTALE: a lease, block or layout of a client's life that is over; and while no daemon is
    there, nobody says what its blocks hold."""


class NoSpace(Error):
    """ENOSPC: no place for a block."""


_KINDS = {
    errno.ENOTCONN: NotConnected,
    errno.ETIMEDOUT: TimedOut,
    errno.ESTALE: Stale,
    errno.ENOSPC: NoSpace,
}


def make_error(code: int, text: str = "") -> Error:
    """The exception for a negative errno, with the system's sentence where there is no other."""
    return _KINDS.get(-code, Error)(-code, text or os.strerror(-code))


def make_forked_error() -> Error:
    """The exception for an object that was inherited through fork()."""
    return Error(errno.EOWNERDEAD, "the handle was inherited through fork(): open an own one")
