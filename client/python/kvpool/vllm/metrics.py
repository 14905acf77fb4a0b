# SPDX-License-Identifier: Apache-2.0
"""The connector's counters in vLLM's log line and in its Prometheus endpoint.

Front-end process; counters of scheduler and workers arrive there summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from kvpool.engine.counters import NAMES

_PREFIX = "vllm:kvpool_"


@dataclass
class KvpoolStats(KVConnectorStats):
    """Sums by name of :data:`kvpool.engine.counters.NAMES`, since the last interval."""

    def reset(self) -> None:
        """Begins a new interval."""
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Adds the sums of another worker, of the scheduler, or of a later step."""
        for name, amount in other.data.items():
            self.data[name] = self.data.get(name, 0) + amount
        return self

    def reduce(self) -> dict[str, int | float]:
        """What vLLM writes into its log."""
        told = {}
        for name, amount in self.data.items():
            told[f"kvpool {name}"] = round(amount, 4) if name.endswith("seconds") else int(amount)
        return told

    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not self.data


class KvpoolPromMetrics(KVConnectorPromMetrics):
    """A Prometheus counter for each name, with vLLM's labels."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {}
        counter_class = metric_types[Counter]
        for name, text in NAMES.items():
            counter = counter_class(
                name=_PREFIX + name, documentation=f"kvpool: {text}", labelnames=labelnames
            )
            self._counters[name] = {
                engine: counter.labels(*values) for engine, values in per_engine_labelvalues.items()
            }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Adds an interval's sums."""
        for name, amount in transfer_stats_data.items():
            counter = self._counters.get(name, {}).get(engine_idx)
            if counter is not None and amount > 0:
                counter.inc(amount)
