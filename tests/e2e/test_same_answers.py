# SPDX-License-Identifier: Apache-2.0
"""Answers with the pool are those without it, and shared blocks are computed once.

Three architectures; one engine computes, the other finds, and the control has no pool. What was
cached is what the engine itself counts.
"""

from __future__ import annotations

import pytest
from fleet import Fleet, Fleets
from models import BLOCK, LOGPROBS, MODELS, ask, assert_agrees, assert_same, shared_tokens

# Shorter than a block, a block, just more, the window of Gemma, just more, several times either.
LENGTHS = (50, 128, 129, 512, 513, 1300, 2200)
EXTERNAL = 'vllm:prompt_tokens_by_source_total{source="external_kv_transfer"}'
ANSWER = 16


@pytest.fixture(scope="module", params=list(MODELS))
def model_name(request: pytest.FixtureRequest) -> str:
    """Each model in turn; of the module, so that all tests of one come together."""
    return request.param


@pytest.fixture
def fleet(model_name: str, fleets: Fleets) -> Fleet:
    """Two engines and a control of the model, all alive."""
    return fleets.get(model_name)


@pytest.mark.parametrize("length", LENGTHS)
def test_should_answer_as_without_the_pool_and_compute_no_shared_block(
    fleet: Fleet, length: int
) -> None:
    prompt = fleet.model.prompt(length, f"same answers {length}")
    computing = fleet.first.submit(prompt, ANSWER, logprobs=LOGPROBS)
    control = ask(fleet.control, prompt, ANSWER)
    computed = fleet.first.result(computing)
    found = ask(fleet.second, prompt, ANSWER)
    # Again, from the engine's own cache: this changes the last bits of sums, pool or not.
    control_cached = ask(fleet.control, prompt, ANSWER)

    assert (control.cached, control_cached.cached) == (0, shared_tokens(length))
    assert_same(computed, control, f"{length} tokens, computed")
    assert_same(found, control_cached, f"{length} tokens, found")


def test_should_continue_a_conversation_on_another_engine(fleet: Fleet) -> None:
    model = fleet.model
    turn = model.prompt(700, "conversation")
    known = 0  # tokens of the turns before, answers included
    for number, engine in enumerate((fleet.first, fleet.second, fleet.first)):
        answer = ask(engine, turn, 80, ignore_eos=True)
        control = ask(fleet.control, turn, 80, ignore_eos=True)
        assert answer.cached == max(known - 1, 0) // BLOCK * BLOCK, f"turn {number + 1}"
        # With sliding layers the pool keeps more of an answer than the engine's own cache does.
        assert answer.cached >= control.cached
        compare = assert_same if answer.cached == control.cached else assert_agrees
        compare(answer, control, f"turn {number + 1}")
        known = len(turn) + len(answer.tokens)
        turn = [*turn, *answer.tokens, *model.prompt(90, f"turn {number}")[len(model.bos) :]]


def test_should_find_a_prefix_that_several_prompts_share(fleet: Fleet) -> None:
    model = fleet.model
    prefix = model.prompt(5 * BLOCK, "instructions")
    prompts = [[*prefix, *model.prompt(70, f"question {n}")[len(model.bos) :]] for n in range(3)]
    for engine in (fleet.first, fleet.control):
        ask(engine, prompts[0], ANSWER)
        ask(engine, prompts[1], ANSWER)
    found = ask(fleet.second, prompts[2], ANSWER)
    assert found.cached == len(prefix)
    assert_same(found, ask(fleet.control, prompts[2], ANSWER), "shared prefix")


def test_should_not_share_between_salts(fleet: Fleet) -> None:
    prompt = fleet.model.prompt(400, "salts")
    control = ask(fleet.control, prompt, ANSWER, salt="a")
    control_cached = ask(fleet.control, prompt, ANSWER, salt="a")
    assert_same(ask(fleet.first, prompt, ANSWER, salt="a"), control, "salt a, computed")
    assert_same(ask(fleet.second, prompt, ANSWER, salt="b"), control, "salt b")
    assert_same(ask(fleet.second, prompt, ANSWER), control, "no salt")
    assert_same(ask(fleet.second, prompt, ANSWER, salt="a"), control_cached, "salt a, found")


def test_should_count_what_it_found_as_external_tokens_and_in_its_own_counters(
    fleet: Fleet,
) -> None:
    prompt = fleet.model.prompt(900, "counters")
    before = fleet.second.metrics()
    control_before = fleet.control.metrics()
    fleet.first.generate(prompt, ANSWER)
    found = fleet.second.generate(prompt, ANSWER)
    fleet.control.generate(prompt, ANSWER)
    after = fleet.second.metrics()
    assert found.cached == shared_tokens(900)
    assert after[EXTERNAL] - before[EXTERNAL] == found.cached
    hits = "vllm:external_prefix_cache_hits_total"
    assert after[hits] - before[hits] == found.cached
    own = "vllm:kvpool_hit_tokens_total"
    assert after[own] - before.get(own, 0) == found.cached
    assert fleet.first.metrics()["vllm:kvpool_blocks_stored_total"] > 0
    control_after = fleet.control.metrics()
    assert control_after[EXTERNAL] == control_before[EXTERNAL] == 0
    assert not [name for name in control_after if "kvpool" in name]


def test_should_keep_of_sliding_layers_only_what_their_window_needs(fleet: Fleet) -> None:
    if not fleet.model.window:
        pytest.skip("a model without sliding layers")
    short = fleet.model.prompt(BLOCK + 1, "one block of all layers")
    before = fleet.daemon.stored_bytes()
    fleet.first.generate(short, 1)
    block_bytes = fleet.daemon.stored_bytes() - before
    assert block_bytes > 0
    prompt = fleet.model.prompt(20 * BLOCK + 1, "twenty blocks")
    before = fleet.daemon.stored_bytes()
    fleet.first.generate(prompt, 1)
    taken = fleet.daemon.stored_bytes() - before
    # Half of the layers (of Gemma five in six) keep one window of twenty blocks.
    assert 0 < taken < 0.65 * 20 * block_bytes
    assert fleet.second.generate(prompt, 1).cached == 20 * BLOCK
