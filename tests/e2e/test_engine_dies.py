# SPDX-License-Identifier: Apache-2.0
"""An engine that is killed while it stores leaves nothing wrong behind, and nothing reserved."""

from __future__ import annotations

import random

import pytest
from engine.process import EngineDied
from fleet import FIRST_CPU, Fleet, close_engines, start_engines
from kvpoold import until
from models import BLOCK, LOGPROBS, ask, assert_agrees

ANSWER = 24
LONG = 3000
CHUNK = 256  # tokens a step of the victims: their stores are many and small
KILLS = 2


def test_should_never_give_a_wrong_token_after_an_engine_was_killed_while_storing(
    smollm2: Fleet,
) -> None:
    draw = random.Random(4)
    victim_settings = [
        {
            "model": smollm2.model.name,
            "name": f"victim-{number}",
            "cpus": FIRST_CPU,
            "socket": smollm2.daemon.socket,
            "max_num_batched_tokens": CHUNK,
        }
        | smollm2.model.arguments
        for number in range(KILLS)
    ]
    victims = start_engines(*victim_settings)
    try:
        for number, victim in enumerate(victims):
            prompt = smollm2.model.prompt(LONG, f"killed {number}")
            control = ask(smollm2.control, prompt, ANSWER)
            blocks = draw.randrange(1, LONG // BLOCK - 4)
            stored = smollm2.daemon.stored_blocks()
            request = victim.submit(prompt, ANSWER, logprobs=LOGPROBS)
            until(
                lambda stored=stored, blocks=blocks: (
                    smollm2.daemon.stored_blocks() >= stored + blocks
                ),
                120,
                f"the victim has stored {blocks} blocks",
            )
            victim.kill()
            with pytest.raises(EngineDied):
                victim.result(request)

            found = ask(smollm2.second, prompt, ANSWER)
            assert_agrees(found, control, f"killed after {blocks} blocks")
            assert blocks * BLOCK <= found.cached < LONG
            assert_agrees(ask(smollm2.first, prompt, ANSWER), control, "found once more")
            until(
                lambda: smollm2.daemon.reserved_blocks() == 0, 10, "the dead engine's reservations"
            )
    finally:
        close_engines(victims)
