# SPDX-License-Identifier: Apache-2.0
"""vLLM's worker to :class:`kvpool.engine.worker.Worker`: its tensors, and what it loaded.

Owned by the connector in a worker's process; the thread that runs the model is its only one.
"""

from __future__ import annotations

from typing import Any

from kvpool.engine.jobs import Report, Step
from kvpool.engine.settings import Settings
from kvpool.engine.worker import Worker
from kvpool.vllm import facts
from kvpool.vllm.geometry import Geometry, cache_groups, planes


class WorkerSide:
    """Copies once its KV memory is known."""

    def __init__(self, config: Any, kv_cache_config: Any, settings: Settings) -> None:
        self._config = config
        self._kv_cache_config = kv_cache_config
        self._settings = settings
        self._groups = cache_groups(kv_cache_config, facts.block_tokens(config, kv_cache_config))
        self._worker: Worker | None = None
        self._done: set[str] = set()
        self._failed: set[str] = set()
        self.geometry: Geometry | None = None

    def register(self, kv_caches: dict[str, Any]) -> None:
        """Finds the planes. Raises Unsupported."""
        rank = int(self._config.parallel_config.rank)
        found, geometry = planes(self._groups, self._kv_cache_config, kv_caches, rank)
        isa = self._instruction_set()
        self.geometry = Geometry(rank, (*geometry.order, isa), geometry.slot_bytes)
        name = f"{facts.model_label(self._config)} worker {rank}"[:63]
        self._worker = Worker(found, rank, self._settings, name)

    def _instruction_set(self) -> str:
        """How the CPU backend packs keys depends on the instructions it uses; where it does not
        say, the backend's name stands for the order."""
        context = self._config.compilation_config.static_forward_context
        words = {
            f"{type(getattr(layer, 'impl', layer)).__name__}:{getattr(layer, 'isa', '')}"
            for name in self._layers()
            if (layer := context.get(name)) is not None
        }
        return ",".join(sorted(words))

    def _layers(self) -> list[str]:
        return [
            layer for group in self._kv_cache_config.kv_cache_groups for layer in group.layer_names
        ]

    def load(self, step: Step) -> None:
        """Fills pages from the pool; see take_loaded()."""
        if self._worker is None:
            done = failed = {copy.request for copy in step.loads}
        else:
            done, failed = self._worker.load(step)
        self._done |= done
        self._failed |= failed

    def store(self, step: Step) -> None:
        """Copies pages into the pool."""
        if self._worker is not None:
            self._worker.store(step)

    def take_loaded(self) -> tuple[set[str], set[str]]:
        """Requests whose load is over since the last call, and those whose load failed."""
        done, self._done = self._done, set()
        failed, self._failed = self._failed, set()
        return done, failed

    def take_report(self) -> Report | None:
        """See :meth:`kvpool.engine.worker.Worker.take_report`."""
        return self._worker.take_report() if self._worker is not None else None

    def take_counters(self) -> dict[str, float]:
        """What was counted since the last call."""
        return self._worker.counters.take() if self._worker is not None else {}

    def close(self) -> None:
        """Leaves the pool."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
