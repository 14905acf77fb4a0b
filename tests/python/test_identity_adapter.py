# SPDX-License-Identifier: Apache-2.0
"""Adapters are known by all their bytes. Files of each test's own folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kvpool import identity
from kvpool.identity import adapters
from weight_files import default_tensors, noise, patch, write_adapter

LONG = {"w": ("U8", [65536], noise(5, 65536))}
UNSAMPLED = -20_000  # bytes before the end: neither start, middle nor end


def test_should_find_a_copy_of_an_adapter_equal(tmp_path: Path) -> None:
    a = write_adapter(tmp_path / "a")
    b = shutil.copytree(a, tmp_path / "b")
    assert identity.adapter(a).digest == identity.adapter(b).digest


def test_should_tell_two_adapters_of_one_name_apart(tmp_path: Path) -> None:
    a = write_adapter(tmp_path / "a" / "same", default_tensors(1))
    b = write_adapter(tmp_path / "b" / "same", default_tensors(2))
    assert identity.adapter(a).digest != identity.adapter(b).digest


def test_should_see_any_one_byte_of_an_adapter(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path, LONG)
    first = identity.adapter(folder)
    assert first.kind == "adapter"
    assert first.bytes_read > first.bytes_total
    patch(folder / "adapter_model.safetensors", UNSAMPLED, b"\xa5")
    assert identity.adapter(folder).digest != first.digest


def test_should_sample_an_adapter_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = identity.adapter(write_adapter(tmp_path / "whole", LONG))
    monkeypatch.setattr(adapters, "WHOLE_BYTES_MAX", 65536)
    folder = write_adapter(tmp_path / "sampled", LONG)
    sampled = identity.adapter(folder)
    assert sampled.digest != whole.digest
    assert sampled.bytes_read < sampled.bytes_total / 8
    patch(folder / "adapter_model.safetensors", -1, b"\xa5")
    assert identity.adapter(folder).digest != sampled.digest


def test_should_overlook_the_name_of_the_base_and_the_saver(tmp_path: Path) -> None:
    config = {"peft_type": "LORA", "r": 8}
    one = {**config, "base_model_name_or_path": "/models/x", "peft_version": "0.18"}
    a = write_adapter(tmp_path / "a", config=one)
    b = write_adapter(tmp_path / "b", config=config)
    assert identity.adapter(a).digest == identity.adapter(b).digest


@pytest.mark.parametrize("change", [{"r": 16}, {"lora_alpha": 32}, {"use_rslora": True}])
def test_should_heed_what_scales_an_adapter(tmp_path: Path, change: dict[str, object]) -> None:
    config = {"peft_type": "LORA", "r": 8}
    a = write_adapter(tmp_path / "a", config=config)
    b = write_adapter(tmp_path / "b", config={**config, **change})
    assert identity.adapter(a).digest != identity.adapter(b).digest


def test_should_cover_embeddings_that_come_with_an_adapter(tmp_path: Path) -> None:
    a, b = write_adapter(tmp_path / "a"), write_adapter(tmp_path / "b")
    shutil.copy(b / "adapter_model.safetensors", b / "new_embeddings.safetensors")
    assert identity.adapter(a).digest != identity.adapter(b).digest


def test_should_not_take_an_adapter_for_a_model_of_the_same_bytes(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path)
    (folder / "config.json").write_text("{}")
    assert identity.adapter(folder).digest != identity.model(folder).digest
