# SPDX-License-Identifier: Apache-2.0
"""The experiment's workload: the same for everyone, and as repetitive as it claims."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from experiments.mix import PrefixOracle, Shape, deck, lengths, mix_actual


def blocks(tokens: tuple[int, ...], size: int) -> set[tuple[int, ...]]:
    return {tokens[i : i + size] for i in range(0, len(tokens) - size + 1, size)}


@pytest.mark.parametrize("percent", [0, 15, 30, 60, 90])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_should_repeat_as_many_tokens_as_the_mix_says(percent: int, seed: int) -> None:
    assert 100 * mix_actual(deck(150, percent / 100, seed, "a")) == pytest.approx(percent, abs=1.5)


def test_should_write_the_same_deck_for_the_same_seeds() -> None:
    assert deck(50, 0.3, 7, "a") == deck(50, 0.3, 7, "a")


def test_should_write_another_deck_for_another_seed() -> None:
    assert deck(50, 0.3, 7, "a") != deck(50, 0.3, 8, "a")


def test_should_share_no_block_between_decks_of_other_words() -> None:
    size = Shape().block_tokens
    ours, theirs = (
        set().union(*(blocks(p.tokens, size) for p in deck(50, 0.3, 7, words)))
        for words in ("30@0.5", "30@0.7")
    )
    assert not ours & theirs


def test_should_keep_the_structure_where_only_the_words_differ() -> None:
    rows = [
        [(len(p.tokens), p.kind, p.repeated) for p in deck(80, 0.3, 7, words)] for words in "ab"
    ]
    assert rows[0] == rows[1]


def test_should_have_the_same_lengths_in_the_same_order_at_every_mix() -> None:
    rows = [[len(p.tokens) for p in deck(80, mix, 7, "a")] for mix in (0, 0.3, 0.9)]
    assert rows[0] == rows[1] == rows[2]


def test_should_draw_lengths_within_the_bounds_and_around_the_median() -> None:
    shape = Shape()
    row = sorted(lengths(201, shape, random.Random(1)))
    assert row[0] >= shape.shortest
    assert row[-1] <= shape.longest
    assert row[100] == shape.median_tokens


def test_should_have_readers_turns_and_single_prompts_in_the_main_mix() -> None:
    kinds = {p.kind for p in deck(150, 0.3, 1, "a")}
    assert kinds == {"single", "first", "document", "turn"}


def test_should_continue_a_conversation_only_after_its_last_turn_had_time() -> None:
    prompts = deck(150, 0.3, 1, "a")
    shape = Shape()
    seen_before = 0
    for index, prompt in enumerate(prompts):
        if prompt.kind != "turn":
            continue
        recent = prompts[max(0, index - shape.turn_distance + 1) : index]
        front = prompt.tokens[: shape.shortest]
        assert all(p.tokens[: shape.shortest] != front for p in recent)
        seen_before += any(p.tokens[: shape.shortest] == front for p in prompts[:index])
    assert seen_before > 0


def test_should_repeat_nothing_at_all_at_a_mix_of_zero() -> None:
    assert [p.repeated for p in deck(60, 0, 1, "a")] == [0] * 60


def test_should_count_repeats_as_the_oracle_does() -> None:
    prompts = deck(60, 0.6, 1, "a")
    oracle = PrefixOracle(Shape().block_tokens)
    assert [oracle.take(p.tokens) for p in prompts] == [p.repeated for p in prompts]


def test_oracle_should_count_whole_blocks_at_the_front_alone() -> None:
    oracle = PrefixOracle(4)
    assert oracle.take([1, 2, 3, 4, 5, 6, 7, 8, 9]) == 0
    assert oracle.take([1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8
    assert oracle.take([1, 2, 3, 4, 5, 6, 7, 0, 9]) == 4
    assert oracle.take([0, 2, 3, 4, 5, 6, 7, 8, 9]) == 0


def test_oracle_should_never_count_the_last_token_of_a_prompt() -> None:
    oracle = PrefixOracle(4)
    oracle.take([1, 2, 3, 4, 5, 6, 7, 8])
    assert oracle.take([1, 2, 3, 4, 5, 6, 7, 8]) == 4


@pytest.mark.parametrize("mix", [-0.1, 1.0])
def test_should_refuse_a_mix_that_cannot_be(mix: float) -> None:
    with pytest.raises(ValueError, match="mix"):
        deck(10, mix, 1, "a")


def test_should_refuse_a_deck_without_prompts() -> None:
    with pytest.raises(ValueError, match="0 prompts"):
        deck(0, 0.3, 1, "a")
