# SPDX-License-Identifier: Apache-2.0
"""vLLM's scheduler to :class:`kvpool.engine.scheduler.Scheduler`: requests, layouts, events.

Owned by the connector in the scheduler's process; the engine's loop is its only thread.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from kvpool import identity
from kvpool.engine.book import Adapter
from kvpool.engine.jobs import LayoutSpec, Report, Step
from kvpool.engine.scheduler import Scheduler
from kvpool.engine.settings import Settings
from kvpool.vllm import facts, versions
from kvpool.vllm.events import Events
from kvpool.vllm.geometry import Geometry, agree, cache_groups

log = logging.getLogger("vllm.kvpool")


class RequestView:
    """A vLLM request as the engine-neutral scheduler reads it."""

    def __init__(self, request: Any) -> None:
        self.request = request

    @property
    def id(self) -> str:
        """See :class:`kvpool.engine.request.View`, as of all below."""
        return str(self.request.request_id)

    @property
    def tokens(self) -> int:
        """Known tokens."""
        return int(self.request.num_tokens)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return int(self.request.num_prompt_tokens)

    @property
    def computed(self) -> int:
        """Tokens that have KV."""
        return int(self.request.num_computed_tokens)

    @property
    def keys(self) -> Sequence[bytes]:
        """Hashes of whole blocks."""
        return self.request.block_hashes  # type: ignore[no-any-return]

    @property
    def readable(self) -> bool:
        """Whether it may read a cache."""
        return not self.request.skip_reading_prefix_cache

    @property
    def adapter(self) -> Adapter | None:
        """Its LoRA."""
        lora = self.request.lora_request
        if lora is None:
            return None
        key = (lora.lora_int_id, lora.lora_name, lora.lora_path)
        return Adapter(key, str(lora.lora_name), str(lora.lora_path))


class SchedulerSide:
    """Begins to share once every worker has described its memory."""

    def __init__(self, config: Any, kv_cache_config: Any, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._tokens = facts.block_tokens(config, kv_cache_config)
        self._groups = cache_groups(kv_cache_config, self._tokens)
        self._scheduler: Scheduler | None = None
        self._spec: LayoutSpec | None = None
        events = config.kv_events_config
        wanted = events is not None and events.enable_kv_cache_events
        self._events = Events(self._tokens) if wanted else None
        self._views: dict[str, RequestView] = {}
        self._token: bytes | None = None

    def begin(self, workers: Sequence[Geometry]) -> None:
        """Makes the layout. Raises Unsupported."""
        config = self._config
        groups, order = agree(self._groups, workers)
        algorithm = config.cache_config.prefix_caching_hash_algo
        seed, model = self._seed_and_model(algorithm)
        self._spec = LayoutSpec(
            engine=f"vllm {versions.installed()}",
            hash_algorithm=str(algorithm),
            hash_seed=seed,
            model=model,
            revision=f"loaded as {config.load_config.load_format}",
            adapter=None,
            dtype=facts.numerics(config),
            order=order,
            label=facts.model_label(config)[:63],
            block_tokens=self._tokens,
            shards=len(workers),
            groups=tuple(groups),
        )
        tables = [group.tables for group in self._groups]
        self._scheduler = Scheduler(self._spec, tables, facts.adapter_identity, self._settings)

    def _seed_and_model(self, algorithm: str) -> tuple[str, str]:
        try:
            if not self._settings.share:
                raise identity.Unidentified("kvpool_share is false")
            return facts.hash_seed(algorithm), facts.model_identity(self._config)
        except identity.Unidentified as e:
            log.warning("kvpool: KV is not shared with other engines: %s", e)
            return facts.private(), facts.private()

    def arrived(self, request: Any) -> None:
        """A request was queued."""
        if self._scheduler is not None:
            self._scheduler.prepare(RequestView(request).adapter)

    def lookup(self, request: Any, local_tokens: int) -> int | None:
        """See :meth:`kvpool.engine.scheduler.Scheduler.lookup`."""
        if self._scheduler is None:
            return 0
        view = self._views.get(request.request_id)
        if view is None or view.request is not request:
            view = self._views[request.request_id] = RequestView(request)
        return self._scheduler.lookup(view, local_tokens)

    def allocated(
        self, request: Any, tables: Sequence[Sequence[int]], external_tokens: int
    ) -> None:
        """See :meth:`kvpool.engine.scheduler.Scheduler.allocated`."""
        view = self._views.get(request.request_id)
        if self._scheduler is not None and view is not None:
            self._scheduler.allocated(view, external_tokens, tables)

    def plan(self, output: Any) -> Step | None:
        """The copies of a step of vLLM."""
        if self._scheduler is None:
            return None
        step = self._scheduler.step(self._scheduled(output), output.preempted_req_ids or ())
        if self._events is not None:
            self._note_stored(step)
        return step

    def _scheduled(self, output: Any) -> Iterator[tuple[str, int, Any]]:
        state = output.kv_connector_block_state
        for id, tokens in output.num_scheduled_tokens.items():
            yield id, tokens, lambda id=id: state.resolve_block_ids(id)

    def _note_stored(self, step: Step) -> None:
        assert self._scheduler is not None and self._events is not None
        if step.token is not None and step.token != self._token:
            if self._token is not None:
                self._events.lost()
            self._token = step.token
        for id, first, count in self._scheduler.stored:
            view = self._views.get(id)
            if view is not None:
                self._events.stored(view.request, first, count)

    def report(self, report: Report | None) -> None:
        """What the workers did."""
        if self._scheduler is not None:
            self._scheduler.report(report)

    def finished(self, request: Any) -> None:
        """The request is over."""
        self._views.pop(request.request_id, None)
        if self._scheduler is not None:
            self._scheduler.finished(request.request_id)

    def take_events(self) -> list[Any]:
        """KV events since the last call."""
        return self._events.take() if self._events is not None else []

    def take_counters(self) -> dict[str, float]:
        """What was counted since the last call."""
        return self._scheduler.counters.take() if self._scheduler is not None else {}

    def reset(self) -> None:
        """The weights may be others now: a layout that nobody has."""
        if self._scheduler is None or self._spec is None:
            return
        log.warning(
            "kvpool: the engine's cache was reset, as after a change of weights: from here on its "
            "KV is not shared with other engines"
        )
        self._spec = dataclasses.replace(self._spec, model=facts.private())
        self._scheduler.replace_model(self._spec)
        if self._events is not None:
            self._events.lost()

    def close(self) -> None:
        """Gives everything back."""
        if self._scheduler is not None:
            self._scheduler.close()
            self._scheduler = None
