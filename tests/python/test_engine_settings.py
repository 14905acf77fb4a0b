# SPDX-License-Identifier: Apache-2.0
"""What a user may set for a connector, and what it measures of its engine."""

import pytest
from kvpool.engine.breaker import Breaker
from kvpool.engine.cost import Cost
from kvpool.engine.jobs import Report
from kvpool.engine.settings import Settings, disabled_by_environment


def test_should_take_what_is_set_and_keep_the_rest() -> None:
    settings, refused = Settings.read({"kvpool_socket": "/run/a.sock", "other": 1})

    assert settings == Settings(socket="/run/a.sock")
    assert refused == []


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("kvpool_sokket", "/run/a.sock", "no such setting"),
        ("kvpool_socket", "", "not a path"),
        ("kvpool_deadline", "soon", "not a number of seconds"),
        ("kvpool_deadline", True, "not a number of seconds"),
        ("kvpool_wait", -1, "not in 0 to 3600 seconds"),
        ("kvpool_wait", float("nan"), "not in 0 to 3600 seconds"),
        ("kvpool_share", "yes", "neither true nor false"),
    ],
)
def test_should_refuse_a_setting_and_say_why(key: str, value: object, word: str) -> None:
    settings, refused = Settings.read({key: value})

    assert settings == Settings()
    assert len(refused) == 1
    assert key in refused[0]
    assert word in refused[0]


@pytest.mark.parametrize("word", ["1", "yes", "true", "on", "x"])
def test_should_be_disabled_by_any_word_that_is_no_denial(word: str) -> None:
    assert disabled_by_environment({"KVPOOL_DISABLE": word})


@pytest.mark.parametrize("word", ["", "0", "no", "OFF", " false "])
def test_should_not_be_disabled_by_a_denial(word: str) -> None:
    assert not disabled_by_environment({"KVPOOL_DISABLE": word})
    assert not disabled_by_environment({})


def test_should_take_hits_until_both_speeds_are_known() -> None:
    cost = Cost()
    assert cost.worth_copying(16, 10**9)
    cost.copy.add(1, 1.0)
    assert cost.worth_copying(16, 10**9)
    cost.step_ended(1000, 0.0, 1.0)
    assert not cost.worth_copying(16, 10**9)
    assert cost.worth_copying(16, 0)


def test_should_not_count_the_same_second_for_two_steps() -> None:
    cost = Cost()
    cost.step_ended(100, 0.0, 1.0)
    cost.step_ended(100, 0.0, 2.0)  # planned while the first ran

    assert cost.compute.seconds == pytest.approx(0.01)


def test_should_learn_of_prefill_from_steps_that_are_more_than_a_decode() -> None:
    cost = Cost()
    cost.step_ended(1, 0.0, 1.0)

    assert cost.compute.seconds is None


def test_should_wait_as_long_as_computing_takes_but_not_longer_than_allowed() -> None:
    cost = Cost()
    assert cost.wait_budget(10**6, 10.0) == 1.0
    cost.step_ended(100, 0.0, 1.0)
    assert cost.wait_budget(250, 10.0) == pytest.approx(5.0)
    assert cost.wait_budget(5000, 10.0) == 10.0


def test_should_leave_a_silent_daemon_alone_for_longer_each_time() -> None:
    breaker, now, pauses = Breaker(), 0.0, []
    for _ in range(9):
        breaker.timed_out(now)
        begun = now
        while not breaker.allows(now):
            now += 0.25
        pauses.append(now - begun)

    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    breaker.answered()
    breaker.timed_out(now)
    assert breaker.allows(now + 0.5)


def test_should_call_a_copy_done_only_where_every_worker_did_it() -> None:
    mine = Report({1: True, 2: True}, load_bytes=10)
    mine.merge(Report({1: True, 2: False, 3: True}, load_bytes=5))

    assert mine.done == {1: True, 2: False, 3: True}
    assert mine.load_bytes == 15
