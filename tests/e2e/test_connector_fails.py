# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong inside the connector, vLLM's loop gets an answer and no exception."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kvpool.engine.jobs import Copy, Step
from kvpool.vllm.connector import KvpoolConnector, StepMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole


class Broken:
    """A side of the connector of which nothing works."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} is broken")


def make(role: KVConnectorRole) -> KvpoolConnector:
    """A connector as vLLM has it, but for the configuration, with a side that fails."""
    connector = KvpoolConnector.__new__(KvpoolConnector)
    connector._role = role
    connector._connector_metadata = None
    connector.off = False
    connector._promised = set()
    connector._unread = set()
    scheduler = role == KVConnectorRole.SCHEDULER
    connector._scheduler = Broken() if scheduler else None  # type: ignore[assignment]
    connector._worker = None if scheduler else Broken()  # type: ignore[assignment]
    return connector


REQUEST = SimpleNamespace(request_id="r", lora_request=None)
OUTPUT = SimpleNamespace(num_scheduled_tokens={}, preempted_req_ids=None)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda c: c.on_new_request(REQUEST), None),
        (lambda c: c.get_num_new_matched_tokens(REQUEST, 0), (0, False)),
        (lambda c: c.request_finished_all_groups(REQUEST, ([],)), (False, None)),
        (lambda c: c.update_connector_output(SimpleNamespace(kv_connector_worker_meta=None)), None),
        (lambda c: list(c.take_events()), []),
        (lambda c: c.get_kv_connector_stats(), None),
        (lambda c: c.build_connector_meta(OUTPUT).step, Step()),
        (lambda c: c.set_xfer_handshake_metadata_pp_aware({(0, 0): None}), None),
        (lambda c: c.reset_cache(), None),
    ],
)
def test_should_answer_the_scheduler_though_everything_fails(call: Any, answer: Any) -> None:
    connector = make(KVConnectorRole.SCHEDULER)

    assert call(connector) == answer
    assert connector.off
    assert call(connector) == answer


def test_should_fail_a_load_that_was_promised_before_everything_failed() -> None:
    connector = make(KVConnectorRole.SCHEDULER)
    blocks = SimpleNamespace(get_block_ids=lambda: ([1],))
    connector.update_state_after_alloc(REQUEST, blocks, 16)

    step = connector.build_connector_meta(OUTPUT).step  # type: ignore[attr-defined]

    assert [(copy.request, copy.parts) for copy in step.loads] == [("r", ())]
    assert connector.build_connector_meta(OUTPUT).step.loads == []  # type: ignore[attr-defined]


def test_should_report_every_load_as_failed_where_the_worker_fails() -> None:
    connector = make(KVConnectorRole.WORKER)
    step = Step(loads=[Copy(1, "r", 1, ()), Copy(2, "s", 1, ())], stores=[Copy(3, "t", 1, ())])
    connector.bind_connector_metadata(StepMetadata(step))
    connector.start_load_kv(None)  # type: ignore[arg-type]
    connector.wait_for_save()

    results = connector.get_transfer_results(set())

    assert results.finished_recving == {"r", "s"}
    assert results.failed_recving == {"r", "s"}
    assert connector.build_connector_worker_meta() is None
    assert connector.get_transfer_results(set()).finished_recving == set()
