# SPDX-License-Identifier: Apache-2.0
"""Names of models are looked up in the local Hub cache, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from kvpool import identity
from weight_files import write_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hub cache with one model, found by $HF_HOME."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "home" / "hub" / "models--org--model"
    write_model(folder / "snapshots" / COMMIT)
    for ref in ("main", "refs/pr/1"):
        path = folder / "refs" / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(COMMIT)
    return tmp_path / "home" / "hub"


@pytest.mark.parametrize("revision", [None, "main", "refs/pr/1", COMMIT])
def test_should_locate_a_snapshot(hub: Path, revision: str | None) -> None:
    found = identity.locate("org/model", revision=revision)
    assert found == str(hub / "models--org--model" / "snapshots" / COMMIT)
    assert identity.model(found).tensors == 3


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"])
def test_should_heed_where_the_cache_is_said_to_be(
    hub: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv(variable, str(hub))
    assert identity.locate("org/model").endswith(COMMIT)


def test_should_heed_the_callers_cache(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", "elsewhere")
    assert identity.locate("org/model", cache=str(hub)).endswith(COMMIT)


def test_should_find_the_default_cache_in_the_home(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("HOME", str(hub.parent.parent))
    (hub.parent.parent / ".cache").mkdir()
    hub.parent.rename(hub.parent.parent / ".cache" / "huggingface")
    assert identity.locate("org/model").endswith(COMMIT)


@pytest.mark.usefixtures("hub")
def test_should_prefer_a_folder_that_exists(tmp_path: Path) -> None:
    write_model(tmp_path / "org" / "model")
    assert identity.locate("org/model") == "org/model"


@pytest.mark.parametrize(
    ("name", "revision", "why"),
    [
        ("org/none", None, "not in"),
        ("org/model", "dev", "no revision 'dev'"),
        ("org/model", "f" * 40, "no such folder"),
        ("org/model", "../main", "no name of a revision"),
        ("../org/model", None, "no name of a model"),
        ("a/b/c", None, "no name of a model"),
        ("", None, "no name of a model"),
        ("a\0b", None, "no name of a model"),
        ("org/mo\udcffdel", None, "no name of a model"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_should_refuse_what_is_not_there(name: str, revision: str | None, why: str) -> None:
    with pytest.raises(identity.Unidentified, match=why):
        identity.locate(name, revision=revision)


def test_should_refuse_a_reference_that_is_no_commit(hub: Path) -> None:
    (hub / "models--org--model" / "refs" / "main").write_text("../../../etc")
    with pytest.raises(identity.Unidentified, match="not a commit"):
        identity.locate("org/model")
