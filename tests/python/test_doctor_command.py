# SPDX-License-Identifier: Apache-2.0
"""The command line as people and programs see it: text, JSON, exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import harness
import kvpool
import pytest
from kvpool import doctor_text, identity
from kvpool.doctor_report import Finding, Report
from weight_files import write_adapter, write_model

PLAIN = {
    name: value
    for name, value in os.environ.items()
    if name not in ("KVPOOL_DISABLE", "KVPOOL_SOCKET", "VLLM_PLUGINS", "PYTHONHASHSEED")
}


def command(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvpool", *arguments],
        capture_output=True,
        text=True,
        timeout=harness.PATIENCE * 3,
        env={**PLAIN, **(environment or {})},
        check=False,
    )


def test_should_exit_with_0_where_sharing_would_work(
    daemon: harness.Daemon, tmp_path: Path
) -> None:
    model = write_model(tmp_path)
    done = command("doctor", "--socket", daemon.socket, "--try", "--model", str(model))
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.endswith("verdict     sharing would work\n")
    assert f"attached at {daemon.socket} (--socket)" in done.stdout
    assert "one client stored 4096 bytes, another found them" in done.stdout
    assert identity.model(model).digest[:16] in done.stdout
    assert "\x1b" not in done.stdout


def test_should_print_the_same_as_json(daemon: harness.Daemon) -> None:
    done = command("doctor", "--json", environment={"KVPOOL_SOCKET": daemon.socket})
    assert done.stderr == ""
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["schema_version"] == 1
    assert found["sharing"] is True
    assert found["kvpool"]["version"] == kvpool.__version__
    assert found["kvpool"]["library"] == f"libkvpool {kvpool.version()}"
    assert found["daemon"]["found_by"] == "$KVPOOL_SOCKET"
    assert found["daemon"]["attached"] is True
    assert {f["level"] for f in found["findings"]} <= {"note"}


def test_should_exit_with_1_where_something_stops_sharing(folder: Path) -> None:
    done = command(
        "doctor",
        *("--socket", str(folder / "none")),
        *("--model", str(folder)),
        environment={"KVPOOL_DISABLE": "1", "VLLM_PLUGINS": "x"},
    )
    assert done.returncode == 1
    assert done.stderr == ""
    for word in ("no daemon", "KVPOOL_DISABLE=1", "VLLM_PLUGINS=x", "model is not identified"):
        assert word in done.stdout
    assert done.stdout.endswith("verdict     4 things would stop sharing\n")


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["doctor", "--nonsense"], ["doctor", "--model"], ["identity"]],
)
def test_should_exit_with_2_for_wrong_usage(arguments: list[str]) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "usage: python -m kvpool" in done.stderr


@pytest.mark.parametrize("name", ["doctor", "identity"])
def test_should_document_exit_codes_in_the_help(name: str) -> None:
    done = command(name, "--help")
    assert done.returncode == 0
    assert "exit codes: 0 " in done.stdout


def test_should_print_an_identity(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    done = command("identity", str(model))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == identity.model(model).digest
    assert lines[1] == "safetensors: config.json, model.safetensors"
    found = json.loads(command("identity", "--json", str(model)).stdout)
    assert found["digest"] == lines[0]
    assert found["tensors"] == 3


def test_should_print_the_identity_of_an_adapter(tmp_path: Path) -> None:
    done = command("identity", "--adapter", str(write_adapter(tmp_path)))
    assert done.stdout.splitlines()[0] == identity.adapter(tmp_path).digest


def test_should_say_why_there_is_no_identity(tmp_path: Path) -> None:
    done = command("identity", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == f"not identified: {tmp_path}: no weights: neither *.safetensors nor *.gguf\n"
    )


def test_should_print_versions() -> None:
    done = command("version")
    assert done.stdout == f"kvpool {kvpool.__version__}\nlibkvpool {kvpool.version()}\n"
    assert done.returncode == 0


def test_should_not_complain_when_its_reader_leaves(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kvpool", "identity", str(write_model(tmp_path))],
            stdout=write,
            stderr=subprocess.PIPE,
            env=PLAIN,
            check=False,
        )
    finally:
        os.close(write)
    assert done.stderr == b""
    assert done.returncode == 1


def test_should_say_that_the_extension_is_missing(tmp_path: Path, daemon: harness.Daemon) -> None:
    copy = tmp_path / "kvpool"
    shutil.copytree(
        Path(kvpool.__file__).parent, copy, ignore=shutil.ignore_patterns("_kvpool*.so")
    )
    done = subprocess.run(
        [sys.executable, "-B", "-m", "kvpool", "doctor", "--json", "--socket", daemon.socket],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=PLAIN,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["kvpool"]["folder"] == str(copy)
    assert found["kvpool"]["library"] is None
    assert found["daemon"]["attached"] is True
    stops = [f["topic"] for f in found["findings"] if f["level"] == "stops"]
    assert stops == ["package.extension"]


def sample_report() -> Report:
    facts = {
        "kvpool": {"version": "1", "library": "libkvpool 1", "python": "3", "path": "/p"},
        "daemon": {"attached": False, "tried": ["/a", "/b"]},
        "engines": [],
        "running": [],
    }
    long = "word " * 60
    return Report(facts, [Finding("note", "n", long), Finding("stops", "s", long, long)])


def test_should_align_and_wrap_what_it_prints() -> None:
    lines = doctor_text.render(sample_report(), width=60).splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert all(line == "" or line[11] == " " for line in lines)
    labels = [line.split()[0] for line in lines if line and line[0] != " "]
    assert labels == ["package", "daemon", "engines", "stops", "note", "verdict"]


def test_should_colour_only_where_it_is_asked_to() -> None:
    report = sample_report()
    plain = doctor_text.render(report)
    coloured = doctor_text.render(report, colour=True)
    assert "\x1b" not in plain
    assert "\x1b[31mstops\x1b[0m" in coloured
    assert coloured.replace("\x1b[31m", "").replace("\x1b[0m", "") == plain


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "0.977 KiB"), (1 << 20, "1 MiB"), (3 << 39, "1.5 TiB")],
)
def test_should_write_sizes_for_people(n: int, text: str) -> None:
    assert doctor_text.size(n) == text


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0 s"), (119_999, "119 s"), (120_000, "2 min"), (86_400_000 * 3, "3 days")]
)
def test_should_write_times_for_people(ms: int, text: str) -> None:
    assert doctor_text.duration(ms) == text
