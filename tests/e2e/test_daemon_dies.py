# SPDX-License-Identifier: Apache-2.0
"""A daemon that dies, hangs or comes back while engines serve costs hits and nothing else."""

from __future__ import annotations

import pytest
from fleet import Fleet
from kvpoold import until
from models import LOGPROBS, ask, assert_agrees, shared_tokens

ANSWER = 24
LONG = 3000
TRIES = 12


def find_again(fleet: Fleet, label: str) -> None:
    """New prompts, until the second engine finds what the first computed: both use the daemon."""
    for number in range(TRIES):
        prompt = fleet.model.prompt(400, f"{label} {number}")
        fleet.first.generate(prompt, 1)
        if fleet.second.generate(prompt, 1).cached == shared_tokens(400):
            return
    pytest.fail(f"{label}: no hit in {TRIES} prompts")


@pytest.mark.parametrize("round_", range(2))
def test_should_fail_no_request_when_the_daemon_is_killed_while_both_serve(
    smollm2: Fleet, round_: int
) -> None:
    known = smollm2.model.prompt(LONG, f"known before the kill {round_}")
    new = smollm2.model.prompt(LONG, f"new at the kill {round_}")
    control_known = ask(smollm2.control, known, ANSWER)
    control_new = ask(smollm2.control, new, ANSWER)
    smollm2.first.generate(known, 1)
    find_again(smollm2, f"before kill {round_}")

    storing = smollm2.first.submit(new, ANSWER, logprobs=LOGPROBS)
    until(lambda: smollm2.daemon.reserved_blocks() > 0, 60, "the first engine writes blocks")
    matches = smollm2.daemon.matches()
    loading = smollm2.second.submit(known, ANSWER, logprobs=LOGPROBS)
    until(lambda: smollm2.daemon.matches() > matches, 60, "the second engine looks up")
    smollm2.daemon.kill()
    assert_agrees(smollm2.first.result(storing), control_new, "storing at the kill")
    assert_agrees(smollm2.second.result(loading), control_known, "loading at the kill")
    # Without a daemon: nothing found from now on, nothing fails.
    assert_agrees(ask(smollm2.second, new, ANSWER), control_new, "without a daemon")

    smollm2.daemon.start()
    find_again(smollm2, f"after kill {round_}")
    assert smollm2.first.alive
    assert smollm2.second.alive


def test_should_fail_no_request_when_the_daemon_hangs(smollm2: Fleet) -> None:
    prompt = smollm2.model.prompt(900, "daemon hangs")
    control = ask(smollm2.control, prompt, ANSWER)
    smollm2.daemon.pause()
    try:
        results = [
            engine.result(engine.submit(prompt, ANSWER, logprobs=LOGPROBS))
            for engine in (smollm2.first, smollm2.second)
        ]
    finally:
        smollm2.daemon.resume()
    for result in results:
        assert_agrees(result, control, "while the daemon hangs")
    find_again(smollm2, "after the pause")
