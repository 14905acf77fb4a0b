# SPDX-License-Identifier: Apache-2.0
"""What the doctor says about daemons: absent, closed, foreign, mute, of another version, well."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import doctor_fakes as fakes
import harness
import kvpool
import pytest
from kvpool import doctor_admin, doctor_daemon, doctor_handshake, doctor_report, doctor_trial
from kvpool.doctor_handshake import Refused

HEADERS = Path(__file__).parents[2] / "shm"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No place to look for a daemon but those that a test names."""
    for name in ("KVPOOL_SOCKET", "KVPOOL_ADMIN_SOCKET", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(doctor_daemon, "SYSTEM_SOCKET", str(folder / "system.sock"))


def examine(given: str | None = None) -> doctor_report.Report:
    report = doctor_report.Report()
    doctor_daemon.examine(report, given)
    return report


def refusal(path: Path) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        doctor_handshake.attach(str(path), timeout=harness.PATIENCE)
    return caught.value.kind, str(caught.value)


def test_should_have_the_messages_of_the_protocol() -> None:
    text = (HEADERS / "handshake.h").read_text()
    sizes = dict(re.findall(r"KVPOOL_ASSERT_SIZE\(struct kvpool_(\w+), (\d+)\)", text))
    assert int(sizes["hello"]) == doctor_handshake.HELLO_FORMAT.size
    assert int(sizes["attach"]) == doctor_handshake.ATTACH_FORMAT.size
    assert int(sizes["welcome"]) == doctor_handshake.WELCOME_FORMAT.size
    assert int(sizes["refused"]) == doctor_handshake.REFUSED_FORMAT.size
    values = dict(re.findall(r"#define KVPOOL_PROTOCOL_(\w+)\s+(?:UINT64_C\()?(\w+?)u?\)?\n", text))
    magic = re.search(r"KVPOOL_PROTOCOL_MAGIC\s+UINT64_C\((0x\w+)\)", text)
    assert magic is not None
    assert int(magic.group(1), 16) == doctor_handshake.MAGIC
    assert int(values["MIN"]) == doctor_handshake.VERSION_MIN
    assert int(values["MAX"]) == doctor_handshake.VERSION_MAX


def test_should_attach_as_a_reader_and_tell_what_the_daemon_says(folder: Path) -> None:
    with fakes.fake_daemon(folder / "d", fakes.hello(), fakes.welcome()) as came:
        found = doctor_handshake.attach(str(folder / "d"), timeout=harness.PATIENCE)
    assert found == doctor_handshake.Welcome(1, "0123456789abcdef", "uid-7", 16 << 20, 4 << 20)
    (request,) = came
    assert doctor_handshake.ATTACH_FORMAT.unpack(request)[4] == 1


@pytest.mark.parametrize(
    ("answers", "kind", "why"),
    [
        ([fakes.hello(7, 9)], "version", "versions 7 to 9, this package 1 to 1"),
        ([fakes.hello(0, 0)], "version", "versions 0 to 0"),
        ([fakes.hello(magic=1)], "foreign", "not kvpoold"),
        ([b"hi"], "foreign", "not kvpoold"),
        ([b"x" * 64], "foreign", "not kvpoold"),
        ([fakes.hello()[:4] + b"\x0c\0\0\0" + bytes(4)], "foreign", "not kvpoold"),
        ([], "silent", "closed the connection"),
        ([fakes.hello()], "silent", ""),
        ([fakes.refused(b"as many clients as allowed")], "refused", "as many clients as allowed"),
        ([fakes.hello(), fakes.refused(b"go\x1b[31m")], "refused", "go?[31m"),
        ([fakes.hello(), fakes.refused(b"")], "refused", "no reason"),
        ([fakes.hello(), fakes.hello()], "foreign", "out of turn"),
        ([fakes.hello(), fakes.welcome()[:4] + b"\x08\0\0\0"], "foreign", "not kvpoold"),
    ],
    ids=range(13),
)
def test_should_name_what_is_wrong_with_an_answer(
    folder: Path, answers: list[bytes], kind: str, why: str
) -> None:
    with fakes.fake_daemon(folder / "d", *answers):
        found = refusal(folder / "d")
    assert found[0] == kind
    assert why in found[1]
    assert str(folder / "d") in found[1]


def test_should_give_up_on_a_daemon_that_says_nothing(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "d"))
        listener.listen()
        with pytest.raises(Refused, match="does not answer"):
            doctor_handshake.attach(str(folder / "d"), timeout=0.01)


def test_should_tell_kinds_of_absence_apart(folder: Path) -> None:
    assert refusal(folder / "none")[0] == "absent"
    assert refusal(folder / "none" / "deeper")[0] == "absent"
    assert refusal(folder / ("x" * 200))[0] == "absent"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "left"))
    assert refusal(folder / "left")[0] == "unheard"
    (folder / "file").touch()
    assert refusal(folder / "file")[0] == "unheard"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / "admin"))
        listener.listen()
        assert refusal(folder / "admin")[0] == "foreign"


def test_should_say_where_it_looked_and_how_to_start_a_daemon(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    report = examine()
    assert report.facts["daemon"]["tried"] == [f"{folder}/system.sock", f"{folder}/kvpool.sock"]
    (finding,) = report.findings
    assert (finding.level, finding.topic) == ("stops", "daemon.absent")
    assert f"{folder}/system.sock or {folder}/kvpool.sock" in finding.what
    assert "kvpoold" in finding.do


@pytest.mark.parametrize("variable", [True, False])
def test_should_take_the_first_place_that_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: bool
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("KVPOOL_SOCKET", str(folder / "variable"))
    given = None if variable else str(folder / "given")
    assert [how for _, how in doctor_daemon.places(given)] == [
        "$KVPOOL_SOCKET" if variable else "--socket"
    ]


def test_should_go_on_to_the_users_own_daemon(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    with fakes.fake_daemon(folder / "kvpool.sock", fakes.hello(), fakes.welcome()):
        report = examine()
    assert report.facts["daemon"]["socket"] == str(folder / "kvpool.sock")
    assert report.facts["daemon"]["found_by"] == "$XDG_RUNTIME_DIR"
    assert report.sharing


def test_should_not_go_on_past_a_daemon_that_refuses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    with (
        fakes.fake_daemon(folder / "system.sock", fakes.refused(b"draining")),
        fakes.fake_daemon(folder / "kvpool.sock", fakes.hello(), fakes.welcome()),
    ):
        report = examine()
    assert not report.facts["daemon"]["attached"]
    (finding,) = report.findings
    assert finding.topic == "daemon.refused"
    assert "draining" in finding.what


def test_should_point_to_a_daemon_where_nobody_looks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVPOOL_SOCKET", str(folder / "none"))
    with fakes.fake_daemon(folder / "system.sock", fakes.hello(), fakes.welcome()):
        report = examine()
    (finding,) = report.findings
    assert finding.do.startswith(f"a daemon answers at {folder}/system.sock: unset KVPOOL_SOCKET")


def deny(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_should_say_who_may_connect(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_handshake.socket.socket, "connect", deny)
    path = folder / "d"
    path.touch(0o600)
    (finding,) = examine(str(path)).findings
    assert finding.topic == "daemon.permission"
    assert f"for uid {os.geteuid()} only (mode 0600)" in finding.do
    path.chmod(0o660)
    (finding,) = examine(str(path)).findings
    assert re.search(r"`usermod -aG \S+ \S+`, then log in again|log in again", finding.do)
    (finding,) = examine(str(folder / "none" / "d")).findings
    assert f"{folder}/none is closed to" in finding.do


@pytest.mark.parametrize(
    ("data", "admin"),
    [
        ("/run/kvpool/kvpool.sock", "/run/kvpool/admin.sock"),
        ("/x/a.sock", "/x/a-admin.sock"),
        ("a", "a-admin.sock"),
        ("/x/.sock", "/x/.sock-admin.sock"),
    ],
)
def test_should_look_for_the_admin_socket_beside(data: str, admin: str) -> None:
    assert doctor_admin.beside(data) == admin


def test_should_heed_where_the_admin_socket_is_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KVPOOL_ADMIN_SOCKET", "/elsewhere")
    assert doctor_admin.beside("/run/kvpool/kvpool.sock") == "/elsewhere"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed connection"),
        (b"hello\r\n", "not the answer of a kvpoold"),
        (fakes.http(b"{"), "not the answer of a kvpoold"),
        (fakes.http(b"[" * 100_000), "not the answer of a kvpoold"),
        (fakes.http(b"[]"), "not an object"),
        (fakes.http(b"{}", "503 Service Unavailable"), "503 Service Unavailable"),
    ],
    ids=range(6),
)
def test_should_survive_an_admin_socket_that_answers_nonsense(
    folder: Path, answer: bytes, why: str
) -> None:
    path = folder / "a"
    with fakes.fake_admin(path, answer), pytest.raises(doctor_admin.Unreadable, match=why):
        doctor_admin.get(str(path), "/v1/status", timeout=harness.PATIENCE)


def with_status(folder: Path, status: dict[str, Any]) -> doctor_report.Report:
    admin = fakes.fake_admin(folder / "admin.sock", fakes.http(json.dumps(status).encode()))
    daemon = fakes.fake_daemon(folder / "kvpool.sock", fakes.hello(), fakes.welcome())
    with admin, daemon:
        return examine(str(folder / "kvpool.sock"))


def test_should_do_with_what_an_older_daemon_tells(folder: Path) -> None:
    report = with_status(folder, {})
    facts = report.facts["daemon"]
    assert facts["pool"] == {
        "bytes": 0,
        "ready_bytes": 0,
        "growing": False,
        "error": None,
        "clients": 0,
    }
    assert facts["use"]["ready_blocks"] == 0
    assert report.findings == []


def test_should_pass_on_what_ails_a_daemon(folder: Path) -> None:
    status = {
        "state": "draining",
        "pool": {"bytes": 8 << 20, "error": "no memory"},
        "domains": [
            {"name": "uid-7", "clients": 1, "accounting": {"bytes": {"total": 9, "free": 2}}},
            {"name": "uid-8", "clients": 2},
            {"name": "uid-9", "clients": 0},
        ],
    }
    report = with_status(folder, status)
    assert [finding.topic for finding in report.findings] == [
        "daemon.draining",
        "daemon.pool_smaller",
        "daemon.pool_small",
        "daemon.other_domains",
    ]
    assert not report.sharing
    assert report.facts["daemon"]["use"]["bytes"] == 7
    assert report.facts["daemon"]["other_domains"] == ["uid-8"]


def test_should_do_without_the_admin_socket(folder: Path) -> None:
    with fakes.fake_daemon(folder / "d", fakes.hello(), fakes.welcome()):
        report = examine(str(folder / "d"))
    assert report.sharing
    assert report.facts["daemon"]["attached"]
    assert "d-admin.sock" in report.facts["daemon"]["admin_error"]


def test_should_see_a_real_daemon_and_leave_nothing_there(daemon: harness.Daemon) -> None:
    report = examine(daemon.socket)
    facts = report.facts["daemon"]
    assert report.sharing
    assert facts["domain"] == f"uid-{os.geteuid()}"
    assert facts["pid"] == daemon.process.pid if daemon.process else False
    assert facts["pool"]["bytes"] == 64 << 20
    assert facts["state"] == "serving"
    assert facts["protocol"] == 1
    daemon.until("clients.attached_or_quarantined", 0)
    assert "violation" not in daemon.errors()


def test_should_bring_a_trial_block_from_one_client_to_another(
    daemon: harness.Daemon, pool: kvpool.Pool
) -> None:
    assert pool.attached  # so that the domain, which counts, outlives the trial
    report = doctor_report.Report()
    doctor_trial.examine(report, daemon.socket)
    assert report.facts["trial"]["passed"]
    assert report.findings == []
    assert daemon.number("counters.stored") == 1
    assert daemon.number("counters.match_hit_keys") == 1
    daemon.until("accounting.blocks.ready", 0)
    daemon.until("clients.attached_or_quarantined", 1)


def test_should_say_that_a_trial_failed(folder: Path) -> None:
    report = doctor_report.Report()
    doctor_trial.examine(report, str(folder / "none"))
    (finding,) = report.findings
    assert (finding.level, finding.topic) == ("stops", "trial.failed")
    assert "no daemon answers" in finding.what
    assert not report.facts["trial"]["passed"]
