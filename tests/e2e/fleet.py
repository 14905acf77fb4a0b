# SPDX-License-Identifier: Apache-2.0
"""Engines that tests share: two with the pool, and the control without it, on one daemon.

Owned by the fixtures; one thread. Starting an engine takes half a minute, so that a fleet lives as
long as tests for its model follow one another.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.process import Engine
from kvpoold import Daemon
from models import MODELS, Model

CPUS = sorted(os.sched_getaffinity(0))
FIRST_CPU, SECOND_CPU = str(CPUS[0]), str(CPUS[min(1, len(CPUS) - 1)])
_STARTS = itertools.count(1)
COMMON = {"max_model_len": 4096}


def start_engines(*settings: dict[str, Any]) -> list[Engine]:
    """Starts engines side by side; where one fails, none is left. Their logs stay in $KVPOOL_LOGS,
    where it is set."""
    engines: list[Engine] = []
    folder = os.environ.get("KVPOOL_LOGS")
    try:
        for each in settings:
            log = Path(folder) / f"{next(_STARTS):02d}-{each['name']}.log" if folder else None
            engines.append(Engine(**(COMMON | each), log=log, wait=False))
        for engine in engines:
            engine.wait_ready()
    except BaseException:
        close_engines(engines)
        raise
    return engines


def close_engines(engines: Sequence[Engine]) -> None:
    """Ends engines."""
    for engine in engines:
        engine.close()


class Fleet:
    """`first` and `second` use the pool of `daemon`, `control` none; alike in everything else."""

    def __init__(self, model: Model, pool: str = "2G", **arguments: Any) -> None:
        self.model = model
        self.daemon = Daemon(pool)
        common = {"model": model.name} | model.arguments | arguments
        self._settings = {
            "first": {"name": "first", "cpus": FIRST_CPU, "socket": self.daemon.socket},
            "second": {"name": "second", "cpus": SECOND_CPU, "socket": self.daemon.socket},
            "control": {"name": "control", "cpus": FIRST_CPU, "kvpool": False},
        }
        for settings in self._settings.values():
            settings |= common
        self._engines: dict[str, Engine] = {}
        try:
            self.ensure()
        except BaseException:
            self.close()
            raise

    @property
    def first(self) -> Engine:
        """An engine with the pool."""
        return self._engines["first"]

    @property
    def second(self) -> Engine:
        """Another engine with the pool."""
        return self._engines["second"]

    @property
    def control(self) -> Engine:
        """The engine without it: KVPOOL_DISABLE=1."""
        return self._engines["control"]

    def ensure(self) -> None:
        """Starts what is not running, so that one test's failure is not another's."""
        missing = [
            name
            for name in self._settings
            if name not in self._engines or not self._engines[name].alive
        ]
        close_engines([self._engines.pop(name) for name in missing if name in self._engines])
        started = start_engines(*(self._settings[name] for name in missing))
        self._engines.update(zip(missing, started, strict=True))

    def close(self) -> None:
        """Ends engines and daemon."""
        close_engines(list(self._engines.values()))
        self._engines.clear()
        self.daemon.close()


class Fleets:
    """At most one fleet at a time: memory is for a few engines."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None

    def get(self, model: str) -> Fleet:
        """The fleet of a model; the one of another model is closed."""
        if self._fleet is None or self._fleet.model.name != model:
            self.close()
            self._fleet = Fleet(MODELS[model])
        self._fleet.ensure()
        return self._fleet

    def close(self) -> None:
        """Ends the fleet, if there is one."""
        fleet, self._fleet = self._fleet, None
        if fleet is not None:
            fleet.close()
