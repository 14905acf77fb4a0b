# SPDX-License-Identifier: Apache-2.0
"""What makes models equal and what tells them apart. Files of each test's own folder."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path

import pytest
from kvpool import identity
from kvpool.identity import sample
from kvpool.identity.digest import Digest
from weight_files import (
    CONFIG,
    default_tensors,
    noise,
    patch,
    safetensors_bytes,
    write_index,
    write_model,
    write_sharded,
)


def digest(path: Path, **options: object) -> str:
    return identity.model(path, **options).digest  # type: ignore[arg-type]


def test_should_find_a_copy_in_another_folder_equal(tmp_path: Path) -> None:
    a = write_model(tmp_path / "a")
    b = shutil.copytree(a, tmp_path / "deep" / "other name")
    assert digest(a) == digest(b)


def test_should_say_what_was_covered(tmp_path: Path) -> None:
    found = identity.model(write_model(tmp_path))
    assert found.kind == "safetensors"
    assert found.files == ("config.json", "model.safetensors")
    assert found.tensors == 3
    assert found.bytes_total == (tmp_path / "model.safetensors").stat().st_size
    assert 0 < found.bytes_read < found.bytes_total
    assert len(bytes.fromhex(found.digest)) == 32


@pytest.mark.parametrize("name", list(default_tensors()))
def test_should_tell_fine_tunes_apart_by_any_one_tensor(tmp_path: Path, name: str) -> None:
    tensors = default_tensors()
    dtype, shape, content = tensors[name]
    tuned = {**tensors, name: (dtype, shape, noise(99, len(content)))}
    a, b = write_model(tmp_path / "a", tensors), write_model(tmp_path / "b", tuned)
    size = [(folder / "model.safetensors").stat().st_size for folder in (a, b)]
    assert size[0] == size[1]
    assert digest(a) != digest(b)


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_should_see_one_changed_byte_at_start_middle_and_end(tmp_path: Path, place: str) -> None:
    n = 64 * 1024
    content = bytearray(noise(3, n))
    a = write_model(tmp_path / "a", {"w": ("U8", [n], bytes(content))})
    content[{"first": 0, "middle": n // 2, "last": n - 1}[place]] ^= 1
    b = write_model(tmp_path / "b", {"w": ("U8", [n], bytes(content))})
    assert digest(a) != digest(b)


def test_should_see_every_byte_of_a_small_tensor(tmp_path: Path) -> None:
    n = 3 * sample.PIECE_BYTES
    content = bytearray(n)
    seen = {digest(write_model(tmp_path / "zero", {"w": ("U8", [n], bytes(content))}))}
    for i in range(0, n, 97):
        content[i] = 1
        seen.add(digest(write_model(tmp_path / str(i), {"w": ("U8", [n], bytes(content))})))
        content[i] = 0
    assert len(seen) == 1 + len(range(0, n, 97))


def test_should_sample_inside_the_tensor_without_overlap() -> None:
    for n in (0, 1, 3071, 3072, 3073, 4096, 10_000_001):
        end = 0
        for offset, length in sample.pieces(n):
            assert offset >= end
            end = offset + length
        assert end == n


@pytest.mark.parametrize("field", ["_name_or_path", "transformers_version", "_commit_hash"])
def test_should_overlook_where_a_configuration_came_from(tmp_path: Path, field: str) -> None:
    a = write_model(tmp_path / "a", config={**CONFIG, field: "1", "text_config": {field: "1"}})
    b = write_model(tmp_path / "b", config={**CONFIG, field: "2", "text_config": {field: "2"}})
    assert digest(a) == digest(b)


@pytest.mark.parametrize(
    "change",
    [
        {"rope_theta": 10000.0},
        {"architectures": ["MistralForCausalLM"]},
        {"quantization_config": {"bits": 4}},
        {"hidden_size": None},
    ],
)
def test_should_heed_every_other_field(tmp_path: Path, change: dict[str, object]) -> None:
    a = write_model(tmp_path / "a")
    b = write_model(tmp_path / "b", config={**CONFIG, **change})
    assert digest(a) != digest(b)


def test_should_not_heed_how_json_is_written(tmp_path: Path) -> None:
    a, b = write_model(tmp_path / "a"), write_model(tmp_path / "b")
    turned = dict(reversed(CONFIG.items()))
    (b / "config.json").write_text(json.dumps(turned, indent=7))
    assert digest(a) == digest(b)


@pytest.mark.parametrize("name", ["hf_quant_config.json", "quantize_config.json"])
def test_should_cover_a_quantisation_that_lies_beside(tmp_path: Path, name: str) -> None:
    folders = [write_model(tmp_path / bits) for bits in "48"]
    for folder in folders:
        (folder / name).write_text(json.dumps({"bits": folder.name}))
    assert len({digest(folder) for folder in folders}) == 2


def test_should_take_the_callers_configuration_instead(tmp_path: Path) -> None:
    a = write_model(tmp_path / "a")
    b = write_model(tmp_path / "b", config={"other": 1})
    config = {**CONFIG, "id2label": {0: "x", 1: "y"}, "ranges": (1, math.inf)}
    assert digest(a, config=config) == digest(b, config=dict(config))
    assert digest(a, config=config) != digest(a, config={**config, "rope_theta": 5.0})


def test_should_cover_code_that_comes_with_a_model(tmp_path: Path) -> None:
    config = {**CONFIG, "auto_map": {"AutoModel": "modeling.M"}}
    a, b = (write_model(tmp_path / name, config=config) for name in "ab")
    (a / "modeling.py").write_text("scale = 1\n")
    (b / "modeling.py").write_text("scale = 2\n")
    assert digest(a) != digest(b)


def test_should_overlook_scripts_beside_a_model_without_code(tmp_path: Path) -> None:
    a, b = write_model(tmp_path / "a"), write_model(tmp_path / "b")
    (b / "upload.py").write_text("print()\n")
    (b / "README.md").write_text("hello\n")
    assert digest(a) == digest(b)


def test_should_find_a_model_equal_however_it_is_split(tmp_path: Path) -> None:
    tensors = default_tensors()
    names = list(tensors)
    one = write_model(tmp_path / "one", tensors)
    split = [{names[2]: tensors[names[2]]}, {n: tensors[n] for n in names[:2]}]
    assert digest(one) == digest(write_sharded(tmp_path / "two", split))
    assert digest(one) == digest(write_sharded(tmp_path / "three", split, index=False))


@pytest.mark.parametrize("other", [("x", "F16", [64]), ("x", "BF16", [8, 8]), ("y", "BF16", [64])])
def test_should_tell_headers_apart_over_the_same_bytes(
    tmp_path: Path, other: tuple[str, str, list[int]]
) -> None:
    content = noise(1, 128)
    a = write_model(tmp_path / "a", {"x": ("BF16", [64], content)})
    b = write_model(tmp_path / "b", {other[0]: (other[1], other[2], content)})
    assert digest(a) != digest(b)


def test_should_frame_each_field_by_its_length() -> None:
    digests = set()
    for fields in (["ab", "c"], ["a", "bc"], ["abc"], ["", "abc"], ["abc", ""]):
        running = Digest("test")
        for field in fields:
            running.text(field)
        digests.add(running.hex())
    assert len(digests) == 5


def test_should_heed_which_files_an_index_lists(tmp_path: Path) -> None:
    shards = [{name: tensor} for name, tensor in default_tensors().items()]
    all_listed = write_sharded(tmp_path / "all", shards)
    first_listed = write_sharded(tmp_path / "first", shards)
    name = next(iter(default_tensors()))
    write_index(first_listed, {name: "model-00001-of-00003.safetensors"})
    assert digest(all_listed) != digest(first_listed)


def test_should_tell_swapped_tensors_apart(tmp_path: Path) -> None:
    x, y = noise(1, 8192), noise(2, 8192)
    a = write_model(tmp_path / "a", {"x": ("U8", [8192], x), "y": ("U8", [8192], y)})
    b = write_model(tmp_path / "b", {"x": ("U8", [8192], y), "y": ("U8", [8192], x)})
    assert digest(a) != digest(b)


def test_should_heed_which_of_two_tensors_of_one_name_is_loaded(tmp_path: Path) -> None:
    first, second = default_tensors(1), default_tensors(50)
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    folders = []
    for chosen in names:
        folder = write_sharded(tmp_path / chosen[:11], [first, second])
        write_index(folder, dict.fromkeys(first, chosen))
        folders.append(folder)
    folders.append(write_sharded(tmp_path / "turned", [second, first], index=False))
    folders.append(write_sharded(tmp_path / "plain", [first, second], index=False))
    assert len({digest(folder) for folder in folders}) == 4


def test_should_heed_metadata_of_a_header(tmp_path: Path) -> None:
    a = write_model(tmp_path / "a", metadata={"format": "pt"})
    b = write_model(tmp_path / "b", metadata={"format": "pt", "group_size": "32"})
    assert digest(a) != digest(b)


def test_should_follow_links_as_the_hub_cache_has_them(tmp_path: Path) -> None:
    plain = write_model(tmp_path / "plain")
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "f00d"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(plain / name, blobs / f"blob-of-{name}")
        (snapshot / name).symlink_to(os.path.join("..", "..", "blobs", f"blob-of-{name}"))
    link = tmp_path / "link"
    link.symlink_to(snapshot, target_is_directory=True)
    assert digest(plain) == digest(snapshot) == digest(link)


def llama_8b() -> list[tuple[str, list[int]]]:
    wide, narrow, inner = 4096, 1024, 14336
    out = [("model.embed_tokens.weight", [128256, wide]), ("lm_head.weight", [128256, wide])]
    out.append(("model.norm.weight", [wide]))
    shapes = {
        "q_proj": [wide, wide],
        "k_proj": [narrow, wide],
        "v_proj": [narrow, wide],
        "o_proj": [wide, wide],
        "gate_proj": [inner, wide],
        "up_proj": [inner, wide],
        "down_proj": [wide, inner],
        "input_layernorm": [wide],
        "post_attention_layernorm": [wide],
    }
    for layer in range(32):
        out += [(f"model.layers.{layer}.{name}.weight", s) for name, s in shapes.items()]
    return out


def test_should_read_about_one_mib_of_eight_billion_parameters(tmp_path: Path) -> None:
    header, end = {}, 0
    for name, shape in llama_8b():
        n = math.prod(shape) * 2
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + n]}
        end += n
    text = json.dumps(header).encode()
    write_model(tmp_path, {})
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + end)
    found = identity.model(tmp_path)
    assert found.tensors == 291
    assert found.bytes_total > 16e9
    assert found.bytes_read < 1.1 * (1 << 20)


def test_should_not_read_again_what_did_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = identity.model(write_model(tmp_path))
    monkeypatch.setattr(sample, "sample", None)
    assert identity.model(tmp_path) is first


def test_should_read_again_what_changed_in_place(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    path = folder / "model.safetensors"
    before = path.stat()
    first = identity.model(folder)
    patch(path, -1, b"\x01")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert identity.model(folder).digest != first.digest


def test_should_read_again_after_a_file_was_replaced(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "a")
    first = identity.model(folder)
    (tmp_path / "new").write_bytes(safetensors_bytes(default_tensors(77)))
    os.replace(tmp_path / "new", folder / "model.safetensors")
    assert identity.model(folder).digest != first.digest


def test_should_identify_a_configuration_alone(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    alone = identity.only_configuration(folder)
    assert (alone.kind, alone.tensors, alone.files) == ("configuration", 0, ("config.json",))
    assert alone.digest not in (digest(folder), identity.only_configuration(CONFIG).digest)
    same = identity.only_configuration({**CONFIG, "transformers_version": "5"})
    assert same.digest == identity.only_configuration(CONFIG).digest
