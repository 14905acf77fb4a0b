# SPDX-License-Identifier: Apache-2.0
"""The identity of an adapter (a PEFT folder): by its content, never by its name.

All bytes of its safetensors files count: an adapter is small. One of more than 1 GiB is sampled as
models are. Of adapter_config.json all counts but the name of the base model, which the model's own
identity says better, and the version of what saved it.

Any process; about a second a GiB when the files are in memory.
"""

from __future__ import annotations

import hashlib
import os
import time

from kvpool.identity import digest, files, safetensors, sample
from kvpool.identity.digest import Digest
from kvpool.identity.memory import remember
from kvpool.identity.result import Identity, Unidentified

_CONFIG = "adapter_config.json"
_CONFIG_BYTES_MAX = 16 << 20
_WEIGHTS = "adapter_model.safetensors"
_PICKLED = ("adapter_model.bin", "adapter_model.pt")
_DROPPED = frozenset({"base_model_name_or_path", "peft_version"})

WHOLE_BYTES_MAX = 1 << 30
_CHUNK_BYTES = 1 << 20


def _weight_files(folder: str) -> list[str]:
    present = files.names(folder)
    where = files.printable(folder)
    if _CONFIG not in present:
        raise Unidentified(f"{where}: no {_CONFIG}")
    if _WEIGHTS not in present:
        pickled = [name for name in _PICKLED if name in present]
        if pickled:
            raise Unidentified(f"{where}: weights only as {pickled[0]}; convert them to {_WEIGHTS}")
        raise Unidentified(f"{where}: no {_WEIGHTS}")
    return [name for name in present if name.endswith(".safetensors")]


def _size(path: str) -> int:
    with files.File(path) as file:
        return file.size


def _whole(file: files.File) -> bytes:
    sha = hashlib.sha256()
    for offset in range(0, file.size, _CHUNK_BYTES):
        sha.update(file.read(offset, min(_CHUNK_BYTES, file.size - offset)))
    return sha.digest()


def _identify(folder: str) -> Identity:
    began = time.monotonic()
    names = _weight_files(folder)
    text = files.whole(os.path.join(folder, _CONFIG), _CONFIG_BYTES_MAX)
    settings = digest.parse(text, _CONFIG)
    if not isinstance(settings, dict):
        raise Unidentified(f"{files.printable(folder)}: {_CONFIG}: not an object")
    config = digest.canonical(settings, _CONFIG, _DROPPED)
    total = sum(_size(os.path.join(folder, name)) for name in names)
    running = Digest("kvpool-adapter-1")
    running.text("whole" if total <= WHOLE_BYTES_MAX else "sampled")
    running.raw(config)
    running.number(len(names))
    tensors = read = 0
    for name in names:
        with files.File(os.path.join(folder, name)) as file:
            header = safetensors.read(file)
            running.text(name)
            if total <= WHOLE_BYTES_MAX:
                running.raw(_whole(file))
            else:
                running.raw(header.metadata)
                sample.add(running, sample.sample(file, name, header.tensors))
        tensors += len(header.tensors)
        read += file.bytes_read
    if tensors == 0:
        raise Unidentified(f"{files.printable(folder)}: {_WEIGHTS} holds no tensor")
    return Identity(
        digest=running.hex(),
        kind="adapter",
        files=tuple(files.printable(name) for name in [_CONFIG, *names]),
        tensors=tensors,
        bytes_total=total,
        bytes_read=read + len(text),
        seconds=time.monotonic() - began,
    )


def adapter(path: str | os.PathLike[str]) -> Identity:
    """Identifies the adapter in a PEFT folder.

    Raises Unidentified, and nothing else about the files, where the folder cannot be read, has
    pickled weights or none, or a file is truncated, malformed or changed meanwhile. KV computed
    with such an adapter must not be shared.
    """
    where = files.resolve(path)
    return remember(("adapter", where), [where], lambda: _identify(where))
