# SPDX-License-Identifier: Apache-2.0
"""Writes small models, adapters and GGUF files for the tests, by hand and not by a library.

Pure functions over folders of one test.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG = {"model_type": "llama", "hidden_size": 64, "architectures": ["LlamaForCausalLM"]}

Tensors = Mapping[str, tuple[str, list[int], bytes]]


def noise(seed: int, n: int) -> bytes:
    """`n` bytes that differ from those of another seed everywhere."""
    return bytes((seed * 131 + i * (2 * seed + 7) + (i >> 8)) & 0xFF for i in range(n))


def default_tensors(seed: int = 1) -> dict[str, tuple[str, list[int], bytes]]:
    """Two layers and an embedding: a long tensor, a middling one and a short one."""
    return {
        "model.embed.weight": ("BF16", [128, 64], noise(seed, 128 * 64 * 2)),
        "model.layers.0.w": ("BF16", [64, 64], noise(seed + 1, 64 * 64 * 2)),
        "model.norm": ("F32", [64], noise(seed + 2, 256)),
    }


def safetensors_bytes(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        place = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": place}
        data += content
    return framed(json.dumps(header).encode(), data)


def framed(header: bytes, data: bytes = b"") -> bytes:
    """A safetensors file with this header, whatever it says."""
    return struct.pack("<Q", len(header)) + header + data


def write_model(
    folder: Path,
    tensors: Tensors | None = None,
    config: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """A folder with config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    content = safetensors_bytes(default_tensors() if tensors is None else tensors, metadata)
    (folder / "model.safetensors").write_bytes(content)
    return folder


def write_sharded(folder: Path, shards: list[Tensors], index: bool = True) -> Path:
    """A folder with config.json, shards, and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    weight_map: dict[str, str] = {}
    for i, tensors in enumerate(shards, 1):
        name = f"model-{i:05}-of-{len(shards):05}.safetensors"
        (folder / name).write_bytes(safetensors_bytes(tensors))
        weight_map.update(dict.fromkeys(tensors, name))
    if index:
        write_index(folder, weight_map)
    return folder


def write_index(folder: Path, weight_map: Mapping[str, str]) -> None:
    """The file that says which shard a tensor is loaded from."""
    text = json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text)


def write_adapter(
    folder: Path, tensors: Tensors | None = None, config: Mapping[str, Any] | None = None
) -> Path:
    """A PEFT folder."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"peft_type": "LORA", "r": 8, "base_model_name_or_path": str(folder)}
    (folder / "adapter_config.json").write_text(json.dumps(settings if config is None else config))
    content = safetensors_bytes(default_tensors() if tensors is None else tensors)
    (folder / "adapter_model.safetensors").write_bytes(content)
    return folder


def gguf_string(text: str | bytes) -> bytes:
    """A string as GGUF has it."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def gguf_pairs() -> list[bytes]:
    """Metadata of every shape: text, number, list of texts, list of numbers, list of lists."""
    return [
        gguf_string("general.architecture") + struct.pack("<I", 8) + gguf_string("gemma3"),
        gguf_string("gemma3.block_count") + struct.pack("<II", 4, 2),
        gguf_string("tokenizer.tokens")
        + struct.pack("<IIQ", 9, 8, 3)
        + b"".join(map(gguf_string, ("a", "bc", ""))),
        gguf_string("tokenizer.scores") + struct.pack("<IIQ3f", 9, 6, 3, 0.0, 1.0, 2.0),
        gguf_string("lists") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ2B", 0, 2, 7, 8),
    ]


def gguf_bytes(
    tensors: Mapping[str, tuple[int, list[int], bytes]],
    pairs: list[bytes] | None = None,
    alignment: int = 32,
    offsets: Mapping[str, int] | None = None,
) -> bytes:
    """A GGUF file. `offsets`: lies about where tensors are."""
    pairs = gguf_pairs() if pairs is None else pairs
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs)
    data = b""
    for name, (kind, shape, content) in tensors.items():
        offset = (offsets or {}).get(name, len(data))
        head += gguf_string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", kind, offset)
        data += content + bytes(-len(content) % alignment)
    return head + bytes(-len(head) % alignment) + data


def default_gguf(seed: int = 1) -> dict[str, tuple[int, list[int], bytes]]:
    """A Q4_K matrix of 40 rows of 256 (144 bytes each), and a vector of floats."""
    return {
        "blk.0.w": (12, [256, 40], noise(seed, 40 * 144)),
        "norm": (0, [64], noise(seed + 1, 256)),
    }


def patch(path: Path, offset: int, content: bytes) -> None:
    """Overwrites bytes of a file where it stands. `offset` below 0 counts from its end."""
    with open(path, "r+b") as file:
        file.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
        file.write(content)
