# SPDX-License-Identifier: Apache-2.0
"""Who decides whether the pool is used: nobody has to, and everybody may.

Also what an engine says and does where there is no daemon yet, or a pool too small for a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine.process import Engine
from fleet import FIRST_CPU, SECOND_CPU, close_engines, start_engines
from kvpoold import Daemon
from models import BLOCK, MODELS, SMOLLM2, ask, assert_agrees, shared_tokens

ANSWER = 8
LENGTH = 600
CHOSEN = "prompt KV is shared through the pool"
CONNECTOR = {
    "kv_connector": "KvpoolConnector",
    "kv_connector_module_path": "kvpool.vllm.connector",
    "kv_role": "kv_both",
}
MODEL = MODELS[SMOLLM2]
TRIES = 12


def settings(name: str, daemon: Daemon, **more: Any) -> dict[str, Any]:
    """One engine of SmolLM2."""
    cpu = FIRST_CPU if len(name) % 2 else SECOND_CPU
    common = {"model": SMOLLM2, "name": name, "cpus": cpu, "socket": daemon.socket}
    return common | MODEL.arguments | more


@dataclass
class Deciding:
    """A plain engine with the pool, its control, and engines that were told not to use it."""

    daemon: Daemon
    plain: Engine
    control: Engine
    others: dict[str, Engine]


@pytest.fixture(scope="module")
def deciding(no_fleet: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deciding]:
    """Engines that differ in who decides."""
    own = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path_factory.mktemp("own"))},
    }
    daemon = Daemon("512M")
    engines: list[Engine] = []
    try:
        engines += start_engines(
            settings("plain", daemon),
            settings("disabled", daemon, kvpool=False),
        )
        engines += start_engines(
            settings("own-connector", daemon, kv_transfer_config=own),
            settings("no-plugins", daemon, env={"VLLM_PLUGINS": ""}),
        )
        plain, control, *others = engines
        yield Deciding(daemon, plain, control, {each.name: each for each in [control, *others]})
    finally:
        close_engines(engines)
        daemon.close()


def test_should_use_the_pool_when_nobody_configured_anything(deciding: Deciding) -> None:
    assert deciding.plain.log_text().count(CHOSEN) == 1
    prompt = MODEL.prompt(LENGTH, "plain")
    control = ask(deciding.control, prompt, ANSWER)
    before = deciding.daemon.stored_blocks()
    assert_agrees(ask(deciding.plain, prompt, ANSWER), control, "plain engine")
    assert deciding.daemon.stored_blocks() == before + LENGTH // BLOCK


@pytest.mark.parametrize("name", ["disabled", "own-connector", "no-plugins"])
def test_should_leave_the_pool_alone_when_told_to(deciding: Deciding, name: str) -> None:
    engine = deciding.others[name]
    prompt = MODEL.prompt(LENGTH, f"told not to: {name}")
    computed = ask(deciding.plain, prompt, ANSWER)
    clients = deciding.daemon.clients()
    stored = deciding.daemon.stored_blocks()
    result = ask(engine, prompt, ANSWER)
    assert result.cached == 0
    assert_agrees(result, computed, name)
    other = MODEL.prompt(LENGTH, f"stored by nobody: {name}")
    ask(engine, other, ANSWER)
    assert deciding.daemon.stored_blocks() == stored
    assert deciding.daemon.clients() == clients
    assert CHOSEN not in engine.log_text()
    assert not [key for key in engine.metrics() if "kvpool" in key]


def test_should_use_a_daemon_that_appears_after_the_engine(deciding: Deciding) -> None:
    daemon = Daemon("512M", start=False)
    try:
        with start_engines(settings("early", daemon))[0] as engine:
            prompt = MODEL.prompt(LENGTH, "no daemon yet")
            assert_agrees(
                ask(engine, prompt, ANSWER),
                ask(deciding.control, prompt, ANSWER),
                "without a daemon",
            )
            daemon.start()
            for number in range(TRIES):
                engine.generate(MODEL.prompt(LENGTH, f"a daemon now {number}"), 1)
                if daemon.stored_blocks() > 0:
                    break
            assert daemon.stored_blocks() > 0
    finally:
        daemon.close()


def events_of(subscriber: Any, milliseconds: int) -> list[dict[str, Any]]:
    """Records of the batches that arrive within a time, decoded."""
    import msgspec
    import zmq

    found = []
    while subscriber.poll(milliseconds, zmq.POLLIN):
        _topic, _number, payload = subscriber.recv_multipart()
        batch = msgspec.msgpack.decode(payload)
        found += list(batch[1])
    return found


def media(records: list[dict[str, Any]]) -> set[str]:
    """Where blocks were announced as stored."""
    return {record["medium"] for record in records if record["type"] == "BlockStored"}


def test_should_work_as_a_named_connector_with_events_and_another_block_size(
    deciding: Deciding, tmp_path: Path
) -> None:
    import zmq

    endpoint = f"ipc://{tmp_path}/events"
    events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}
    named = settings(
        "named",
        deciding.daemon,
        kv_transfer_config=CONNECTOR,
        kv_events_config=events,
        block_size=64,
    )
    context = zmq.Context()
    subscriber = context.socket(zmq.SUB)
    try:
        subscriber.setsockopt(zmq.SUBSCRIBE, b"")
        with start_engines(named)[0] as engine:
            subscriber.connect(endpoint)
            prompt = MODEL.prompt(LENGTH, "named connector")
            computed = ask(deciding.plain, prompt, ANSWER)
            # Blocks of another size are other blocks.
            result = ask(engine, prompt, ANSWER)
            assert result.cached == 0
            assert_agrees(result, computed, "named connector")
            records: list[dict[str, Any]] = []
            for number in range(TRIES):
                engine.generate(MODEL.prompt(LENGTH, f"events {number}"), 1)
                records += events_of(subscriber, 500)
                if "CPU" in media(records):
                    break
            # vLLM's own events of its own cache, and the connector's of the pool.
            assert media(records) == {"GPU", "CPU"}
    finally:
        subscriber.close(0)
        context.term()


def test_should_run_and_say_so_when_the_pool_is_too_small_for_a_block(
    deciding: Deciding,
) -> None:
    # A block of 512 tokens is 11.25 MiB; no run of blocks here is longer than 4 MiB.
    daemon = Daemon("64M", "--segment-size", "16M", "--extent-size", "4M")
    large = settings("large-blocks", daemon, block_size=512, num_gpu_blocks_override=25)
    try:
        with start_engines(large)[0] as engine:
            prompt = MODEL.prompt(2 * 512 + 5, "large blocks")
            result = ask(engine, prompt, ANSWER)
            assert_agrees(result, ask(deciding.control, prompt, ANSWER), "large blocks")
            assert daemon.stored_blocks() == 0
            said = [line for line in engine.log_text().splitlines() if "kvpool" in line]
            assert any("11" in line and "4" in line and "MiB" in line for line in said), said
    finally:
        daemon.close()


def test_should_share_what_it_stored_before_a_restart(deciding: Deciding) -> None:
    prompt = MODEL.prompt(LENGTH, "before a restart")
    computed = ask(deciding.plain, prompt, ANSWER)
    with start_engines(settings("restarted", deciding.daemon))[0] as engine:
        found = ask(engine, prompt, ANSWER)
        assert found.cached == shared_tokens(LENGTH)
        assert_agrees(found, computed, "an engine that started later")
        engine.quit()
        assert not engine.alive
    # What it stored outlives it, and it holds nothing any more.
    assert deciding.daemon.reserved_blocks() == 0
