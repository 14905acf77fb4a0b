# SPDX-License-Identifier: Apache-2.0
"""Which configuration a model's identity covers: what an engine reads to run it, and no more.

Pure functions over a folder that nobody writes meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvpool.identity import digest, files
from kvpool.identity.result import Unidentified

# Say where a model came from and what saved it, not what it computes.
DROPPED = frozenset({"_name_or_path", "_commit_hash", "transformers_version"})

# One of these describes the model; the others say how its weights are quantised.
_MAIN = ("config.json", "params.json")
_QUANTIZATION = ("hf_quant_config.json", "quant_config.json", "quantize_config.json")
_FILE_BYTES_MAX = 16 << 20


class Field(NamedTuple):
    """One field of an identity: a file's name and what of it is covered. "" is no file."""

    name: str
    text: bytes


def _object(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    value = digest.parse(files.whole(path, _FILE_BYTES_MAX), files.printable(path))
    if not isinstance(value, dict):
        raise Unidentified(f"{files.printable(path)}: not an object")
    return value


def _code(folder: str, present: list[str]) -> list[Field]:
    """Code that comes with the model computes its KV: covered whole."""
    return [
        Field(name, files.whole(os.path.join(folder, name), _FILE_BYTES_MAX))
        for name in present
        if name.endswith(".py")
    ]


def given(config: Mapping[str, Any]) -> Field:
    """The field for a configuration that the caller has in hand."""
    if not isinstance(config, Mapping):
        raise Unidentified(f"config: {type(config).__name__} is no mapping")
    return Field("", digest.canonical(config, "config", DROPPED))


def of_folder(folder: str, config: Mapping[str, Any] | None) -> list[Field]:
    """The fields for a model's folder. `config` takes the place of its main file."""
    present = files.names(folder)
    main = [] if config is not None else [name for name in _MAIN if name in present]
    if config is None and not main:
        raise Unidentified(f"{files.printable(folder)}: no {' or '.join(_MAIN)}")
    fields = [] if config is None else [given(config)]
    objects: list[Mapping[str, Any]] = [] if config is None else [config]
    for name in (*main, *(name for name in _QUANTIZATION if name in present)):
        objects.append(_object(folder, name))
        fields.append(Field(name, digest.canonical(objects[-1], name, DROPPED)))
    if any("auto_map" in one for one in objects):
        fields += _code(folder, present)
    return fields


def add(running: digest.Digest, fields: list[Field]) -> None:
    """Adds the fields, in order."""
    running.number(len(fields))
    for field in fields:
        running.text(field.name)
        running.raw(field.text)
