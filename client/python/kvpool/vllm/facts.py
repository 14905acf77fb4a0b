# SPDX-License-Identifier: Apache-2.0
"""What vLLM's configuration says that decides whether, and with whom, KV may be shared.

Runs in the front end (the plugin) and in the scheduler's process. Raises
:class:`~.geometry.Unsupported` with a sentence where KV must not be shared.
"""

from __future__ import annotations

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
        digest = identity.only_configuration(settings).digest
        return f"{digest} with dummy weights of torch {_torch_version()}"
    if load_format not in _WEIGHT_FORMATS and load_format != "gguf":
        raise identity.Unidentified(f"weights loaded as {load_format} are not identified")
    name = str(getattr(model, "model_weights", "") or model.model)
    cache = getattr(load, "download_dir", None)
    path = identity.locate(name, revision=model.revision, cache=cache)
    return identity.model(path, config=settings).digest


def adapter_identity(path: str) -> str:
    """Digest of an adapter's content; a path, or a name that was downloaded before."""
    return identity.adapter(identity.locate(path)).digest


def block_tokens(config: Any, kv_cache_config: Any) -> int:
    """Tokens of a block, as vLLM's hashes count them."""
    return int(kv_cache_config.hash_block_size or config.cache_config.block_size)


def model_label(config: Any) -> str:
    """The model's last name, for people."""
    return os.path.basename(str(config.model_config.model).rstrip("/"))


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
    return dict(json.loads(model.hf_config.to_json_string(use_diff=False)))


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
