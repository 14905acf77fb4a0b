# SPDX-License-Identifier: Apache-2.0
"""GGUF models: equal for copies, told apart by any tensor, refused where the header lies."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from kvpool import identity
from kvpool.identity import gguf
from weight_files import default_gguf, gguf_bytes, gguf_pairs, gguf_string, noise, patch


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def reason(path: Path) -> str:
    with pytest.raises(identity.Unidentified) as caught:
        identity.model(path)
    return caught.value.reason


def test_should_find_a_copy_equal_as_file_and_as_folder(tmp_path: Path) -> None:
    a = write(tmp_path / "a" / "m.gguf", gguf_bytes(default_gguf()))
    b = write(tmp_path / "b" / "other.gguf", gguf_bytes(default_gguf()))
    found = identity.model(a)
    assert (found.kind, found.files, found.tensors) == ("gguf", ("m.gguf",), 2)
    assert len({found.digest, identity.model(b).digest, identity.model(b.parent).digest}) == 1


@pytest.mark.parametrize("name", list(default_gguf()))
def test_should_tell_quantised_weights_apart_by_any_one_tensor(tmp_path: Path, name: str) -> None:
    tensors = default_gguf()
    kind, shape, content = tensors[name]
    a = write(tmp_path / "a.gguf", gguf_bytes(tensors))
    changed = {**tensors, name: (kind, shape, noise(98, len(content)))}
    b = write(tmp_path / "b.gguf", gguf_bytes(changed))
    assert a.stat().st_size == b.stat().st_size
    assert identity.model(a).digest != identity.model(b).digest


def test_should_heed_every_byte_of_a_header(tmp_path: Path) -> None:
    pairs = gguf_pairs()
    a = write(tmp_path / "a.gguf", gguf_bytes(default_gguf(), pairs))
    pairs[3] = pairs[3][:-1] + b"\x41"
    b = write(tmp_path / "b.gguf", gguf_bytes(default_gguf(), pairs))
    assert identity.model(a).digest != identity.model(b).digest


def test_should_heed_a_configuration_given_beside_the_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", gguf_bytes(default_gguf()))
    plain = identity.model(path).digest
    assert identity.model(path, config={"rope_theta": 1.0}).digest != plain


def test_should_honour_an_alignment_of_its_own(tmp_path: Path) -> None:
    pairs = [*gguf_pairs(), gguf_string("general.alignment") + struct.pack("<II", 4, 256)]
    path = write(tmp_path / "a.gguf", gguf_bytes(default_gguf(), pairs, alignment=256))
    assert identity.model(path).tensors == 2
    assert "aligned" in reason(write(tmp_path / "b.gguf", gguf_bytes(default_gguf(), pairs)))


def test_should_take_all_parts_of_a_split_model(tmp_path: Path) -> None:
    tensors = list(default_gguf().items())
    for i, one in enumerate(tensors, 1):
        write(tmp_path / f"m-0000{i}-of-00002.gguf", gguf_bytes(dict([one])))
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    found = identity.model(first)
    assert found.files == (first.name, second.name)
    assert identity.model(second).digest == found.digest == identity.model(tmp_path).digest
    patch(second, -1, b"\xa5")
    assert identity.model(first).digest != found.digest
    second.unlink()
    assert second.name in reason(first)


def test_should_refuse_to_choose_among_models_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "m-q4.gguf", gguf_bytes(default_gguf()))
    write(tmp_path / "m-q8.gguf", gguf_bytes(default_gguf()))
    assert "name the file" in reason(tmp_path)


def test_should_take_unknown_types_with_all_that_lies_before_the_next(tmp_path: Path) -> None:
    tensors = {**default_gguf(), "new": (250, [7], noise(4, 320))}
    a = write(tmp_path / "a.gguf", gguf_bytes(tensors))
    first = identity.model(a)
    assert first.tensors == 3
    patch(a, -1, b"\xa5")
    assert identity.model(a).digest != first.digest


def test_should_refuse_a_file_wherever_it_is_cut(tmp_path: Path) -> None:
    content = gguf_bytes(default_gguf())
    whole = identity.model(write(tmp_path / "m.gguf", content)).tensors
    assert whole == 2
    for size in [*range(0, 600, 7), len(content) - 256, len(content) - 300]:
        path = write(tmp_path / "cut.gguf", content[:size])
        assert "cut.gguf" in reason(path), size


def test_should_never_fail_otherwise_than_unidentified_on_damage(tmp_path: Path) -> None:
    content = gguf_bytes(default_gguf())
    reasons = []
    for at in range(600):
        damaged = (
            content[:at] + bytes([content[at] ^ (0x01, 0x80, 0xFF)[at % 3]]) + content[at + 1 :]
        )
        path = write(tmp_path / "damaged.gguf", damaged)
        try:
            identity.model(path)
        except identity.Unidentified as error:
            reasons.append(error.reason)
    assert len(reasons) > 100
    assert all("damaged.gguf" in reason for reason in reasons)


NESTED = gguf_string("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 6


def lie(name: str, offset: int) -> bytes:
    return gguf_bytes(default_gguf(), offsets={name: offset})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"GGML" + bytes(40), "not a GGUF file"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "no tensor"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 0), "truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 63), "truncated"),
        (gguf_bytes({}, [gguf_string("k") + struct.pack("<I", 99)]), "unknown type 99"),
        (gguf_bytes({}, [struct.pack("<Q", 1 << 62)]), "truncated"),
        (gguf_bytes({}, [gguf_string("k") + struct.pack("<IIQ", 9, 10, 1 << 60)]), "truncated"),
        (gguf_bytes({}, [NESTED]), "unknown type 9"),
        (
            gguf_bytes({}, [gguf_string("general.alignment") + struct.pack("<II", 4, 3)]),
            "power of two",
        ),
        (
            gguf_bytes({}, [gguf_string("general.alignment") + struct.pack("<IB", 0, 3)]),
            "no 32-bit number",
        ),
        (gguf_bytes({"x": (0, [1] * 5, bytes(4))}), "5 dimensions"),
        (gguf_bytes({"x": (12, [255], bytes(144))}), "no whole blocks"),
        (gguf_bytes({"x": (0, [1 << 40], bytes(64))}), "truncated"),
        (lie("norm", 32), "overlaps"),
        (lie("norm", 1 << 62), "truncated"),
        (lie("norm", 5777), "not aligned"),
        (gguf_bytes({"a": (250, [7], b""), "b": (0, [8], bytes(32))}), "no bytes of its own"),
    ],
    ids=range(19),
)
def test_should_refuse_a_gguf_header_that_lies(tmp_path: Path, content: bytes, why: str) -> None:
    assert why in reason(write(tmp_path / "m.gguf", content))


def test_should_refuse_two_tensors_of_one_name_in_a_file(tmp_path: Path) -> None:
    content = gguf_bytes({"aa": (0, [8], bytes(32)), "ab": (0, [8], bytes(32))})
    path = write(tmp_path / "m.gguf", content.replace(b"ab", b"aa"))
    assert "two tensors" in reason(path)


def test_should_refuse_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    content = gguf_bytes({"aa": (0, [8], bytes(32))}).replace(b"aa", b"\xc3a")
    assert "UTF-8" in reason(write(tmp_path / "m.gguf", content))


def test_should_refuse_a_gguf_header_that_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "HEADER_BYTES_MAX", 100)
    assert "header of more than 100 bytes" in reason(
        write(tmp_path / "m.gguf", gguf_bytes(default_gguf()))
    )


def test_should_refuse_a_file_that_is_no_model(tmp_path: Path) -> None:
    assert "neither a folder nor a GGUF file" in reason(write(tmp_path / "m.bin", b"x"))
    assert os.listdir(tmp_path) == ["m.bin"]
