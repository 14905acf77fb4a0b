# SPDX-License-Identifier: Apache-2.0
"""The parent's side of an engine child process: start, ask, kill.

Uses the standard library alone, so that any Python can drive the engines. An Engine owns its child
and the child's process group; its methods may be called from several threads.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent.parent
START_SECONDS = 300.0
ANSWER_SECONDS = 300.0
QUIT_SECONDS = 20.0
TRACKER_SECONDS = 5.0
LOG_TAIL_LINES = 40


class EngineError(Exception):
    """The engine, or one request on it, failed. The message says what, and where its log is."""


class EngineDied(EngineError):
    """The child process has ended: killed, or by itself."""


@dataclass(frozen=True)
class Result:
    """What one request got. Times are seconds of CLOCK_MONOTONIC."""

    tokens: list[int]
    text: str
    cached: int  # prompt tokens that the engine did not compute, counted by the engine
    prompt_tokens: int
    finish: str | None
    logprobs: list[dict[int, float]] | None
    submitted: float
    first: float | None
    done: float

    @property
    def ttft(self) -> float:
        """Seconds from submission to the first token (to the end where there was none)."""
        return (self.done if self.first is None else self.first) - self.submitted

    @property
    def seconds(self) -> float:
        """Seconds from submission to the end of the answer."""
        return self.done - self.submitted


def engines_dir() -> Path:
    """The folder that tools/engines installs into."""
    if given := os.environ.get("KVPOOL_ENGINES"):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "kvpool" / "engines"


def model_dir(model: str | Path) -> Path:
    """The folder of a model: a path as it is, a bare name below the engines' folder."""
    path = Path(model)
    return path if path.parts[1:] else engines_dir() / "models" / path


def group_members(group: int) -> dict[int, str]:
    """The processes of a process group that still run, with their command lines."""
    members: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(state[2]) == group and state[0] not in "ZX":
                members[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        except (OSError, IndexError):
            continue
    return members


def end_group(group: int) -> None:
    """Kills a process group, and leaves no shared memory of Python's behind.

    Python's resource trackers are spared at first: they remove what the dead have left in
    /dev/shm (hundreds of MB for each engine) and then end by themselves.
    """
    deadline = time.monotonic() + TRACKER_SECONDS
    while (members := group_members(group)) and time.monotonic() < deadline:
        for pid, command in members.items():
            if "resource_tracker" not in command:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


class Engine:
    """One vLLM engine in a child process, ready for requests when the constructor returns.

    model: folder, or the name of one that tools/engines made. cpus: CPUs of the worker's threads,
    as VLLM_CPU_OMP_THREADS_BIND writes them; pin: all of the engine's processes stay on them
    (then a list with commas). kvpool False: KVPOOL_DISABLE=1. socket: the daemon's socket, else
    the default one. cache_gib: the engine's own KV memory, whole GiB. env: more variables of the
    child, None removes one. log: file for the engine's messages, else one in a temporary folder.
    wait False: return at once; then call wait_ready(). Everything else goes to vLLM as it is.
    """

    def __init__(
        self,
        model: str | Path,
        name: str,
        cpus: str = "0",
        kvpool: bool = True,
        socket: str | Path | None = None,
        cache_gib: int = 1,
        *,
        pin: bool = False,
        env: Mapping[str, str | None] | None = None,
        log: str | Path | None = None,
        wait: bool = True,
        **engine_args: Any,
    ) -> None:
        self.name = name
        self.start_seconds = 0.0
        self._work = Path(tempfile.mkdtemp(prefix=f"kvpool-engine-{name}-"))
        self.log = Path(log) if log else self._work / "log"
        self._changed = threading.Condition()
        self._write_lock = threading.Lock()
        self._ready = False
        self._ended = False
        self._failure = ""
        self._next_id = 1
        self._submitted: dict[int, float] = {}
        self._first: dict[int, float] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._begun = time.monotonic()

        command = [str(engines_dir() / "vllm" / "bin" / "python"), "-m", "engine.serve"]
        command += ["--model", str(model_dir(model)), "--name", name]
        if pin:
            command += ["--cpus", cpus]
        command.append(json.dumps(engine_args))
        variables = self._environment(cpus, kvpool, socket, cache_gib, env or {})
        with self.log.open("ab") as log_file:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log_file,
                    env=variables,
                    cwd=self._work,
                    start_new_session=True,
                    text=True,
                )
            except OSError as error:
                shutil.rmtree(self._work, ignore_errors=True)
                raise EngineError(f"engine {name}: {error}; run tools/engines first") from error
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._watch, daemon=True).start()
        if wait:
            self.wait_ready()

    def _environment(
        self,
        cpus: str,
        kvpool: bool,
        socket: str | Path | None,
        cache_gib: int,
        more: Mapping[str, str | None],
    ) -> dict[str, str]:
        # A connector must see this engine's settings alone, not those of who runs the proof.
        variables = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("KVPOOL_", "VLLM_", "PYTEST_"))
        }
        variables |= {
            "PYTHONPATH": str(TOOLS),
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            "TMPDIR": str(self._work),
            "VLLM_CPU_KVCACHE_SPACE": str(cache_gib),
            "VLLM_CPU_OMP_THREADS_BIND": cpus,
            # What vLLM learns about model classes costs it seconds at each start with a bare cache.
            "VLLM_CACHE_ROOT": str(engines_dir() / "cache" / "vllm"),
            "TORCHINDUCTOR_CACHE_DIR": str(engines_dir() / "cache" / "inductor"),
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_COLOR": "0",
        }
        if not kvpool:
            variables["KVPOOL_DISABLE"] = "1"
        if socket is not None:
            variables["KVPOOL_SOCKET"] = str(socket)
        for key, value in more.items():
            if value is None:
                variables.pop(key, None)
            else:
                variables[key] = value
        return variables

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process and process group of the child."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the child still runs."""
        return not self._ended

    def log_text(self) -> str:
        """What the engine has printed so far."""
        return self.log.read_text(errors="replace")

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        """Waits until the engine serves. Raises EngineDied or EngineError, and then closes it."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not self._ready and not self._ended and time.monotonic() < deadline:
                self._changed.wait(deadline - time.monotonic())
            ready = self._ready
        if not ready:
            error = self._dead() if self._ended else self._error(f"not ready after {timeout:g} s")
            self.close(keep_log=True)
            raise error

    def submit(
        self,
        prompt: str | Sequence[int],
        max_tokens: int = 16,
        *,
        salt: str | None = None,
        lora: Mapping[str, Any] | None = None,
        logprobs: int | None = None,
        ignore_eos: bool = False,
    ) -> int:
        """Sends one request, greedy; returns its id for result() and abort().

        prompt: text or token ids. lora: {"name", "path", "id"}. Raises EngineDied.
        """
        message: dict[str, Any] = {"op": "generate", "max_tokens": max_tokens}
        if isinstance(prompt, str):
            message["prompt"] = prompt
        else:
            message["prompt_token_ids"] = list(prompt)
        if salt is not None:
            message["salt"] = salt
        if lora is not None:
            message["lora"] = dict(lora)
        if logprobs is not None:
            message["logprobs"] = logprobs
        if ignore_eos:
            message["ignore_eos"] = True
        return self._begin(message)

    def result(self, request: int, timeout: float = ANSWER_SECONDS) -> Result:
        """Waits for one request's end. Raises EngineDied, or EngineError if the request failed."""
        answer = self._await(request, timeout)
        logprobs = answer["logprobs"]
        if logprobs is not None:
            logprobs = [{int(token): value for token, value in row.items()} for row in logprobs]
        with self._changed:
            submitted = self._submitted.pop(request)
            first = self._first.pop(request, None)
        return Result(
            tokens=answer["tokens"],
            text=answer["text"],
            cached=answer["cached"],
            prompt_tokens=answer["prompt_tokens"],
            finish=answer["finish"],
            logprobs=logprobs,
            submitted=submitted,
            first=first,
            done=answer["t"],
        )

    def generate(self, prompt: str | Sequence[int], max_tokens: int = 16, **more: Any) -> Result:
        """submit() and result() in one."""
        return self.result(self.submit(prompt, max_tokens, **more))

    def wait_first(self, request: int, timeout: float = ANSWER_SECONDS) -> None:
        """Waits until a request has its first token, or has ended. Raises EngineDied."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while request not in self._first and request not in self._answers:
                self._wait_change(deadline, request)

    def abort(self, request: int) -> None:
        """Asks the engine to end a request early; its result() is what it got so far."""
        self._send({"op": "abort", "id": request})

    def metrics(self) -> dict[str, float]:
        """The engine's Prometheus samples: name{labels} to value, without buckets."""
        request = self._begin({"op": "metrics"})
        values = self._await(request, ANSWER_SECONDS)["values"]
        with self._changed:
            del self._submitted[request]
        return values

    def kill(self) -> None:
        """SIGKILL to the child and all that it started, and waits for their end."""
        end_group(self._process.pid)
        self._wait_ended()

    def quit(self) -> None:
        """Asks the engine to shut down in its own way, which takes it seconds."""
        try:
            self._send({"op": "quit"})
            self._process.wait(QUIT_SECONDS)
        except (EngineDied, subprocess.TimeoutExpired):
            return
        self._wait_ended()

    def close(self, *, keep_log: bool = False) -> None:
        """Ends the child at once and removes its folder. May be called again."""
        self.kill()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        if not keep_log:
            shutil.rmtree(self._work, ignore_errors=True)

    def _wait_ended(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended)

    def _begin(self, message: dict[str, Any]) -> int:
        with self._changed:
            request = self._next_id
            self._next_id += 1
            self._submitted[request] = time.monotonic()
        self._send(message | {"id": request})
        return request

    def _send(self, message: dict[str, Any]) -> None:
        stream = self._process.stdin
        assert stream is not None
        try:
            with self._write_lock:
                stream.write(json.dumps(message) + "\n")
                stream.flush()
        except (OSError, ValueError) as error:
            raise self._dead() from error

    def _await(self, request: int, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        with self._changed:
            while request not in self._answers:
                self._wait_change(deadline, request)
            answer = self._answers.pop(request)
        if answer["event"] == "error":
            raise self._error(answer["message"])
        return answer

    def _wait_change(self, deadline: float, request: int) -> None:
        if self._ended:
            raise self._dead()
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._error(f"request {request} has no answer in time")
        self._changed.wait(left)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            with self._changed:
                self._take(message)
                self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        event = message["event"]
        if event == "ready":
            self._ready = True
            self.start_seconds = time.monotonic() - self._begun
        elif event == "first":
            self._first[message["id"]] = message["t"]
        elif event == "error" and message["id"] is None:
            self._failure = message["message"]
        else:
            self._answers[message["id"]] = message

    def _watch(self) -> None:
        self._process.wait()
        # Workers of a child that died by itself would hold its pipe open.
        end_group(self._process.pid)
        self._reader.join()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _error(self, what: str) -> EngineError:
        return EngineError(f"engine {self.name}: {what} (log: {self.log})")

    def _dead(self) -> EngineDied:
        self._process.wait()
        what = f"ended with status {self._process.returncode}"
        if self._failure:
            what += f": {self._failure}"
        try:
            tail = "\n".join(self.log_text().splitlines()[-LOG_TAIL_LINES:])
        except OSError:
            tail = "(no log)"
        return EngineDied(f"engine {self.name}: {what}\nlog {self.log} ends:\n{tail}")
