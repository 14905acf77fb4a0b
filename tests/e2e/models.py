# SPDX-License-Identifier: Apache-2.0
"""The models of the proofs: what engines need for them, and prompts of an exact length."""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass, field
from typing import Any

from engine.process import Engine, Result, model_dir

BLOCK = 128  # tokens; what vLLM chooses on a CPU
SMOLLM2 = "smollm2-135m"
GEMMA3 = "gemma3-270m"
GPT_OSS = "gpt-oss-tiny"
# What bfloat16 changes in a logprob of these models when sums are made in another order.
NOISE = 0.25
LOGPROBS = 5

_PEOPLE = ("Ada", "Boris", "Chidi", "Dora", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jun")
_PLACES = ("Lisbon", "Oslo", "Quito", "Hanoi", "Tunis", "Perth", "Graz", "Lima", "Cork", "Kyoto")
_THINGS = ("a lamp", "two maps", "an old clock", "some bread", "a red boat", "the letters")
_DEEDS = ("bought", "sold", "lost", "found", "painted", "hid", "repaired", "carried")
_TIMES = ("in spring", "before noon", "after the war", "last winter", "on a Sunday", "at night")


@dataclass(frozen=True)
class Model:
    """A model that tools/engines made. `window`: tokens that its sliding layers see; 0: none."""

    name: str
    window: int = 0
    bos: tuple[int, ...] = ()
    vocabulary: int = 0  # size, where there is no tokenizer: prompts are random tokens then
    arguments: dict[str, Any] = field(default_factory=dict)

    def prompt(self, tokens: int, seed: str) -> list[int]:
        """A prompt of exactly so many tokens, the same for the same seed."""
        if self.vocabulary:
            draw = random.Random(seed)
            return [draw.randrange(3, self.vocabulary) for _ in range(tokens)]
        room = tokens - len(self.bos)
        return [*self.bos, *encode(self.name, story(seed, room))[:room]]


# Engines' own caches, in blocks (of one group of layers): a few prompts, and little memory.
MODELS = {
    SMOLLM2: Model(SMOLLM2, arguments={"num_gpu_blocks_override": 100}),
    GEMMA3: Model(GEMMA3, window=512, bos=(2,), arguments={"num_gpu_blocks_override": 600}),
    GPT_OSS: Model(
        GPT_OSS,
        window=128,
        vocabulary=4096,
        arguments={"skip_tokenizer_init": True, "num_gpu_blocks_override": 200},
    ),
}


@functools.cache
def _tokenizer(name: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(model_dir(name) / "tokenizer.json"))


def encode(name: str, text: str) -> list[int]:
    """The tokens of a text, without any that the tokenizer adds."""
    return list(_tokenizer(name).encode(text, add_special_tokens=False).ids)


def story(seed: str, tokens: int) -> str:
    """Sentences of a seed, at least as many tokens long."""
    draw = random.Random(seed)
    sentences = []
    for number in range(tokens // 8 + 2):
        person, other = draw.sample(_PEOPLE, 2)
        sentences.append(
            f"{number + 1}. {person} {draw.choice(_DEEDS)} {draw.choice(_THINGS)} in "
            f"{draw.choice(_PLACES)} {draw.choice(_TIMES)}, and {other} paid {draw.randrange(900)}."
        )
    return " ".join(sentences)


def recital(model: Model, seed: str, rounds: int) -> list[int]:
    """A list of words again and again: a model goes on with it whatever the last bits of its sums
    are, so that answers can be compared where requests run in batches that differ."""
    draw = random.Random(seed)
    pairs = [
        f"{draw.choice(_PEOPLE)} {draw.choice(_DEEDS)} {draw.randrange(100, 999)}"
        for _ in range(12)
    ]
    return [*model.bos, *encode(model.name, (", ".join(pairs) + ", ") * rounds)]


def ask(engine: Engine, prompt: list[int], tokens: int, **more: Any) -> Result:
    """An answer with the logprobs that assert_agrees() wants."""
    return engine.generate(prompt, tokens, logprobs=LOGPROBS, **more)


def shared_tokens(tokens: int, block: int = BLOCK) -> int:
    """Prompt tokens that an engine need not compute when all full blocks of the prompt are there:
    the last token is always computed, since its logits are not stored."""
    return (tokens - 1) // block * block


def assert_same(result: Result, control: Result, what: str) -> None:
    """Tokens and logprobs are the control's, bit by bit: for a control that made the same sums,
    with as many tokens cached."""
    assert len(control.tokens) > 0, f"{what}: the control has no answer"
    assert result.cached == control.cached, f"{what}: cached tokens"
    both = f"{what}: {told(result)}, and the control {told(control)}"
    assert result.tokens == control.tokens, both
    assert result.logprobs == control.logprobs, both


def assert_agrees(result: Result, control: Result, what: str) -> None:
    """The tokens are the control's, where other sums were made (another number of tokens cached, in
    a batch with others): logprobs then differ in the last bits. Only where the control itself found
    two tokens as good as equal may the answers part; both need logprobs."""
    assert control.logprobs is not None, "the control was asked without logprobs"
    assert result.logprobs is not None, f"{what}: asked without logprobs"
    assert len(control.tokens) > 0, f"{what}: the control has no answer"
    both = f"{what}: {told(result)}, and the control {told(control)}"
    for position, (token, wanted) in enumerate(zip(result.tokens, control.tokens, strict=False)):
        row = control.logprobs[position]
        gap = row[wanted] - row.get(token, -math.inf)
        assert gap <= NOISE, f"token {position} of {both}"
        if token != wanted:
            return
        change = abs(result.logprobs[position][token] - row[wanted])
        assert change <= NOISE, f"logprob of token {position} is off by {change:.3f}: {both}"
    assert len(result.tokens) == len(control.tokens), both


def told(result: Result) -> str:
    """A result for a message."""
    return f"{result.tokens} ({result.text!r}, {result.cached} cached)"
