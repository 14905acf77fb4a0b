# SPDX-License-Identifier: Apache-2.0
"""The workload, written down: which prompts are sent, and which of their tokens were seen before.

A deck is a list of prompts in the order of their arrival. Everything follows from the seeds: every
arm of a point, on every machine, gets the same tokens.

- Lengths are the quantiles of a lognormal distribution, shuffled. Decks of one size have the same
  lengths whatever their mix, so an engine that caches nothing has the same work in all of them.
- A prompt begins a text, reads a text again, or continues one. A text is a document of an
  application (its instructions, then the document; each reader adds a question of its own) or a
  conversation (each turn repeats all that was said, and says more; answers of turns are scripted,
  so that prompts do not depend on what an engine answers). Some texts belong to no application.
- Conversations begin with short prompts. A turn comes at least `turn_distance` prompts after the
  turn before, so that it does not overtake the answer that it continues.
- How long ago the text was last read is drawn log-uniformly: most repeats come soon, some after
  the whole deck.
- Whether a prompt repeats follows the debt: what the mix asks for, less what was repeated so far.

"Repeated" means whole blocks at the front of a prompt that an earlier prompt of the deck had too:
what one endless cache that all engines share would serve, never the last token of a prompt.
Pure logic; no state outside the objects.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

# Ordinary tokens of SmolLM2's vocabulary: no control tokens, no rare ends.
FIRST_TOKEN = 1000
END_TOKEN = 49000


@dataclass(frozen=True)
class Shape:
    """What a deck looks like. Lengths are tokens."""

    block_tokens: int = 32
    median_tokens: int = 640
    spread: float = 0.5  # sigma of the lognormal distribution
    shortest: int = 256
    longest: int = 1280
    question_tokens: int = 24  # at the end of every prompt, never repeated by a document's readers
    instruction_tokens: int = 96
    applications: int = 4
    conversations: float = 0.8  # part of the short texts that are conversations, not documents
    turns: float = 0.5  # part of the repeats that are turns where a conversation fits
    turn_distance: int = 12  # prompts from one turn of a conversation to the next, at least
    distinct: int = 4  # texts that a deck begins with
    candidates: int = 12  # texts that are looked at before one is chosen


@dataclass(frozen=True)
class Prompt:
    """One prompt of a deck."""

    tokens: tuple[int, ...]
    kind: str  # "single", "first", "document" or "turn"
    repeated: int  # tokens in blocks that an earlier prompt of the deck had


class PrefixOracle:
    """An endless shared cache of whole blocks: counts what it would serve."""

    def __init__(self, block_tokens: int) -> None:
        if block_tokens < 1:
            raise ValueError(f"a block of {block_tokens} tokens cannot be")
        self._block = block_tokens
        self._seen: set[tuple[int, int]] = set()

    def take(self, tokens: Sequence[int]) -> int:
        """Counts the tokens of this prompt that are there, then adds all of its whole blocks."""
        # An engine computes at least the last token itself.
        usable = (len(tokens) - 1) // self._block
        chain = 0
        hit = 0
        unbroken = True
        for index in range(len(tokens) // self._block):
            start = index * self._block
            chain = hash((chain, tuple(tokens[start : start + self._block])))
            key = (index, chain)
            unbroken = unbroken and key in self._seen
            if unbroken and index < usable:
                hit += self._block
            self._seen.add(key)
        return hit


def lengths(requests: int, shape: Shape, rng: random.Random) -> list[int]:
    """The prompts' lengths: the same numbers for one `requests`, in an order of the generator."""
    normal = NormalDist(math.log(shape.median_tokens), shape.spread)
    row = [
        min(
            max(round(math.exp(normal.inv_cdf((i + 0.5) / requests))), shape.shortest),
            shape.longest,
        )
        for i in range(requests)
    ]
    rng.shuffle(row)
    return row


@dataclass
class _Text:
    """A document or a conversation. `known` tokens of it were in a prompt, the rest is not made."""

    conversation: bool
    words: random.Random
    tokens: list[int] = field(default_factory=list)
    known: int = 0
    last: int = 0  # the prompt that read it last

    def front(self, count: int) -> list[int]:
        while len(self.tokens) < count:
            self.tokens.append(_token(self.words))
        return self.tokens[:count]


def _token(words: random.Random) -> int:
    return words.randrange(FIRST_TOKEN, END_TOKEN)


class _Writer:
    """Writes one deck. Choices and words have generators of their own: see deck()."""

    def __init__(self, mix: float, shape: Shape, choices: random.Random, words: str) -> None:
        self._mix = mix
        self._shape = shape
        self._choices = choices
        self._words = words
        self._texts = 0
        self._history: list[_Text] = []  # the text of each prompt so far
        self._instructions = [
            tuple(_token(source) for _ in range(shape.instruction_tokens))
            for source in (random.Random(f"{words} app {i}") for i in range(shape.applications))
        ]
        self._oracle = PrefixOracle(shape.block_tokens)
        self._total = 0
        self._repeated = 0

    def next(self, length: int) -> Prompt:
        """The next prompt, of so many tokens."""
        debt = self._mix * (self._total + length) - self._repeated
        text = self._choose(length, debt)
        if text is None:
            kind, text = self._begin(length, debt)
        else:
            kind = "turn" if text.conversation else "document"
        tokens = self._write(text, length)
        repeated = self._oracle.take(tokens)
        self._total += length
        self._repeated += repeated
        text.last = len(self._history)
        self._history.append(text)
        return Prompt(tuple(tokens), kind, repeated)

    def _use(self, text: _Text, length: int) -> int:
        """Tokens that a prompt of this length would repeat of the text; 0: it cannot."""
        room = length - self._shape.question_tokens
        if not text.conversation:
            return min(text.known, room)
        early = len(self._history) - text.last < self._shape.turn_distance
        return 0 if early or text.known > room else text.known

    def _choose(self, length: int, debt: float) -> _Text | None:
        """The text that this prompt reads again; None: it begins a new one."""
        reach = len(self._history)
        if self._mix == 0 or reach < self._shape.distinct:
            return None
        # 0.9: about what a repeat gets of its prompt, the rest being question and broken block.
        if self._choices.random() >= debt / (0.9 * length):
            return None
        turn = self._choices.random() < self._shape.turns
        best: _Text | None = None
        best_rank = (False, 0)
        for _ in range(self._shape.candidates):
            back = round(math.exp(self._choices.uniform(0, math.log(reach))))
            text = self._history[reach - back]
            use = self._use(text, length)
            rank = (text.conversation == turn, use)
            if use > 0 and rank > best_rank:
                best, best_rank = text, rank
        return best

    def _begin(self, length: int, debt: float) -> tuple[str, _Text]:
        short = length <= self._shape.median_tokens
        conversation = short and self._choices.random() < self._shape.conversations
        text = _Text(conversation, random.Random(f"{self._words} text {self._texts}"))
        application = self._instructions[self._texts % self._shape.applications]
        self._texts += 1
        if self._mix == 0 or debt < len(application):
            return "single", text
        text.tokens.extend(application)
        return "first", text

    def _write(self, text: _Text, length: int) -> list[int]:
        if text.conversation:
            text.known = length
            return text.front(length)
        front = length - self._shape.question_tokens
        text.known = max(text.known, front)
        question = random.Random(f"{self._words} question {len(self._history)}")
        return text.front(front) + [_token(question) for _ in range(length - front)]


def deck(
    requests: int, mix: float, seed: int, words: str, shape: Shape | None = None
) -> list[Prompt]:
    """Prompts in the order of their arrival.

    mix: part of the tokens that repeat, 0 to 1. seed: lengths and choices; words: the tokens
    themselves, so that two decks of one seed and other words have one structure and not a block in
    common. Raises ValueError for a mix or a number of requests that cannot be.
    """
    shape = shape or Shape()
    if not 0 <= mix < 1:
        raise ValueError(f"a mix of {mix:g} is not in [0, 1)")
    if requests < 1:
        raise ValueError(f"a deck of {requests} prompts cannot be")
    writer = _Writer(mix, shape, random.Random(f"{seed} choices {mix:g}"), f"{seed} {words}")
    order = random.Random(f"{seed} lengths")
    return [writer.next(length) for length in lengths(requests, shape, order)]


def mix_actual(prompts: Sequence[Prompt]) -> float:
    """Repeated tokens over all tokens."""
    return sum(p.repeated for p in prompts) / sum(len(p.tokens) for p in prompts)
