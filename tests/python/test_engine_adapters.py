# SPDX-License-Identifier: Apache-2.0
"""Adapters share by what they are, and not at all where that is not known."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import harness
import pytest
from kvpool.engine.book import Adapter
from paged_engine import TOKENS, Clock, Engine, Request

PROMPT = list(range(10 * TOKENS + 5))


@pytest.fixture
def engine(daemon: harness.Daemon) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(**kwargs: Any) -> Engine:
        made.append(Engine(daemon.socket, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


def run(engine: Engine, id: str, path: str | None) -> int:
    """Runs the prompt with the adapter of the one name at this path. Returns the tokens read."""
    adapter = Adapter((1, "tuned", path), "tuned", path) if path else None
    request = Request(id, PROMPT, adapter)
    found: list[int] = []

    def admitted() -> bool:
        cached = engine.admit(request)
        if cached is not None:
            found.append(cached)
        return bool(found)

    harness.until(admitted, "the adapter is identified")
    engine.step(request)
    engine.finish(request)
    return found[0]


def test_should_share_within_an_adapter_and_not_across(engine: Callable[..., Engine]) -> None:
    content = {"/a": "weights A", "/copy of a": "weights A", "/b": "weights B"}
    a, b = engine(identify=content.__getitem__), engine(identify=content.__getitem__)
    run(a, "first", "/a")

    assert run(b, "other content, same name", "/b") == 0
    assert run(b, "no adapter", None) == 0
    assert run(b, "same content elsewhere", "/copy of a") == 10 * TOKENS


def test_should_not_share_an_adapter_that_cannot_be_identified(
    engine: Callable[..., Engine], caplog: pytest.LogCaptureFixture
) -> None:
    def identify(path: str) -> str:
        raise ValueError(f"{path} is no adapter")

    a, b = engine(identify=identify), engine(identify=identify)
    run(a, "first", "/a")

    assert run(b, "second", "/a") == 0
    assert run(b, "third", "/a") == 0
    assert b.counted()["private_requests"] == 2
    said = [r for r in caplog.records if "/a is no adapter" in r.getMessage()]
    assert len(said) == 2  # once an engine


def test_should_ask_again_while_an_adapter_is_being_read_but_not_for_ever(
    engine: Callable[..., Engine],
) -> None:
    clock, gate = Clock(), threading.Event()

    def identify(path: str) -> str:
        gate.wait()
        return path

    a = engine(identify=identify, clock=clock)
    adapter = Adapter(1, "tuned", "/a")
    a.scheduler.prepare(adapter)
    request = Request("first", PROMPT, adapter)
    try:
        assert a.scheduler.lookup(request, 0) is None
        clock.now += 11
        assert a.scheduler.lookup(request, 0) == 0
    finally:
        gate.set()


def test_should_share_only_as_many_adapters_as_a_client_may_have(
    engine: Callable[..., Engine],
) -> None:
    a = engine()
    for i in range(70):
        run(a, f"request {i}", f"/adapter {i}")

    assert a.counted()["private_requests"] >= 70 - 60
