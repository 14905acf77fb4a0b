# SPDX-License-Identifier: Apache-2.0
"""An engine whose own cache is too small for its requests: preemption, small steps, aborts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine.process import Engine, Result
from fleet import Fleet
from kvpoold import until
from models import BLOCK, LOGPROBS, MODELS, SMOLLM2, ask, assert_agrees, recital, shared_tokens

CACHE_BLOCKS = 18
CHUNK = 256
MAX_LEN = 2048


@pytest.fixture(scope="module")
def tight(no_fleet: None) -> Iterator[Fleet]:
    """Engines of 18 blocks, which prefill 256 tokens a step."""
    fleet = Fleet(
        MODELS[SMOLLM2],
        max_model_len=MAX_LEN,
        num_gpu_blocks_override=CACHE_BLOCKS,
        max_num_batched_tokens=CHUNK,
    )
    yield fleet
    fleet.close()


def answers(engine: Engine, prompts: list[list[int]], tokens: int) -> list[Result]:
    """All prompts at once."""
    requests = [
        engine.submit(prompt, tokens, ignore_eos=True, logprobs=LOGPROBS) for prompt in prompts
    ]
    return [engine.result(request) for request in requests]


def preemptions(engine: Engine) -> float:
    """How often the engine took a running request's blocks."""
    return engine.metrics()["vllm:num_preemptions_total"]


def test_should_answer_as_without_the_pool_when_requests_are_preempted(tight: Fleet) -> None:
    prompts = [recital(tight.model, f"preempted {n}", 8)[: 4 * BLOCK - 20] for n in range(4)]
    assert all(len(prompt) == 4 * BLOCK - 20 for prompt in prompts)
    control = answers(tight.control, prompts, 60)
    assert preemptions(tight.control) > 0, "the control shows no preemption: the case is not one"
    # In turn: computed and preempted while storing; found, and preempted while the pool has it.
    for engine in (tight.first, tight.second, tight.first):
        for result, wanted in zip(answers(engine, prompts, 60), control, strict=True):
            assert_agrees(result, wanted, f"{engine.name}, preempted")
        assert preemptions(engine) > 0


def test_should_share_prompts_that_are_prefilled_in_small_steps(tight: Fleet) -> None:
    prompt = tight.model.prompt(6 * CHUNK + 77, "small steps")
    control = ask(tight.control, prompt, 16)
    computed = ask(tight.first, prompt, 16)
    found = ask(tight.second, prompt, 16)
    assert (computed.cached, found.cached) == (0, shared_tokens(len(prompt)))
    assert_agrees(computed, control, "computed in small steps")
    assert_agrees(found, control, "found")


def test_should_find_more_than_the_engine_itself_can_keep(tight: Fleet) -> None:
    prompts = [tight.model.prompt(7 * BLOCK + 1, f"more than fits {n}") for n in range(5)]
    control = [ask(tight.control, prompt, 4) for prompt in prompts]
    for prompt, wanted in zip(prompts, control, strict=True):
        assert_agrees(ask(tight.first, prompt, 4), wanted, "computed")
    # The engine's own cache has the last of them alone.
    for prompt, wanted in zip(prompts, control, strict=True):
        result = ask(tight.first, prompt, 4)
        assert result.cached == 7 * BLOCK
        assert_agrees(result, wanted, "its own blocks, from the pool")


@pytest.mark.parametrize("chunks", [0, 2, 4])
def test_should_stay_right_when_a_request_is_aborted_while_it_stores(
    tight: Fleet, chunks: int
) -> None:
    prompt = tight.model.prompt(7 * CHUNK, f"aborted {chunks}")
    control = ask(tight.control, prompt, 16)
    before = tight.daemon.stored_blocks()
    request = tight.first.submit(prompt, 16, logprobs=LOGPROBS)
    wanted = chunks * (CHUNK // BLOCK)
    until(
        lambda: (
            tight.daemon.reserved_blocks() > 0 and tight.daemon.stored_blocks() >= before + wanted
        ),
        60,
        f"{wanted} blocks stored and more to come",
    )
    tight.first.abort(request)
    assert tight.first.result(request).finish == "abort"
    until(lambda: tight.daemon.reserved_blocks() == 0, 10, "reservations of the aborted request")
    found = ask(tight.second, prompt, 16)
    assert_agrees(found, control, "after the abort")
    assert found.cached >= wanted * BLOCK
    assert_agrees(ask(tight.first, prompt, 16), control, "the aborting engine, asked again")
