# SPDX-License-Identifier: Apache-2.0
"""What vLLM's configuration says that decides whether, and with whom, KV may be shared.

Runs in the front end (the plugin) and in the scheduler's process. Raises
:class:`~.geometry.Unsupported` with a sentence where KV must not be shared.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from typing import Any

from kvpool import identity
from kvpool.vllm.geometry import Unsupported

_WEIGHT_FORMATS = ("auto", "hf", "safetensors", "fastsafetensors", "runai_streamer")


def check(config: Any) -> None:
    """Refuses what the connector does not do; the engine then runs without it."""
    model, parallel = config.model_config, config.parallel_config
    if model is None:
        raise Unsupported("no model")
    if model.runner_type != "generate":
        raise Unsupported(f"a model that runs as {model.runner_type}")
    if model.is_encoder_decoder:
        raise Unsupported("a model with an encoder")
    if getattr(model, "is_attention_free", False) or getattr(model, "is_hybrid", False):
        raise Unsupported("a model with recurrent state")
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            raise Unsupported(f"{name} above 1")
    speculative = config.speculative_config
    if speculative is not None and (speculative.use_eagle() or speculative.uses_draft_model()):
        raise Unsupported("speculative decoding with draft layers in the KV cache")
    if getattr(config.cache_config, "calculate_kv_scales", False):
        raise Unsupported("scales of the quantised KV cache that are computed at run time")
    if getattr(config.cache_config, "use_replayssm", False):
        raise Unsupported("ReplaySSM")
    expandable = "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    if expandable and not getattr(model, "enable_cumem_allocator", False):
        raise Unsupported("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")


def check_device() -> None:
    """Refuses devices whose memory this release cannot copy from."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        raise Unsupported(
            f"KV cache on {current_platform.device_type}: this release copies from and to the "
            "host's memory only"
        )


def hash_seed(algorithm: str) -> str:
    """The seed of vLLM's chain of block hashes; private to the process where it is random."""
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import resolve_none_hash_seed

    seed = str(resolve_none_hash_seed(get_hash_fn_by_name(algorithm)))
    if algorithm.startswith("xxhash") and os.environ.get("PYTHONHASHSEED") is None:
        # The one that vLLM draws is not this one; what matters is that nobody else has it.
        raise identity.Unidentified(
            f"{algorithm} hashes start from a seed of their own in every process; use sha256, or "
            "set PYTHONHASHSEED to the same value everywhere"
        )
    return seed


def model_identity(config: Any) -> str:
    """Digest of the weights and of the configuration in force. Raises identity.Unidentified."""
    model, load = config.model_config, config.load_config
    load_format = str(getattr(load, "load_format", "auto"))
    settings = _configuration(model)
    if load_format == "dummy":
        return _digest("dummy weights", settings, _torch_version())
    if load_format not in _WEIGHT_FORMATS and load_format != "gguf":
        raise identity.Unidentified(f"weights loaded as {load_format} are not identified")
    path = _weights(model, load)
    found = identity.model(path, config=settings)
    return found.digest


def adapter_identity(path: str) -> str:
    """Digest of an adapter's content; a path, or a name that was downloaded before."""
    folder = path if os.path.isdir(path) else _downloaded(path, None, None)
    return identity.adapter(folder).digest


def numerics(config: Any) -> str:
    """Types of weights, computation and KV, as far as they change KV bytes."""
    model, cache = config.model_config, config.cache_config
    return "/".join(
        str(word) for word in (model.dtype, model.quantization or "none", cache.cache_dtype)
    )


def private() -> str:
    """An identity that nobody else has."""
    return f"private {secrets.token_hex(16)}"


def _configuration(model: Any) -> dict[str, Any]:
    """The configuration that the engine uses, after a user's overrides."""
    text = model.hf_config.to_json_string(use_diff=False)
    settings = json.loads(text)
    for volatile in ("_name_or_path", "transformers_version", "_commit_hash"):
        settings.pop(volatile, None)
    return dict(settings)


def _weights(model: Any, load: Any) -> str:
    name = str(getattr(model, "model_weights", "") or model.model)
    if os.path.exists(name):
        return name
    return _downloaded(name, model.revision, getattr(load, "download_dir", None))


def _downloaded(name: str, revision: str | None, folder: str | None) -> str:
    """The folder to which the hub's library downloaded a model before; never downloads."""
    try:
        from huggingface_hub import snapshot_download

        return str(
            snapshot_download(name, revision=revision, cache_dir=folder, local_files_only=True)
        )
    except Exception as e:
        raise identity.Unidentified(f"{name} is neither a folder nor in the hub's cache") from e


def _digest(*words: Any) -> str:
    state = hashlib.sha256()
    for word in words:
        data = json.dumps(word, sort_keys=True, default=str).encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
