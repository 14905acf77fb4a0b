# SPDX-License-Identifier: Apache-2.0
"""What a user may set; every value has a default that needs no thought.

Read once in each process, from the connector's extra configuration and the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

_FALSE = ("", "0", "no", "off", "false")


def disabled_by_environment(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether ``KVPOOL_DISABLE`` is set to anything but 0, no, off, false or nothing."""
    return environment.get("KVPOOL_DISABLE", "").strip().lower() not in _FALSE


@dataclass(frozen=True)
class Settings:
    """Times in seconds. See :meth:`read` for where they come from."""

    socket: str | None = None  # None: where libkvpool looks
    deadline: float = 0.2  # of one call to the daemon; a busy host may be slow to wake it
    wait: float = 10.0  # most that a request waits for a prefix that another engine computes
    identify: float = 10.0  # most that a request waits until its adapter is identified
    decline: bool = True  # decline a hit that is slower to copy than to compute
    checksum: bool = False  # store a checksum with each block, and compare it before a load
    share: bool = True  # False: a private layout, the pool as this engine's own second cache

    @classmethod
    def read(cls, extra: Mapping[str, object]) -> tuple[Settings, list[str]]:
        """Takes ``kvpool_<name>`` from `extra`; returns the settings and what was refused, each a
        sentence. What is refused keeps its default."""
        values: dict[str, object] = {}
        refused = []
        known = {f.name: f.default for f in fields(cls)}
        for key, value in extra.items():
            if not key.startswith("kvpool_"):
                continue
            name = key.removeprefix("kvpool_")
            if name not in known:
                refused.append(f"{key}: no such setting; known: {', '.join(sorted(known))}")
                continue
            problem = _problem(name, known[name], value)
            if problem:
                refused.append(f"{key}: {problem}")
                continue
            values[name] = value
        return cls(**values), refused  # type: ignore[arg-type]


def _problem(name: str, default: object, value: object) -> str | None:
    if name == "socket":
        return None if isinstance(value, str) and value else f"{value!r} is not a path"
    if isinstance(default, bool):
        return None if isinstance(value, bool) else f"{value!r} is neither true nor false"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{value!r} is not a number of seconds"
    if not 0 < value <= 3600:
        return f"{value!r} is not in 0 to 3600 seconds"
    return None
