# SPDX-License-Identifier: Apache-2.0
"""The weight files of a model: which they are, and what an identity covers of them.

Pure functions over files that nobody writes meanwhile.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any, NamedTuple

from kvpool.identity import digest, files, gguf, safetensors
from kvpool.identity.result import Unidentified
from kvpool.identity.sample import Sampled, sample

_INDEX = "model.safetensors.index.json"
_INDEX_BYTES_MAX = 128 << 20
_PICKLED = (".bin", ".pt", ".pth")
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


class Weights(NamedTuple):
    """What was found: sampled tensors, and header bytes that are covered besides them."""

    kind: str
    files: list[str]
    tensors: list[Sampled]
    headers: list[bytes]
    bytes_total: int
    bytes_read: int


def _index(folder: str, present: list[str]) -> dict[str, str] | None:
    """Which file each tensor is loaded from; None where nobody says."""
    if _INDEX not in present:
        return None
    path = os.path.join(folder, _INDEX)
    where = files.printable(path)
    parsed: Any = digest.parse(files.whole(path, _INDEX_BYTES_MAX), where)
    listed = parsed.get("weight_map") if isinstance(parsed, dict) else None
    if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
        raise Unidentified(f"{where}: no weight_map of file names")
    missing = sorted(set(listed.values()) - set(present))
    if missing:
        raise Unidentified(f"{where}: names {missing[0]}, which is not there")
    return listed


def _place(
    one: Sampled, index: dict[str, str] | None, listed: frozenset[str], times: Counter[str]
) -> str:
    """Empty, so that a model may be split anyhow, except where the file decides what is loaded."""
    if index is not None and one.file not in listed:
        return f"unlisted {one.file}"
    if times[one.tensor.name] > 1:
        chosen = index is not None and index.get(one.tensor.name) == one.file
        return f"{'chosen' if chosen else 'also'} {one.file}"
    return ""


def from_safetensors(folder: str, names: list[str], present: list[str]) -> Weights:
    """Headers and samples of safetensors files, and where an index says what of them is loaded."""
    index = _index(folder, present)
    tensors: list[Sampled] = []
    headers: set[bytes] = set()
    total = read = 0
    for name in names:
        with files.File(os.path.join(folder, name)) as file:
            header = safetensors.read(file)
            tensors += sample(file, name, header.tensors)
            headers.add(header.metadata)
        total += file.size
        read += file.bytes_read
    if not tensors:
        raise Unidentified(f"{files.printable(folder)}: its weight files hold no tensor")
    times = Counter(one.tensor.name for one in tensors)
    listed = frozenset(index.values()) if index is not None else frozenset()
    tensors = [one._replace(place=_place(one, index, listed, times)) for one in tensors]
    return Weights("safetensors", names, tensors, sorted(headers), total, read)


def parts(path: str) -> list[str]:
    """All parts of a GGUF model that is split over files, by one of them; else that one."""
    folder, name = os.path.split(path)
    match = _SPLIT.fullmatch(name)
    if not match:
        return [path]
    stem, count = match.group(1), int(match.group(3))
    if count > 99999 or int(match.group(2)) > count:
        return [path]
    return [os.path.join(folder, f"{stem}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]


def from_gguf(path: str) -> Weights:
    """Headers as they stand, and samples, of a GGUF file and the other parts of its model."""
    tensors: list[Sampled] = []
    headers: list[bytes] = []
    total = read = 0
    paths = parts(path)
    for part in paths:
        with files.File(part) as file:
            header = gguf.read(file)
            tensors += sample(file, os.path.basename(part), header.tensors)
            headers.append(header.sha256)
        total += file.size
        read += file.bytes_read
    if not tensors:
        raise Unidentified(f"{files.printable(path)}: holds no tensor")
    names = [os.path.basename(part) for part in paths]
    return Weights("gguf", names, tensors, headers, total, read)


def _one_gguf(folder: str, names: list[str]) -> str:
    """The GGUF model of a folder, where there is one only."""
    models = {_SPLIT.sub(r"\1", name) for name in names}
    if len(models) > 1:
        raise Unidentified(
            f"{files.printable(folder)}: several GGUF models ({', '.join(sorted(names)[:3])}, ...);"
            " name the file"
        )
    return os.path.join(folder, names[0])


def of_folder(folder: str) -> Weights:
    """The weights that an engine loads from a folder. Unidentified where there are none."""
    present = files.names(folder)
    where = files.printable(folder)
    names = [name for name in present if name.endswith(".safetensors")]
    if names:
        return from_safetensors(folder, names, present)
    names = [name for name in present if name.endswith(".gguf")]
    if names:
        return from_gguf(_one_gguf(folder, names))
    pickled = [name for name in present if name.endswith(_PICKLED)]
    if pickled:
        raise Unidentified(
            f"{where}: weights only as {pickled[0]}, which has no header to go by;"
            " convert them to safetensors"
        )
    raise Unidentified(f"{where}: no weights: neither *.safetensors nor *.gguf")
