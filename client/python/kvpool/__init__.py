# SPDX-License-Identifier: Apache-2.0
"""kvpool: find, read and fill the KV cache blocks that the processes of one host share.

A `Pool` is a process's membership of one client (an engine); a `Channel` is one thread's way to the
daemon. Open the first once, one of the second in each thread. Every failure is an `Error` and a
miss: the engine computes, as if the pool were not there.

Names are looked up when they are first used, so that what needs no library (identity, the doctor)
works where it was not built, and a process that uses nothing of it loads nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvpool.blocks import Blocks, ReserveCode
    from kvpool.channel import Channel
    from kvpool.errors import Error, NoSpace, NotConnected, Stale, TimedOut
    from kvpool.layout import Group, Layout
    from kvpool.match import Match
    from kvpool.planes import Plane, Planes
    from kvpool.pool import Pool
    from kvpool.versions import __version__, version

__all__ = [
    "Pool",
    "Channel",
    "Layout",
    "Group",
    "Blocks",
    "ReserveCode",
    "Match",
    "Plane",
    "Planes",
    "Error",
    "NotConnected",
    "TimedOut",
    "Stale",
    "NoSpace",
    "version",
    "__version__",
]

_HOMES = {
    "Pool": "pool",
    "Channel": "channel",
    "Layout": "layout",
    "Group": "layout",
    "Blocks": "blocks",
    "ReserveCode": "blocks",
    "Match": "match",
    "Plane": "planes",
    "Planes": "planes",
    "Error": "errors",
    "NotConnected": "errors",
    "TimedOut": "errors",
    "Stale": "errors",
    "NoSpace": "errors",
    "version": "versions",
    "__version__": "versions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
