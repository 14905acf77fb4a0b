# SPDX-License-Identifier: Apache-2.0
"""The identity of a model: what must be equal for two engines to compute equal KV from it.

It is a SHA-256 over length-framed fields (digest.py), in this order:

 1. "kvpool-model-1";
 2. the configuration: config.json and params.json, or what the caller gave instead; the files that
    describe a quantisation; of models that bring their own code, the code. In canonical JSON,
    without the fields that only say where the model came from;
 3. of safetensors files, each different metadata; of GGUF files, each whole header, hashed;
 4. every tensor, ordered by name: name, type, shape, bytes, and the hash of its sample (sample.py).

So copies are equal wherever they lie, whatever their folders are called and however safetensors are
split over files. Two fine-tunes differ by the bytes of any tensor that training touched. Names of
files are covered only where they decide which of two tensors of one name is loaded.

Not covered: what an engine is told beside the folder. An option that changes the KV computed from
the same files (the load format, a quantisation made while loading) belongs in the layout too.

Any process; a few milliseconds a hundred tensors when the files are in memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from kvpool.identity import configuration, sample, weights
from kvpool.identity.digest import Digest
from kvpool.identity.files import printable, resolve
from kvpool.identity.memory import remember
from kvpool.identity.result import Identity, Unidentified

Path = str | os.PathLike[str]


def _found(
    path: str, config: Mapping[str, Any] | None
) -> tuple[list[configuration.Field], weights.Weights]:
    """The fields and the weights of a folder or of a file."""
    if os.path.isdir(path):
        found = weights.of_folder(path)
        # A GGUF header has the configuration in it.
        if found.kind == "gguf" and config is None:
            return [], found
        return configuration.of_folder(path, config), found
    if not os.path.exists(path):
        raise Unidentified(f"{printable(path)}: no such file or folder")
    if path.endswith(".gguf"):
        return ([] if config is None else [configuration.given(config)]), weights.from_gguf(path)
    raise Unidentified(f"{printable(path)}: neither a folder nor a GGUF file")


def _identify(path: str, config: Mapping[str, Any] | None) -> Identity:
    began = time.monotonic()
    fields, found = _found(path, config)
    running = Digest("kvpool-model-1")
    configuration.add(running, fields)
    running.number(len(found.headers))
    for header in found.headers:
        running.raw(header)
    sample.add(running, found.tensors)
    return Identity(
        digest=running.hex(),
        kind=found.kind,
        files=tuple(printable(name) for name in [f.name for f in fields if f.name] + found.files),
        tensors=len(found.tensors),
        bytes_total=found.bytes_total,
        bytes_read=found.bytes_read + sum(len(f.text) for f in fields if f.name),
        seconds=time.monotonic() - began,
    )


def model(path: Path, *, config: Mapping[str, Any] | None = None) -> Identity:
    """Identifies the model in a folder (safetensors or GGUF), or in a GGUF file.

    `config`: the configuration as the engine runs it, in place of config.json: JSON values only.
    Identities are comparable between callers that get it the same way.

    Raises Unidentified, and nothing else about the files, where the folder cannot be read, has no
    weights or only pickled ones, or a file is truncated, malformed, changed meanwhile, or not what
    its header says. KV of such a model must not be shared.
    """
    where = resolve(path)
    fixed = None if config is None else configuration.given(config).text
    paths = [where] if os.path.isdir(where) else weights.parts(where)
    return remember(("model", where, fixed), paths, lambda: _identify(where, config))


def only_configuration(config: Mapping[str, Any] | Path) -> Identity:
    """Identifies a configuration alone: a mapping, or a model's folder.

    For weights that are not read from files because they follow from the configuration, as dummy
    weights from a fixed seed do. Never for a model that has weight files. Raises Unidentified.
    """
    began = time.monotonic()
    if isinstance(config, Mapping):
        fields = [configuration.given(config)]
    else:
        fields = configuration.of_folder(resolve(config), None)
    running = Digest("kvpool-configuration-1")
    configuration.add(running, fields)
    return Identity(
        digest=running.hex(),
        kind="configuration",
        files=tuple(printable(f.name) for f in fields if f.name),
        tensors=0,
        bytes_total=0,
        bytes_read=sum(len(f.text) for f in fields if f.name),
        seconds=time.monotonic() - began,
    )
