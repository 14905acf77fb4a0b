# SPDX-License-Identifier: Apache-2.0
"""What cannot be identified, and that the reason says which file and what about it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from kvpool import identity
from kvpool.identity import adapters, files, safetensors
from weight_files import default_tensors, framed, patch, write_adapter, write_model, write_sharded


def reason(path: Path, **options: object) -> str:
    with pytest.raises(identity.Unidentified) as caught:
        identity.model(path, **options)  # type: ignore[arg-type]
    assert caught.value.reason == str(caught.value)
    return caught.value.reason


def with_header(folder: Path, header: object, data: bytes = b"") -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    write_model(folder)
    (folder / "model.safetensors").write_bytes(framed(raw, data))
    return folder


def entry(begin: int, end: int, shape: object = None, dtype: object = "U8") -> dict[str, object]:
    shape = [end - begin] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_should_refuse_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file or folder" in reason(tmp_path / "none")


def test_should_refuse_a_path_with_a_zero_byte() -> None:
    for identify in (identity.model, identity.adapter, identity.only_configuration):
        with pytest.raises(identity.Unidentified, match="null"):
            identify("a\0b")


def test_should_refuse_a_folder_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "no weights" in reason(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "x.pth"])
def test_should_refuse_pickled_weights(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"PK")
    assert name in reason(tmp_path)
    assert "safetensors" in reason(tmp_path)


def test_should_refuse_a_model_without_a_configuration(tmp_path: Path) -> None:
    (write_model(tmp_path) / "config.json").unlink()
    assert "config.json" in reason(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", "not JSON"),
        (b"[]", "not an object"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 80 + b"1" + b"}" * 80, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_should_refuse_a_malformed_configuration(tmp_path: Path, text: bytes, why: str) -> None:
    (write_model(tmp_path) / "config.json").write_bytes(text)
    assert why in reason(tmp_path)
    assert "config" in reason(tmp_path)


def test_should_refuse_values_of_a_configuration_without_a_canonical_form(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    assert "config.a[1].b: a value of type object" in reason(
        folder, config={"a": [0, {"b": object()}]}
    )
    assert "key of type tuple" in reason(folder, config={(1, 2): 3})
    assert "twice" in reason(folder, config={1: 2, "1": 3})
    assert "no mapping" in reason(folder, config=[1])
    looped: dict[str, object] = {}
    looped["self"] = looped
    assert "nested too deeply" in reason(folder, config=looped)


def test_should_refuse_a_truncated_file_wherever_it_ends(tmp_path: Path) -> None:
    path = write_model(tmp_path) / "model.safetensors"
    for size in (path.stat().st_size - 1, 600, 100, 8, 7, 0):
        os.truncate(path, size)
        assert "truncated" in reason(tmp_path), size


def test_should_refuse_bytes_after_the_last_tensor(tmp_path: Path) -> None:
    path = write_model(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"x")
    assert "belong to no tensor" in reason(tmp_path)


def test_should_refuse_a_header_that_is_too_long(tmp_path: Path) -> None:
    path = write_model(tmp_path) / "model.safetensors"
    patch(path, 0, (safetensors.HEADER_BYTES_MAX + 1).to_bytes(8, "little"))
    os.truncate(path, 1 << 30)
    assert "at most 100000000" in reason(tmp_path)
    patch(path, 0, b"\xff" * 8)
    assert "at most 100000000" in reason(tmp_path)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"{", "not JSON"),
        (b'"text"', "not an object"),
        (b'{"a\xc3": 1}', "UTF-8"),
        (b'{"a": 1, "a": 2}', "twice"),
        ({"a": 1}, "not described by an object"),
        ({"a": {}}, "no dtype"),
        ({"a": entry(0, 4, dtype=3)}, "no dtype"),
        ({"a": entry(0, 4, shape="4")}, "no shape"),
        ({"a": entry(0, 4, shape=[-4])}, "no shape"),
        ({"a": entry(0, 4, shape=[True, 4])}, "no shape"),
        ({"a": entry(0, 4, shape=[4.0])}, "no shape"),
        ({"a": entry(0, 4, shape=[1] * 65)}, "no shape"),
        ({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0]}}, "data_offsets"),
        ({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, "4"]}}, "data_offsets"),
        ({"a": entry(4, 0, shape=[4])}, "before it begins"),
        ({"a": entry(0, 4, shape=[5])}, "is not 4 bytes"),
        ({"a": entry(0, 4, shape=[2], dtype="F32")}, "is not 4 bytes"),
        ({"a": entry(0, 4), "b": entry(2, 6)}, "overlaps"),
        ({"a": entry(0, 4), "b": entry(5, 8)}, "1 bytes before 'b' belong to no tensor"),
        ({"a": entry(4, 8)}, "4 bytes before 'a' belong to no tensor"),
        ({"a": entry(0, 9)}, "truncated"),
        ({"a": entry(0, 1 << 62)}, "truncated"),
        ({"a": entry(0, 8), "__metadata__": {"\ud800": "x"}}, None),
        ({"a\ud800": entry(0, 8)}, None),
        ({"a": entry(0, 8, shape=[3, 1], dtype="FUTURE")}, None),
    ],
)
def test_should_refuse_a_header_that_lies(tmp_path: Path, header: object, why: str | None) -> None:
    folder = with_header(tmp_path, header, bytes(8))
    if why is None:
        assert identity.model(folder).tensors == 1
    else:
        assert why in reason(folder)
        assert "model.safetensors" in reason(folder)


def test_should_refuse_weights_without_a_tensor(tmp_path: Path) -> None:
    assert "no tensor" in reason(with_header(tmp_path, {}))


def test_should_refuse_a_model_whose_shard_is_missing(tmp_path: Path) -> None:
    tensors = default_tensors()
    shards = [{name: tensor} for name, tensor in tensors.items()]
    folder = write_sharded(tmp_path, shards)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors, which is not there" in reason(folder)


@pytest.mark.parametrize("text", ["[]", "{}", '{"weight_map": {"a": 1}}', "{"])
def test_should_refuse_a_malformed_index(tmp_path: Path, text: str) -> None:
    (write_model(tmp_path) / "model.safetensors.index.json").write_text(text)
    assert "model.safetensors.index.json" in reason(tmp_path)


def test_should_refuse_a_link_to_nowhere(tmp_path: Path) -> None:
    path = write_model(tmp_path) / "model.safetensors"
    path.unlink()
    path.symlink_to("../blobs/gone")
    assert "No such file" in reason(tmp_path)


def test_should_refuse_what_is_no_file_without_waiting_for_it(tmp_path: Path) -> None:
    path = write_model(tmp_path) / "model.safetensors"
    path.unlink()
    os.mkfifo(path)
    assert "not a regular file" in reason(tmp_path)
    path.unlink()
    path.mkdir()
    assert "not a regular file" in reason(tmp_path)


def test_should_refuse_what_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(tmp_path)

    # Root may read everything, and tests run as root in containers.
    def deny(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.os, "listdir", deny)
    assert reason(folder) == f"{folder}: Permission denied"
    monkeypatch.undo()
    monkeypatch.setattr(files.os, "open", deny)
    assert reason(folder) == f"{folder}/model.safetensors: Permission denied"


def test_should_say_what_the_system_says_about_a_failed_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(tmp_path)

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files.os, "pread", fail)
    assert "Input/output error" in reason(folder)


def test_should_refuse_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(tmp_path)
    real = os.pread

    def meanwhile(fd: int, n: int, offset: int) -> bytes:
        patch(folder / "model.safetensors", -1, b"\x55")
        return real(fd, n, offset)

    monkeypatch.setattr(files.os, "pread", meanwhile)
    assert "changed while it was read" in reason(folder)


def test_should_refuse_a_file_that_shrinks_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(tmp_path)
    real = os.pread

    def meanwhile(fd: int, n: int, offset: int) -> bytes:
        if offset > 0:
            os.truncate(folder / "model.safetensors", 8)
        return real(fd, n, offset)

    monkeypatch.setattr(files.os, "pread", meanwhile)
    assert "truncated" in reason(folder)


def test_should_name_paths_that_are_no_text(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/m\xff"))
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert "m\\xff: no weights" in reason(folder)


@pytest.mark.parametrize("name", ["adapter_model.bin", "adapter_model.pt"])
def test_should_refuse_a_pickled_adapter(tmp_path: Path, name: str) -> None:
    folder = write_adapter(tmp_path)
    (folder / "adapter_model.safetensors").rename(folder / name)
    with pytest.raises(identity.Unidentified, match=name):
        identity.adapter(folder)


@pytest.mark.parametrize("missing", ["adapter_config.json", "adapter_model.safetensors"])
def test_should_refuse_an_adapter_that_is_not_whole(tmp_path: Path, missing: str) -> None:
    (write_adapter(tmp_path) / missing).unlink()
    with pytest.raises(identity.Unidentified, match=f"no {missing}"):
        identity.adapter(tmp_path)


@pytest.mark.parametrize("limit", [adapters.WHOLE_BYTES_MAX, 0])
def test_should_refuse_a_truncated_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(adapters, "WHOLE_BYTES_MAX", limit)
    path = write_adapter(tmp_path) / "adapter_model.safetensors"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(identity.Unidentified, match="truncated"):
        identity.adapter(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", '"r"'])
def test_should_refuse_a_malformed_configuration_of_an_adapter(tmp_path: Path, text: str) -> None:
    (write_adapter(tmp_path) / "adapter_config.json").write_text(text)
    with pytest.raises(identity.Unidentified, match="adapter_config"):
        identity.adapter(tmp_path)


def test_should_refuse_an_adapter_without_a_tensor(tmp_path: Path) -> None:
    write_adapter(tmp_path, {})
    with pytest.raises(identity.Unidentified, match="no tensor"):
        identity.adapter(tmp_path)


def test_should_refuse_an_adapter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(identity.Unidentified, match="No such file"):
        identity.adapter(tmp_path / "none")
