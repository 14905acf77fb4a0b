# SPDX-License-Identifier: Apache-2.0
"""The three arms: two engines each, and the daemon of the third. Owns all of these processes.

All engines are started once and stay; an engine without requests sleeps. So the arms can take
turns within minutes instead of one having the machine's good half hour and another its bad one.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from engine.process import Engine, EngineError, engines_dir, model_dir

from experiments import machine

CPUS = ("0", "1")  # one engine each
START_SECONDS = 30.0
GIB = 1 << 30


class ArmsError(Exception):
    """The arms cannot be set up. The message says what is missing and what to do."""


@dataclass(frozen=True)
class Setup:
    """What the engines are given, the same in all arms but for caching.

    cache_tokens: KV memory of one engine, in all arms. Room for the longest requests at once, as
    many as run, and a fifth more: nothing is ever preempted, and what is left over caches some
    prompts, as on an accelerator that a large model fills. step_tokens: about half a second of
    computing, so that answers in the making are not held up by a long prompt. pool_mib: the
    daemon's pool, several times the two caches: what a host's memory is to its accelerators.
    """

    model: str = "smollm2-135m"
    block_tokens: int = 32
    cache_tokens: int = 9728
    sequences: int = 6
    step_tokens: int = 512
    longest: int = 1344
    pool_mib: int = 3072
    token_bytes: int = 23040  # 30 layers, 3 heads of 64, K and V, bfloat16
    engine_gib: float = 2.6  # memory of one engine, measured

    def arguments(self, arm: str) -> dict[str, Any]:
        """What vLLM is given."""
        return {
            "block_size": self.block_tokens,
            "num_gpu_blocks_override": self.cache_tokens // self.block_tokens,
            "max_num_seqs": self.sequences,
            "max_num_batched_tokens": self.step_tokens,
            "max_model_len": self.longest,
            "enable_prefix_caching": arm != "none",
        }

    def describe(self) -> dict[str, Any]:
        """For the results."""
        return asdict(self) | {"engines": len(CPUS), "cpus": list(CPUS)}


def check(setup: Setup, names: tuple[str, ...], cpus: set[int], daemon: Path) -> None:
    """Raises ArmsError where these arms cannot run here, on CPUs that this process may use."""
    python = engines_dir() / "vllm" / "bin" / "python"
    model = model_dir(setup.model)
    if not python.exists() or not (model / "config.json").exists():
        missing = model if python.exists() else python
        raise ArmsError(f"the engines are not installed ({missing} is missing): run tools/engines")
    if "kvpool" in names:
        _check_kvpool(python, daemon)
    lacking = [cpu for cpu in CPUS if int(cpu) not in cpus]
    if lacking:
        raise ArmsError(f"one CPU an engine: this process may not use CPU {', '.join(lacking)}")
    engines = len(names) * len(CPUS)
    needed = round(engines * setup.engine_gib + setup.pool_mib / 1024, 1)
    free = round(machine.memory_bytes("MemAvailable") / GIB, 1)
    if free < needed:
        raise ArmsError(
            f"{free} GiB of memory are free, and {needed} are needed: {engines} engines of "
            f"{setup.engine_gib} GiB and a pool of {setup.pool_mib} MiB"
        )


def _check_kvpool(python: Path, daemon: Path) -> None:
    probe = [str(python), "-c", "import kvpool, kvpool.vllm.plugin"]
    found = subprocess.run(probe, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        last = (found.stderr.strip().splitlines() or ["no message"])[-1]
        raise ArmsError(f"the engines' Python has no kvpool ({last}): run tools/engines")
    if not daemon.exists():
        raise ArmsError(f"{daemon} is missing: build kvpool first")


class Daemon:
    """A kvpoold of our own, in a folder of its own. Ends with this object."""

    def __init__(self, build: Path, folder: Path, pool_mib: int) -> None:
        self.socket = folder / "kvpool.sock"
        self._control = [str(build / "tools" / "kvpoolctl"), "--socket", str(folder / "admin.sock")]
        self._log = folder / "kvpoold.log"
        with self._log.open("ab") as log:
            command = [str(build / "daemon" / "kvpoold"), "--socket", str(self.socket)]
            self._process = subprocess.Popen([*command, "--size", f"{pool_mib}M"], stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while self._ask() is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise ArmsError(f"kvpoold does not serve: {self._log.read_text(errors='replace')}")
            time.sleep(0.05)

    def _ask(self) -> dict[str, Any] | None:
        command = [*self._control, "status", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            return json.loads(done.stdout) if done.returncode == 0 else None
        except ValueError:
            return None

    def ready_bytes(self) -> int:
        """Bytes of blocks that the pool holds now."""
        status = self._ask()
        if status is None:
            raise ArmsError(f"kvpoold does not answer (log: {self._log})")
        return int(status["accounting"]["bytes"]["ready"])

    def close(self) -> None:
        """Ends the daemon."""
        self._process.terminate()
        try:
            self._process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Arms:
    """The engines of the arms that are asked for, and their daemon; a context manager."""

    def __init__(
        self,
        names: tuple[str, ...],
        setup: Setup,
        build: Path,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self._engines: dict[str, list[Engine]] = {name: [] for name in names}
        self.daemon: Daemon | None = None
        try:
            if "kvpool" in names:
                self.daemon = Daemon(build, folder, setup.pool_mib)
            for name in names:
                began = time.monotonic()
                self._start(name, setup, folder)
                say(f"the engines of arm {name} are there ({time.monotonic() - began:.0f} s)")
        except BaseException:
            self.close()
            raise

    def _start(self, arm: str, setup: Setup, folder: Path) -> None:
        for cpu in CPUS:
            engine = Engine(
                setup.model,
                f"{arm}-{cpu}",
                cpus=cpu,
                kvpool=arm == "kvpool",
                socket=self.daemon.socket if self.daemon and arm == "kvpool" else None,
                pin=True,
                log=folder / f"engine-{arm}-{cpu}.log",
                wait=False,
                **setup.arguments(arm),
            )
            self._engines[arm].append(engine)
        for engine in self._engines[arm]:
            engine.wait_ready()

    @property
    def names(self) -> tuple[str, ...]:
        """The arms that are up."""
        return tuple(self._engines)

    def __contains__(self, arm: str) -> bool:
        return arm in self._engines

    def __getitem__(self, arm: str) -> list[Engine]:
        return self._engines[arm]

    def __enter__(self) -> Arms:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all engines and the daemon."""
        for engines in self._engines.values():
            for engine in engines:
                try:
                    engine.close(keep_log=True)
                except EngineError:
                    engine.kill()
        if self.daemon is not None:
            self.daemon.close()
