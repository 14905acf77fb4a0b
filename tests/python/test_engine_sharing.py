# SPDX-License-Identifier: Apache-2.0
"""Two engines without a model share prompts through a real kvpoold; every byte is checked."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import harness
import pytest
from kvpool import Group
from paged_engine import TOKENS, Engine, Request, make_spec

PROMPT = list(range(10 * TOKENS + 5))


@pytest.fixture
def engine(daemon: harness.Daemon) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(*args: Any, **kwargs: Any) -> Engine:
        made.append(Engine(daemon.socket, *args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_should_read_what_another_engine_computed(engine: Callable[..., Engine]) -> None:
    a, b = engine(), engine()

    assert a.run("first", PROMPT) == 0
    assert b.run("second", PROMPT) == 10 * TOKENS
    assert b.computed_tokens == 5


def test_should_read_what_came_with_checksums(engine: Callable[..., Engine]) -> None:
    a, b = engine(checksum=True), engine(checksum=True)

    assert a.run("first", PROMPT) == 0
    assert b.run("second", PROMPT) == 10 * TOKENS
    assert engine().run("third", PROMPT) == 10 * TOKENS


def test_should_leave_the_last_token_to_be_computed(engine: Callable[..., Engine]) -> None:
    a, b = engine(), engine()
    a.run("first", PROMPT[: 4 * TOKENS])

    assert b.run("second", PROMPT[: 4 * TOKENS]) == 3 * TOKENS


def test_should_share_nothing_of_a_prompt_shorter_than_a_block(
    engine: Callable[..., Engine],
) -> None:
    a, b = engine(), engine()
    a.run("first", PROMPT[: TOKENS - 1])

    assert b.run("second", PROMPT[: TOKENS - 1]) == 0
    assert "blocks_stored" not in a.counted()


def test_should_read_the_answer_of_the_turn_before(engine: Callable[..., Engine]) -> None:
    a, b = engine(), engine()
    answer = list(range(5000, 5000 + 3 * TOKENS))
    a.run("turn 1", PROMPT, answer)

    assert b.run("turn 2", [*PROMPT, *answer, 7, 8, 9]) == 13 * TOKENS


def test_should_store_chunk_by_chunk(engine: Callable[..., Engine]) -> None:
    a, b = engine(chunk=TOKENS + 3), engine()
    request = Request("first", PROMPT)
    a.admit(request)
    a.step(request)
    a.step(request)
    a.scheduler.finished(request.id)  # aborted after 38 tokens

    assert b.run("second", PROMPT) == 2 * TOKENS


def test_should_not_share_between_models(engine: Callable[..., Engine]) -> None:
    a, b = engine(make_spec(model="one")), engine(make_spec(model="other"))
    a.run("first", PROMPT)

    assert b.run("second", PROMPT) == 0


def test_should_find_a_block_only_once_every_shard_is_there(
    engine: Callable[..., Engine],
) -> None:
    a, b = engine(make_spec(shards=2)), engine(make_spec(shards=2))
    kept = a.workers.pop()  # the second worker dies before it stores
    request = Request("first", PROMPT)
    a.admit(request)
    a.step(request)
    other = Request("second", PROMPT)

    assert b.scheduler.lookup(other, 0) is None  # still being written
    a.workers.append(kept)
    b.scheduler.finished(other.id)


def test_should_share_between_engines_of_two_workers(engine: Callable[..., Engine]) -> None:
    a, b = engine(make_spec(shards=2)), engine(make_spec(shards=2))
    a.run("first", PROMPT)

    assert b.run("second", PROMPT) == 10 * TOKENS


def test_should_store_what_the_engine_had_before_the_daemon_lost_it(
    engine: Callable[..., Engine], daemon: harness.Daemon
) -> None:
    a, b = engine(), engine()
    held = Request("held", PROMPT)
    a.admit(held)
    a.step(held)
    daemon.kill()
    daemon.start()
    harness.until(lambda: attached(a) and attached(b), "both engines attached again")
    again = Request("again", PROMPT)
    again.tables = [list(held.tables[0])]  # the engine's own cache has the prefix
    a.admit(again, local=6 * TOKENS)
    a.step(again)

    assert b.run("other", PROMPT) == 10 * TOKENS


def test_should_compute_where_no_daemon_is_and_share_once_one_is(
    engine: Callable[..., Engine], daemon: harness.Daemon
) -> None:
    daemon.kill()
    a, b = engine(), engine()
    assert a.run("first", PROMPT) == 0
    assert b.run("first", PROMPT) == 0

    daemon.start()
    harness.until(lambda: attached(a) and attached(b), "both engines attached again")
    a.run("second", PROMPT)
    assert b.run("second", PROMPT) == 10 * TOKENS


def attached(engine: Engine) -> bool:
    """Whether the engine reaches the daemon; a lookup is what makes it try."""
    engine.run("probe", [1] * TOKENS)
    return engine.scheduler._line.pool.attached


def test_should_compute_what_was_promised_by_a_daemon_that_died(
    engine: Callable[..., Engine], daemon: harness.Daemon
) -> None:
    a, b = engine(), engine()
    a.run("first", PROMPT)
    request = Request("second", PROMPT)
    assert b.scheduler.lookup(request, 0) == 10 * TOKENS
    daemon.kill()
    b.grow(request)
    b.scheduler.allocated(request, 10 * TOKENS, request.tables)

    assert b.run_step([]) == {"second"}
    assert b.scheduler.lookup(request, 0) == 0
    assert b.counted()["load_failures"] == 1


def test_should_not_load_into_a_page_that_the_engine_does_not_have(
    engine: Callable[..., Engine],
) -> None:
    a = engine(make_spec([("full", 0), ("window", 2 * TOKENS)]))
    b = engine(make_spec([("full", 0), ("window", 2 * TOKENS)]))
    a.run("first", PROMPT)
    request = Request("second", PROMPT)
    found = b.scheduler.lookup(request, 0)
    b.grow(request)  # no page of the window is given up: more than the match has

    b.scheduler.allocated(request, found or 0, request.tables)

    assert found == 10 * TOKENS
    assert b.run_step([]) == {"second"}


def test_should_give_back_all_that_it_held(
    engine: Callable[..., Engine], daemon: harness.Daemon
) -> None:
    a = engine()
    for i in range(5):
        request = Request(f"aborted {i}", [i, *PROMPT])
        a.admit(request)
        a.scheduler.finished(request.id)
    b = engine()

    assert b.run("after", [0, *PROMPT]) == 0  # nobody is writing it any more
    assert b.counted()["blocks_stored"] == 10


def test_should_give_back_what_a_preempted_request_reserved(
    engine: Callable[..., Engine],
) -> None:
    a, b = engine(), engine()
    request = Request("preempted", PROMPT)
    a.admit(request)
    a.scheduler.step([], preempted=["preempted"])

    assert b.run("other", PROMPT) == 0
    assert b.counted()["blocks_stored"] == 10


def test_should_find_again_what_it_stored_before_it_was_preempted(
    engine: Callable[..., Engine],
) -> None:
    a = engine(chunk=4 * TOKENS)
    request = Request("preempted", PROMPT)
    a.admit(request)
    a.step(request)
    a.scheduler.step([], preempted=["preempted"])
    request.computed = 0

    assert a.admit(request) == 4 * TOKENS


def test_should_store_nothing_more_once_the_weights_may_be_others(
    engine: Callable[..., Engine],
) -> None:
    a, b = engine(), engine()
    a.run("first", PROMPT)
    a.scheduler.replace_model(make_spec(model="private"))

    assert a.run("second", PROMPT) == 0
    assert b.run("third", PROMPT) == 10 * TOKENS


def test_should_share_what_was_stored_by_a_request_that_may_not_read(
    engine: Callable[..., Engine],
) -> None:
    a, b = engine(), engine()
    request = Request("scores its prompt", PROMPT)
    request.readable = False
    assert a.admit(request) == 0
    a.step(request)

    assert b.run("second", PROMPT) == 10 * TOKENS
    request = Request("scores it too", PROMPT)
    request.readable = False
    assert b.admit(request) == 0


def test_should_say_once_why_a_pool_is_too_small_for_a_block(
    engine: Callable[..., Engine], caplog: pytest.LogCaptureFixture
) -> None:
    large = make_spec()
    a = engine(dataclasses.replace(large, groups=(Group("full", 48 << 20),)))
    for i in range(3):
        assert a.scheduler.lookup(Request(f"request {i}", PROMPT), 0) == 0

    said = [r.getMessage() for r in caplog.records if "48.00 MiB in each of 1 shards" in r.message]
    assert len(said) == 1
    assert "--extent-size" in said[0]


def test_should_say_once_why_the_pool_has_no_place(
    engine: Callable[..., Engine], caplog: pytest.LogCaptureFixture
) -> None:
    a = engine(dataclasses.replace(make_spec(), groups=(Group("full", 1 << 20),)))
    held = [Request(f"request {i}", [i, *range(40 * TOKENS)]) for i in range(4)]
    for request in held:
        assert a.scheduler.lookup(request, 0) == 0  # reserves 40 MiB of 64

    assert a.counted()["no_space"] >= 1
    said = [r.getMessage() for r in caplog.records if "not all is stored" in r.message]
    assert any("writers hold what could be evicted" in sentence for sentence in said)
    assert len(said) == len(set(said))


def test_should_remember_what_it_stored_for_one_step_only(engine: Callable[..., Engine]) -> None:
    a = engine(chunk=4 * TOKENS)
    request = Request("first", PROMPT)
    a.admit(request)
    told = []
    while request.computed < request.tokens:
        a.step(request)
        told.append(a.scheduler.stored)

    assert told == [[("first", 0, 4)], [("first", 4, 4)], [("first", 8, 2)]]
    a.run_step([])
    assert a.scheduler.stored == []
