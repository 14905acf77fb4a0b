# SPDX-License-Identifier: Apache-2.0
"""A long prompt that reaches both engines in the same instant is computed once."""

from __future__ import annotations

from fleet import Fleet
from models import LOGPROBS, ask, assert_agrees, shared_tokens

ANSWER = 16
LONG = 3000
ROUNDS = 4


def computed_tokens(fleet: Fleet) -> float:
    """Prompt tokens that the two engines have computed, by their own counters."""
    name = 'vllm:prompt_tokens_by_source_total{source="local_compute"}'
    return sum(engine.metrics()[name] for engine in (fleet.first, fleet.second))


def test_should_compute_once_what_reaches_both_engines_in_the_same_instant(
    smollm2: Fleet,
) -> None:
    # Both engines learn how fast they compute: a wait is never longer than that.
    for engine in (smollm2.first, smollm2.second):
        engine.generate(smollm2.model.prompt(LONG, f"speed of {engine.name}"), 1)
    before = computed_tokens(smollm2)
    saved = 0
    for number in range(ROUNDS):
        prompt = smollm2.model.prompt(LONG, f"same instant {number}")
        control = ask(smollm2.control, prompt, ANSWER)
        requests = [
            (engine, engine.submit(prompt, ANSWER, logprobs=LOGPROBS))
            for engine in (smollm2.first, smollm2.second)
        ]
        results = [engine.result(request) for engine, request in requests]
        for result in results:
            assert_agrees(result, control, f"round {number}")
        saved += sum(result.cached for result in results)
    computed = computed_tokens(smollm2) - before
    assert computed == ROUNDS * 2 * LONG - saved
    # What follows the last full block is computed by both.
    once = ROUNDS * (2 * LONG - shared_tokens(LONG))
    # On a busy machine one of the rounds may wait in vain, and compute twice.
    most = once + shared_tokens(LONG)
    assert computed <= most, f"{computed:.0f} tokens computed, once is {once}"
