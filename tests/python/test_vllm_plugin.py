# SPDX-License-Identifier: Apache-2.0
"""When vLLM gets the pool's connector without asking for it, and when it must not."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_vllm
import harness
import pytest
from kvpool.vllm import plugin, versions


@pytest.fixture(autouse=True)
def nobody_there(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("KVPOOL_SOCKET", str(folder / "nobody.sock"))
    monkeypatch.delenv("KVPOOL_DISABLE", raising=False)


def make(monkeypatch: pytest.MonkeyPatch, fake: dict[str, Any] | None = None, **kw: Any) -> Any:
    """Loads the plugin into a fake vLLM and makes a configuration."""
    config = fake_vllm.install(monkeypatch, **(fake or {}))["vllm.config"].VllmConfig
    plugin.register()
    plugin.register()  # every process does, some twice
    return config(**kw)


def test_should_choose_the_connector_where_nobody_did(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = make(monkeypatch).kv_transfer_config

    assert chosen.kv_connector == "KvpoolConnector"
    assert chosen.kv_connector_module_path == "kvpool.vllm.connector"
    assert chosen.kv_load_failure_policy == "recompute"


def test_should_say_nothing_where_no_daemon_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert make(monkeypatch).kv_transfer_config is not None

    assert caplog.records == []


def test_should_say_once_that_the_pool_is_shared(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, daemon: harness.Daemon
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("KVPOOL_SOCKET", daemon.socket)
    make(monkeypatch)

    assert ["through the pool of this host" in r.getMessage() for r in caplog.records] == [True]


def test_should_leave_a_users_own_choice_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    own = object()

    assert make(monkeypatch, kv_transfer_config=own).kv_transfer_config is own


def test_should_do_nothing_where_it_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPOOL_DISABLE", "1")

    assert make(monkeypatch).kv_transfer_config is None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model_config": fake_vllm.model(runner_type="pooling")}, "runs as pooling"),
        ({"model_config": fake_vllm.model(is_encoder_decoder=True)}, "encoder"),
        ({"model_config": fake_vllm.model(is_hybrid=True)}, "recurrent"),
        ({"parallel_config": SimpleNamespace(decode_context_parallel_size=2)}, "decode_context"),
        ({"cache_config": SimpleNamespace(calculate_kv_scales=True)}, "scales"),
        (
            {
                "speculative_config": SimpleNamespace(
                    use_eagle=lambda: True, uses_draft_model=lambda: False
                )
            },
            "speculative",
        ),
    ],
)
def test_should_leave_an_engine_alone_that_it_cannot_share(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, Any],
    word: str,
) -> None:
    caplog.set_level(logging.INFO)

    assert make(monkeypatch, **changes).kv_transfer_config is None
    assert [word in r.getMessage() for r in caplog.records] == [True]


def test_should_leave_a_device_alone_that_it_cannot_copy_from(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    assert make(monkeypatch, {"device": "cuda"}).kv_transfer_config is None
    assert ["KV cache on cuda" in r.getMessage() for r in caplog.records] == [True]


def test_should_use_an_unknown_release_whose_interface_is_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert make(monkeypatch, {"version": "0.33.1"}).kv_transfer_config is not None
    assert ["0.33.1 was not tested" in r.getMessage() for r in caplog.records] == [True]


def test_should_leave_an_unknown_release_alone_whose_interface_differs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    modules = fake_vllm.install(monkeypatch, version="0.40.0")
    base = modules["vllm.distributed.kv_transfer.kv_connector.v1.base"].KVConnectorBase_V1
    base.get_num_new_matched_tokens = lambda self, request, num_tokens: None  # type: ignore
    plugin.register()

    assert modules["vllm.config"].VllmConfig().kv_transfer_config is None
    assert len(caplog.records) == 1
    assert "get_num_new_matched_tokens() takes no num_computed_tokens" in caplog.text
    assert versions.seam_problems() != []


def test_should_leave_a_release_alone_that_has_no_place_for_a_plugin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    modules = fake_vllm.install(monkeypatch)
    modules["vllm.config"].VllmConfig = type("VllmConfig", (), {})  # type: ignore[attr-defined]

    plugin.register()

    assert "no place where a plugin chooses" in caplog.text


@pytest.mark.parametrize(
    ("version", "is_known"), [("0.32.0", True), ("0.32", True), ("0.3", False), ("0.320.1", False)]
)
def test_should_know_the_releases_it_was_tested_with(version: str, is_known: bool) -> None:
    assert versions.known(version) == is_known
