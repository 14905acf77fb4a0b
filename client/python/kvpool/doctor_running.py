# SPDX-License-Identifier: Apache-2.0
"""The doctor's look at engines that run already: settings of theirs that keep them from sharing.

Reads /proc of this user's own processes. A process may end, or change its title, at any moment:
what cannot be read is passed over. One thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from kvpool.doctor_report import Report
from kvpool.engine.settings import disabled_by_environment

_HASH_FLAG = "--prefix-caching-hash-algo"
_ENGINES = ("vllm", "vllm.entrypoints")


def _words(pid: str, name: str, proc: str) -> list[str]:
    with open(os.path.join(proc, pid, name), "rb") as file:
        return [word.decode("utf-8", "replace") for word in file.read(1 << 20).split(b"\0") if word]


def _is_vllm(words: list[str]) -> bool:
    """`vllm serve ...`, with or without an interpreter, and `python -m vllm...`."""
    if any(os.path.basename(word) == "vllm" for word in words[:2]):
        return True
    return any(
        word == "-m" and words[i + 1].startswith(_ENGINES) for i, word in enumerate(words[:-1])
    )


def _flag(words: list[str], flag: str) -> str | None:
    """The value of a flag, written with = or as two words, with - or with _."""
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == flag:
            return value if equals else (words[i + 1] if i + 1 < len(words) else "")
    return None


def _engines(proc: str) -> Iterator[tuple[int, list[str], dict[str, str]]]:
    for pid in sorted((name for name in os.listdir(proc) if name.isdigit()), key=int):
        try:
            if os.stat(os.path.join(proc, pid)).st_uid != os.geteuid():
                continue
            words = _words(pid, "cmdline", proc)
            if _is_vllm(words):
                pairs = (word.partition("=") for word in _words(pid, "environ", proc))
                yield int(pid), words, {name: value for name, _, value in pairs}
        except OSError:
            continue


def _judge(report: Report, pid: int, words: list[str], environment: Mapping[str, str]) -> None:
    who = f"the engine with pid {pid}"
    seed = environment.get("PYTHONHASHSEED")
    algorithm = _flag(words, _HASH_FLAG) or ""
    if algorithm.startswith("xxhash") and seed is None:
        report.stops(
            "running.hash_algorithm",
            f"{who} hashes with {algorithm}, from a seed that no other process has",
            f"start it with {_HASH_FLAG}=sha256, the default",
        )
    if "--no-enable-prefix-caching" in (word.replace("_", "-") for word in words):
        report.stops(
            "running.prefix_caching",
            f"{who} was started with --no-enable-prefix-caching",
            "start it without that flag",
        )
    if disabled_by_environment(environment):
        report.stops(
            "running.disabled",
            f"{who} was started with KVPOOL_DISABLE={environment['KVPOOL_DISABLE']}",
            "start it without",
        )
    plugins = environment.get("VLLM_PLUGINS")
    if plugins is not None and "kvpool" not in plugins.split(","):
        report.stops(
            "running.plugins",
            f"{who} was started with VLLM_PLUGINS={plugins}, which does not name kvpool",
            "start it without, or add kvpool to it",
        )
    connector = _flag(words, "--kv-transfer-config")
    if connector is not None and "kvpool" not in connector.lower():
        report.stops(
            "running.connector",
            f"{who} was told to use another connector (--kv-transfer-config), so kvpool leaves it"
            " alone",
            "start it without that flag",
        )


def examine(report: Report, proc: str = "/proc") -> None:
    """Adds the section `running`, and what follows from it."""
    running: list[dict[str, Any]] = []
    report.facts["running"] = running
    seeds: dict[str | None, int] = {}
    try:
        for pid, words, environment in _engines(proc):
            seed = environment.get("PYTHONHASHSEED")
            running.append({"pid": pid, "hash_seed": seed, "command": " ".join(words[:4])})
            seeds.setdefault(seed, pid)
            _judge(report, pid, words, environment)
    except OSError as error:
        report.note("running.unseen", f"running engines cannot be looked at: {error.strerror}")
    if len(seeds) > 1:
        differ = ", ".join(
            f"pid {pid} {'none' if seed is None else seed}" for seed, pid in seeds.items()
        )
        report.stops(
            "running.hash_seed",
            f"running engines have different values of PYTHONHASHSEED ({differ}), so their block"
            " hashes differ",
            "start them all without it, or all with the same",
        )
