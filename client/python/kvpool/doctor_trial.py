# SPDX-License-Identifier: Apache-2.0
"""The doctor's trial: one client stores a block, another finds it and reads it back.

Uses the library as an engine does: two clients of this process, a layout that nobody else can
have, one block of 4 KiB, dropped afterwards. One thread; each call has its deadline.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from kvpool.doctor_report import Report

_DEADLINE = 2.0
_SLOT_BYTES = 4096
_TOKENS = list(range(16))


class _Failed(Exception):
    pass


def _layout(pool: Any, model: str) -> Any:
    from kvpool import Group

    return pool.layout(
        engine="kvpool doctor",
        hash_algorithm=None,
        hash_seed=None,
        model=model,
        revision=None,
        dtype="bytes",
        order="none",
        label="doctor's trial",
        block_tokens=len(_TOKENS),
        groups=[Group("full", _SLOT_BYTES)],
    )


def _store(pool: Any, model: str, content: bytes) -> tuple[Any, Any]:
    """The writer's channel and layout, with the block stored."""
    layout, channel = _layout(pool, model), pool.channel()
    blocks = channel.reserve(layout, 0, layout.keys(_TOKENS), deadline=_DEADLINE)
    if not blocks.granted(0):
        raise _Failed(f"no place for a block of {_SLOT_BYTES} bytes: {channel.no_space_text}")
    channel.store(layout, 0, blocks, 0, [content])
    channel.commit(blocks, deadline=_DEADLINE)
    return channel, layout


def _read(pool: Any, model: str, content: bytes) -> float:
    """Finds the block as another client; seconds of the lookup."""
    layout, channel = _layout(pool, model), pool.channel()
    keys = layout.keys(_TOKENS)
    began = time.perf_counter()
    match = channel.match(layout, keys, deadline=_DEADLINE)
    took = time.perf_counter() - began
    if match.blocks != 1:
        raise _Failed("a block that one client stored was not found by the other")
    read = bytearray(len(content))
    channel.load(layout, 0, match.of(0), 0, [read])
    channel.release(match)
    if bytes(read) != content:
        raise _Failed("a block was read back with other bytes than were stored")
    return took


def examine(report: Report, socket: str) -> None:
    """Adds the section `trial`, and a finding where it failed. `socket`: where a daemon answers."""
    import kvpool

    model, content = secrets.token_hex(16), secrets.token_bytes(_SLOT_BYTES)
    options: dict[str, Any] = {"socket": socket, "deadline": _DEADLINE, "require": True}
    try:
        with (
            kvpool.Pool(name="kvpool doctor", **options) as writer,
            kvpool.Pool(name="kvpool doctor", **options) as reader,
        ):
            channel, layout = _store(writer, model, content)
            try:
                took = _read(reader, model, content)
            finally:
                channel.forget(layout, 0, deadline=_DEADLINE)
    except (kvpool.Error, _Failed) as error:
        what = getattr(error, "strerror", None) or str(error)
        report.facts["trial"] = {"passed": False, "text": "failed"}
        report.stops(
            "trial.failed",
            f"a trial block did not come through: {what}",
            "see `kvpoolctl status`, and the daemon's log",
        )
        return
    text = f"one client stored {_SLOT_BYTES} bytes, another found them in {1e6 * took:.0f} us"
    report.facts["trial"] = {"passed": True, "text": text}
