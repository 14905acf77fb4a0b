# SPDX-License-Identifier: Apache-2.0
"""The doctor's look at the daemon: where it is, whether it takes us, what its pool holds.

One thread; some seconds at most, where a daemon does not answer.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from typing import Any

from kvpool import doctor_admin as admin
from kvpool.doctor_handshake import Refused, Welcome, attach
from kvpool.doctor_report import Report

SYSTEM_SOCKET = "/run/kvpool/kvpool.sock"

# Where nobody takes a connection the library tries its next place.
_GOES_ON = ("absent", "unheard", "permission")

_START = "start one: `systemctl enable --now kvpoold.socket`, or `kvpoold` as this user"


def places(given: str | None) -> list[tuple[str, str]]:
    """Where libkvpool looks, in order: (path, how it came about)."""
    if given:
        return [(given, "--socket")]
    named = os.environ.get("KVPOOL_SOCKET")
    if named:
        return [(named, "$KVPOOL_SOCKET")]
    out = [(SYSTEM_SOCKET, "the system's place")]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        out.append((f"{runtime}/kvpool.sock", "$XDG_RUNTIME_DIR"))
    return out


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _permission_advice(path: str) -> str:
    """Whom the socket's owner would let in."""
    try:
        status = os.stat(path)
    except OSError:
        return f"the folder {os.path.dirname(path)} is closed to {_user()}: let it in, or ask"
    mode = stat.S_IMODE(status.st_mode)
    if not mode & stat.S_IWGRP:
        return f"the socket is for uid {status.st_uid} only (mode {mode:04o}): run engines as it"
    try:
        entry = grp.getgrgid(status.st_gid)
    except KeyError:
        return f"the socket is for the group with gid {status.st_gid}: become a member"
    if _user() in entry.gr_mem:
        return f"{_user()} was put into the group {entry.gr_name}: log in again"
    return f"`usermod -aG {entry.gr_name} {_user()}`, then log in again"


def _advice(kind: str, path: str) -> str:
    return {
        "absent": _START,
        "unheard": f"its daemon is gone; {_START}",
        "permission": _permission_advice(path),
        "foreign": "name the socket of a kvpoold in KVPOOL_SOCKET, or unset it",
        "silent": "look at its log: `journalctl -u kvpoold`; restart it",
        "version": "install the release of kvpool that the daemon has, or the other way round",
        "refused": "see `kvpoolctl status` and `kvpoolctl clients`",
    }[kind]


def _elsewhere(tried: list[tuple[str, str]]) -> str:
    """A daemon that would answer where nobody looks."""
    others = {SYSTEM_SOCKET}
    if os.environ.get("XDG_RUNTIME_DIR"):
        others.add(os.environ["XDG_RUNTIME_DIR"] + "/kvpool.sock")
    for path in sorted(others - {path for path, _ in tried}):
        try:
            attach(path)
        except Refused:
            continue
        return path
    return ""


def _use(facts: dict[str, Any], status: dict[str, Any]) -> None:
    """What the admin socket says: the daemon as a whole, and our part of the pool."""
    for name in ("version", "state", "uptime_ms", "pid"):
        facts[name] = admin.field(status, name)
    facts["loop"] = admin.field(status, "loop", "backend")
    pool = {name: admin.count(status, "pool", name) for name in ("bytes", "ready_bytes")}
    facts["pool"] = {
        **pool,
        "growing": bool(admin.field(status, "pool", "growing")),
        "error": admin.field(status, "pool", "error"),
        "clients": admin.count(status, "clients", "attached_or_quarantined"),
    }
    domains = admin.field(status, "domains", default=[])
    own = [d for d in domains if admin.field(d, "name") == facts["domain"]]
    used = own[0] if own else {}
    held = {
        name: admin.count(used, "accounting", "bytes", name)
        for name in ("total", "free", "ready", "reserved", "leased_only", "quarantined")
    }
    facts["use"] = {
        "bytes": held["total"] - held["free"],
        "ready_bytes": held["ready"],
        "ready_blocks": admin.count(used, "accounting", "blocks", "ready"),
        "clients": admin.count(used, "clients"),
        "token_hit_rate": admin.field(used, "counters", "token_hit_rate", default=0.0),
    }
    facts["other_domains"] = [
        str(admin.field(d, "name")) for d in domains if d not in own and admin.count(d, "clients")
    ]


def _judge_use(report: Report, facts: dict[str, Any]) -> None:
    if facts["state"] == "draining":
        report.stops(
            "daemon.draining",
            "the daemon takes no new clients and blocks: it is leaving, or was drained",
            "start it again, or `kvpoolctl resume`",
        )
    pool = facts["pool"]
    if pool["error"]:
        report.note(
            "daemon.pool_smaller",
            f"the pool is smaller than wanted: {pool['error']}",
            "free memory on this host, or give kvpoold --size",
        )
    if 0 < pool["bytes"] < 4 * facts["extent_bytes"]:
        report.note(
            "daemon.pool_small",
            f"the pool of {pool['bytes']} bytes has few extents of {facts['extent_bytes']} bytes,"
            " and each size of blocks takes whole ones",
            "give kvpoold a larger --size or a smaller --extent-size",
        )
    if facts["other_domains"]:
        report.note(
            "daemon.other_domains",
            f"other users are attached ({', '.join(facts['other_domains'])}): each user is a domain"
            f" of its own, and {facts['domain']} shares with none of them",
            "run the engines that shall share as one user",
        )


def _look_inside(report: Report, facts: dict[str, Any]) -> None:
    path = admin.beside(facts["socket"])
    facts["admin_socket"] = path
    try:
        _use(facts, admin.get(path, "/v1/status"))
    except admin.Unreadable as error:
        # Often by intention: the admin socket is for those who run the daemon.
        facts["admin_error"] = str(error)
        return
    _judge_use(report, facts)


def _attached(facts: dict[str, Any], path: str, how: str, welcome: Welcome) -> None:
    facts.update(
        attached=True,
        socket=path,
        found_by=how,
        protocol=welcome.version,
        epoch=welcome.epoch,
        domain=welcome.domain,
        segment_bytes=welcome.segment_bytes,
        extent_bytes=welcome.extent_bytes,
    )


def _complain(
    report: Report, tried: list[tuple[str, str]], failures: list[tuple[Refused, str]]
) -> str:
    """Adds the finding for no attaching, of several failures the one that says most."""
    failure, path = next((f for f in failures if f[0].kind != "absent"), failures[0])
    what, advice = str(failure), _advice(failure.kind, path)
    if failure.kind == "absent":
        what = f"no daemon: no socket at {' or '.join(path for path, _ in tried)}"
    elsewhere = _elsewhere(tried)
    if elsewhere:
        advice = f"a daemon answers at {elsewhere}: unset KVPOOL_SOCKET, or set it to this path"
    report.stops(f"daemon.{failure.kind}", what, advice)
    return failure.kind


def examine(report: Report, given: str | None) -> None:
    """Adds the section `daemon`, and what follows from it. `given`: --socket."""
    tried = places(given)
    facts: dict[str, Any] = {"attached": False, "tried": [path for path, _ in tried]}
    report.facts["daemon"] = facts
    failures: list[tuple[Refused, str]] = []
    for path, how in tried:
        try:
            _attached(facts, path, how, attach(path))
        except Refused as refused:
            failures.append((refused, path))
            if refused.kind not in _GOES_ON:
                break
        else:
            _look_inside(report, facts)
            return
    facts["why"] = _complain(report, tried, failures)
