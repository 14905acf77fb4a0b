# SPDX-License-Identifier: Apache-2.0
"""LoRA: what one adapter computed is found for this adapter alone, whatever it is called."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine.process import model_dir
from fleet import Fleet
from models import MODELS, SMOLLM2, ask, assert_agrees, shared_tokens

ANSWER = 24
LENGTH = 800

# One name, one number, other content: which one it is, only the content tells.
ADAPTER_A = {"name": "adapter", "id": 1, "path": str(model_dir("lora-a"))}
ADAPTER_B = {"name": "adapter", "id": 1, "path": str(model_dir("lora-b"))}
CONTROL_A = ADAPTER_A | {"name": "a", "id": 1}
CONTROL_B = ADAPTER_B | {"name": "b", "id": 2}


@pytest.fixture(scope="module")
def lora(no_fleet: None) -> Iterator[Fleet]:
    """Engines that take adapters."""
    fleet = Fleet(MODELS[SMOLLM2], enable_lora=True, max_loras=2, max_lora_rank=8)
    yield fleet
    fleet.close()


def test_should_share_within_an_adapter_and_never_across(lora: Fleet) -> None:
    prompt = lora.model.prompt(LENGTH, "adapters")
    control_base = ask(lora.control, prompt, ANSWER)
    control_a = ask(lora.control, prompt, ANSWER, lora=CONTROL_A)
    control_b = ask(lora.control, prompt, ANSWER, lora=CONTROL_B)
    answers = [tuple(each.tokens) for each in (control_base, control_a, control_b)]
    assert len(set(answers)) == 3, "the adapters change nothing"

    base = ask(lora.first, prompt, ANSWER)
    a = ask(lora.second, prompt, ANSWER, lora=ADAPTER_A)
    assert (base.cached, a.cached) == (0, 0)
    assert_agrees(base, control_base, "base computed")
    assert_agrees(a, control_a, "adapter A computed beside the base's blocks")

    a_found = ask(lora.first, prompt, ANSWER, lora=ADAPTER_A)
    base_found = ask(lora.second, prompt, ANSWER)
    assert (a_found.cached, base_found.cached) == (shared_tokens(LENGTH), shared_tokens(LENGTH))
    assert_agrees(a_found, control_a, "adapter A found")
    assert_agrees(base_found, control_base, "base found")

    # An engine that knows B by the name and number under which the others know A.
    lora.second.kill()
    lora.ensure()
    b = ask(lora.second, prompt, ANSWER, lora=ADAPTER_B)
    assert b.cached == 0
    assert_agrees(b, control_b, "adapter B computed beside A's blocks")
    assert ask(lora.second, prompt, ANSWER).cached == shared_tokens(LENGTH)
