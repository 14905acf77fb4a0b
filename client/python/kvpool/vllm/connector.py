# SPDX-License-Identifier: Apache-2.0
"""vLLM's connector class: a shim that translates between vLLM 0.32 and :mod:`kvpool.engine`.

vLLM makes one in its scheduler's process and one in each worker. Every method is called by the one
thread that runs the engine's loop there, and none raises: what goes wrong turns the pool off for
this engine, with a line that says so.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvpool.engine.jobs import Copy, Report, Step
from kvpool.engine.settings import Settings, disabled_by_environment
from kvpool.vllm import facts
from kvpool.vllm.geometry import Geometry, Unsupported
from kvpool.vllm.metrics import KvpoolPromMetrics, KvpoolStats
from kvpool.vllm.scheduler_side import SchedulerSide
from kvpool.vllm.worker_side import WorkerSide

log = logging.getLogger("vllm.kvpool")

F = TypeVar("F", bound=Callable[..., Any])


def _log_as_vllm_does() -> None:
    """Lines of the engine-neutral part go where vLLM's own go, at vLLM's level."""
    ours, theirs = logging.getLogger("kvpool"), logging.getLogger("vllm")
    if not ours.handlers and theirs.handlers:
        ours.handlers = list(theirs.handlers)
        ours.setLevel(theirs.getEffectiveLevel())
        ours.propagate = False


@dataclass
class StepMetadata(KVConnectorMetadata):
    """From the scheduler to the workers."""

    step: Step


@dataclass
class ReportMetadata(KVConnectorWorkerMetadata):
    """From the workers to the scheduler."""

    report: Report

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """Merges another worker's report into this one."""
        if isinstance(other, ReportMetadata):
            self.report.merge(other.report)
        return self


@dataclass
class GeometryMetadata(KVConnectorHandshakeMetadata):
    """From each worker to the scheduler, once."""

    geometry: Geometry | None


def guarded(default: Callable[[], Any]) -> Callable[[F], F]:
    """A method that answers `default()` once the pool is off, and turns it off where it fails."""

    def wrap(method: F) -> F:
        @functools.wraps(method)
        def call(self: KvpoolConnector, *args: Any, **kwargs: Any) -> Any:
            if self.off:
                return default()
            try:
                return method(self, *args, **kwargs)
            except Exception as e:
                self.turn_off(f"{method.__name__}: {type(e).__name__}: {e}", unexpected=True)
                return default()

        return call  # type: ignore[return-value]

    return wrap


class KvpoolConnector(KVConnectorBase_V1, SupportsHMA):
    """Shares prompt KV among the engines of a host through kvpoold."""

    _cache_hit_source = CacheHitSource.HOST

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _log_as_vllm_does()
        self.off = False
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        self._promised: set[str] = set()  # requests that wait for a load which was not sent yet
        self._unread: set[str] = set()  # loads of steps in which the worker's side is off
        # A block that could not be loaded is computed: without this vLLM fails the request.
        self._kv_transfer_config.kv_load_failure_policy = "recompute"
        try:
            if disabled_by_environment():
                raise Unsupported("KVPOOL_DISABLE is set")
            facts.check(vllm_config)
            settings, refused = Settings.read(self._kv_transfer_config.kv_connector_extra_config)
            for sentence in refused if role == KVConnectorRole.SCHEDULER else ():
                log.warning("kvpool: %s", sentence)
            if role == KVConnectorRole.SCHEDULER:
                self._scheduler = SchedulerSide(vllm_config, kv_cache_config, settings)
            else:
                self._worker = WorkerSide(vllm_config, kv_cache_config, settings)
        except Unsupported as e:
            self.turn_off(str(e))
        except Exception as e:
            self.turn_off(f"{type(e).__name__}: {e}", unexpected=True)

    @property
    def requires_kv_delivery(self) -> bool:
        """False: a cache. A store that is lost is a miss later."""
        return False

    def turn_off(self, why: str, *, unexpected: bool = False) -> None:
        """From now on this engine runs without the pool."""
        self.off = True
        if unexpected:
            log.error("kvpool: off, vLLM goes on without it: %s", why, exc_info=True)
        elif self._role == KVConnectorRole.SCHEDULER:
            log.warning("kvpool: KV is not shared: %s", why)
        for side in (self._scheduler, self._worker):
            if side is not None:
                try:
                    side.close()
                except Exception:
                    log.debug("kvpool: closing", exc_info=True)

    # ---- scheduler's process ----

    @guarded(lambda: None)
    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], Any]) -> None:
        """Takes what each worker says of its KV memory."""
        assert self._scheduler is not None
        found = [each.geometry for each in metadata.values() if isinstance(each, GeometryMetadata)]
        if any(geometry is None for geometry in found):
            self.turn_off("a worker cannot share its KV memory")
            return
        try:
            self._scheduler.begin([each for each in found if each is not None])
        except Unsupported as e:
            self.turn_off(str(e))

    @guarded(lambda: None)
    def on_new_request(self, request: Any) -> None:
        """Identifies the request's adapter while it queues."""
        if self._scheduler is not None:
            self._scheduler.arrived(request)

    @guarded(lambda: (0, False))
    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Tokens in the pool beyond those that vLLM has; None while another engine computes
        them."""
        assert self._scheduler is not None
        tokens = self._scheduler.lookup(request, num_computed_tokens)
        return tokens, bool(tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Plans the load of what was promised."""
        if num_external_tokens > 0:
            self._promised.add(request.request_id)
        self._allocated(request, blocks, num_external_tokens)

    @guarded(lambda: None)
    def _allocated(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if self._scheduler is not None:
            self._scheduler.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """The step's copies. vLLM waits for every load that was promised, so those that came to
        nothing here are sent as loads that fail."""
        step = self._plan(scheduler_output) or Step()
        sent = {copy.request for copy in step.loads}
        step.loads += [Copy(0, id, 0, ()) for id in sorted(self._promised - sent)]
        self._promised.clear()
        return StepMetadata(step)

    @guarded(lambda: None)
    def _plan(self, scheduler_output: Any) -> Step | None:
        return self._scheduler.plan(scheduler_output) if self._scheduler is not None else None

    @guarded(lambda: None)
    def update_connector_output(self, connector_output: Any) -> None:
        """Takes the workers' report."""
        meta = connector_output.kv_connector_worker_meta
        if self._scheduler is not None:
            self._scheduler.report(meta.report if isinstance(meta, ReportMetadata) else None)

    @guarded(lambda: (False, None))
    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Gives back what is held for the request. Its pages are free at once."""
        if self._scheduler is not None:
            self._scheduler.finished(request)
        return False, None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """The same where there are several KV cache groups."""
        return self.request_finished(request, [])  # type: ignore[no-any-return]

    @guarded(tuple)
    def take_events(self) -> Iterable[Any]:
        """KV events since the last call."""
        return self._scheduler.take_events() if self._scheduler is not None else ()

    @guarded(lambda: None)
    def reset_cache(self) -> bool | None:
        """vLLM's caches are void, maybe because its weights changed: nothing that was stored before
        is read by this engine again, and what it stores is its own."""
        if self._scheduler is not None:
            self._scheduler.reset()
        return True

    # ---- workers ----

    @guarded(lambda: None)
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Finds the planes of the KV memory."""
        assert self._worker is not None
        try:
            self._worker.register(kv_caches)
        except Unsupported as e:
            self.turn_off(str(e))

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """What the scheduler's side must know of this worker."""
        if self._worker is None:
            return GeometryMetadata(None)
        return GeometryMetadata(None if self.off else self._worker.geometry)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Copies out of the pool. Over when it returns."""
        step = self._step()
        done = self._load(step)
        if not done:
            # The scheduler counts on an answer for each of them.
            self._unread |= {copy.request for copy in step.loads}

    @guarded(lambda: False)
    def _load(self, step: Step) -> bool:
        assert self._worker is not None
        self._worker.load(step)
        return True

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Blocks are stored when the step is over."""

    @guarded(lambda: None)
    def wait_for_save(self) -> None:
        """Copies into the pool what the step completed. Over when it returns."""
        if self._worker is not None:
            self._worker.store(self._step())

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """The loads of this step, and those of them that failed."""
        failed, self._unread = self._unread, set()
        done, not_loaded = self._taken()
        return KVConnectorTransferResults(
            finished_recving=done | failed, failed_recving=not_loaded | failed
        )

    @guarded(lambda: (set(), set()))
    def _taken(self) -> tuple[set[str], set[str]]:
        return self._worker.take_loaded() if self._worker is not None else (set(), set())

    @guarded(lambda: None)
    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """The report on this step's copies."""
        report = self._worker.take_report() if self._worker is not None else None
        return ReportMetadata(report) if report is not None else None

    def _step(self) -> Step:
        if not self.has_connector_metadata():
            return Step()
        metadata = self._get_connector_metadata()
        return metadata.step if isinstance(metadata, StepMetadata) else Step()

    # ---- both ----

    @guarded(lambda: None)
    def get_kv_connector_stats(self) -> KvpoolStats | None:
        """What was counted since the last call."""
        side = self._scheduler or self._worker
        counted = side.take_counters() if side is not None else {}
        return KvpoolStats(data=counted) if counted else None

    def shutdown(self) -> None:
        """Gives everything back."""
        if not self.off:
            self.off = True
            for side in (self._scheduler, self._worker):
                if side is not None:
                    side.close()

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KvpoolStats:
        """Stats from their payload."""
        return KvpoolStats(data=dict(data or {}))

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KvpoolPromMetrics:
        """Counters in vLLM's Prometheus endpoint."""
        return KvpoolPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
