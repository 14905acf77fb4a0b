# SPDX-License-Identifier: Apache-2.0
"""The doctor's report for people: aligned, short, coloured on a terminal only.

Pure functions.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from kvpool.doctor_report import NOTE, STOPS, Finding, Report

_LABEL = 12
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_RED, _GREEN, _OFF = "\x1b[31m", "\x1b[32m", "\x1b[0m"


def size(n: int) -> str:
    """Bytes for people, three digits."""
    value, unit = float(n), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.3g} {_UNITS[unit]}"


def duration(ms: int) -> str:
    """A time for people."""
    seconds = ms // 1000
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


def _package(facts: Mapping[str, Any]) -> list[str]:
    library = facts["library"] or "no library: the extension is not built"
    return [f"kvpool {facts['version']}, {library}", f"Python {facts['python']} ({facts['path']})"]


def _daemon(facts: Mapping[str, Any]) -> list[str]:
    if not facts["attached"]:
        return ["not attached; tried " + ", ".join(facts["tried"])]
    lines = [f"attached at {facts['socket']} ({facts['found_by']})"]
    if "version" in facts:
        lines.append(
            f"kvpoold {facts['version']}, pid {facts['pid']}, {facts['state']} for"
            f" {duration(facts['uptime_ms'] or 0)} with {facts['loop']}"
        )
    lines.append(f"epoch {facts['epoch']}, protocol {facts['protocol']}")
    return lines


def _pool(facts: Mapping[str, Any]) -> list[str]:
    if "pool" not in facts:
        return [f"not to be seen ({facts['admin_error']})"]
    pool, use = facts["pool"], facts["use"]
    whole = size(pool["bytes"])
    if pool["growing"]:
        whole = f"{size(pool['ready_bytes'])}, growing to {whole}"
    return [
        f"{whole}; {pool['clients']} clients attached",
        f"this domain: {use['ready_blocks']} blocks, {size(use['ready_bytes'])},"
        f" {100 * use['token_hit_rate']:.1f} % of tokens found",
    ]


def _engine(facts: Mapping[str, Any]) -> str:
    name = f"{facts['name']} {facts['version']}"
    if facts["connector"] is None:
        return name
    if facts.get("problems"):
        return f"{name}: does not fit"
    return f"{name}: {'known' if facts.get('known') else 'not tested, fits'}"


def _model(facts: Mapping[str, Any]) -> list[str]:
    if "digest" not in facts:
        return [f"{facts['path']}: not identified"]
    return [
        facts["path"],
        f"{facts['digest'][:16]}..., {facts['kind']}, {facts['tensors']} tensors,"
        f" {size(facts['bytes_read'])} of {size(facts['bytes_total'])} read in"
        f" {1000 * facts['seconds']:.0f} ms",
    ]


def _rows(facts: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    daemon = facts["daemon"]
    rows = [("package", _package(facts["kvpool"])), ("daemon", _daemon(daemon))]
    if daemon["attached"]:
        rows += [("domain", [daemon["domain"]]), ("pool", _pool(daemon))]
    rows.append(("engines", [_engine(engine) for engine in facts["engines"]] or ["none"]))
    if facts["running"]:
        rows.append(("running", [f"pid {r['pid']}: {r['command']}" for r in facts["running"]]))
    if facts.get("trial"):
        rows.append(("trial", [facts["trial"]["text"]]))
    if facts.get("model"):
        rows.append(("model", _model(facts["model"])))
    return rows


def _finding(finding: Finding, width: int, colour: str) -> list[str]:
    indent = " " * _LABEL
    label = f"{finding.level:<{_LABEL}}"
    lines = textwrap.wrap(
        finding.what, width, initial_indent=label, subsequent_indent=indent, break_on_hyphens=False
    )
    if finding.do:
        lines += textwrap.wrap(
            finding.do,
            width,
            initial_indent=indent + "-> ",
            subsequent_indent=indent + "   ",
            break_on_hyphens=False,
        )
    if colour:
        lines[0] = lines[0].replace(finding.level, f"{colour}{finding.level}{_OFF}", 1)
    return lines


def render(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """The report as text of at most `width` columns, paths excepted."""
    lines: list[str] = []
    for label, values in _rows(report.facts):
        lines += [f"{label if i == 0 else '':<{_LABEL}}{v}" for i, v in enumerate(values)]
    for level in (STOPS, NOTE):
        found = [finding for finding in report.findings if finding.level == level]
        lines += [""] if found else []
        for finding in found:
            lines += _finding(finding, width, _RED if colour and level == STOPS else "")
    stopped = sum(finding.level == STOPS for finding in report.findings)
    verdict = "sharing would work"
    if stopped:
        verdict = f"{stopped} thing{'s' if stopped > 1 else ''} would stop sharing"
    if colour:
        verdict = f"{_RED if stopped else _GREEN}{verdict}{_OFF}"
    lines += ["", f"{'verdict':<{_LABEL}}{verdict}"]
    return "\n".join(lines) + "\n"
