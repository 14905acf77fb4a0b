# SPDX-License-Identifier: Apache-2.0
"""Models are told apart by their content: not by their shapes, not by their folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from engine.process import model_dir
from fleet import FIRST_CPU, SECOND_CPU, Fleet, close_engines, start_engines
from models import SMOLLM2, ask, assert_agrees, shared_tokens

ANSWER = 24
LENGTH = 800


def test_should_share_between_two_folders_of_a_model_and_not_with_its_fine_tune(
    smollm2: Fleet, tmp_path: Path
) -> None:
    twin_folder = tmp_path / "another-name"
    shutil.copytree(model_dir(SMOLLM2), twin_folder)
    tuned_model = "smollm2-135m-tuned"
    pool = {"socket": smollm2.daemon.socket}
    settings: list[dict[str, Any]] = [
        {"model": tuned_model, "name": "tuned", "cpus": FIRST_CPU} | pool,
        {"model": tuned_model, "name": "tuned-control", "cpus": SECOND_CPU, "kvpool": False},
        {"model": twin_folder, "name": "twin", "cpus": SECOND_CPU} | pool,
    ]
    engines = start_engines(*(each | smollm2.model.arguments for each in settings))
    try:
        tuned, tuned_control, twin = engines
        prompt = smollm2.model.prompt(LENGTH, "fine-tunes")
        control = ask(smollm2.control, prompt, ANSWER)
        control_tuned = ask(tuned_control, prompt, ANSWER)
        assert control.tokens != control_tuned.tokens, "the fine-tune changes nothing"

        assert_agrees(ask(smollm2.first, prompt, ANSWER), control, "base computed")
        computed = ask(tuned, prompt, ANSWER)
        assert computed.cached == 0
        assert_agrees(computed, control_tuned, "fine-tune beside the base's blocks")
        found = ask(twin, prompt, ANSWER)
        assert found.cached == shared_tokens(LENGTH)
        assert_agrees(found, control, "the same model in another folder")
    finally:
        close_engines(engines)
