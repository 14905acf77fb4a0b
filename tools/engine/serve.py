# SPDX-License-Identifier: Apache-2.0
"""An engine as a child process: requests as JSON lines in, results as JSON lines out.

Started by engine.process.Engine inside vLLM's virtual environment. The asyncio thread owns the
engine; one more thread reads stdin and hands lines over. What the engine itself prints goes to
stderr, so that stdout carries the protocol alone. End of input is the death of the parent: the
whole process group ends at once, whatever state the engine is in.

In:  {"op": "generate", "id": n, "prompt_token_ids": [..] | "prompt": "..", "max_tokens": n,
      "salt": s?, "lora": {"name", "path", "id"}?, "logprobs": k?, "ignore_eos": bool?}
     {"op": "abort", "id": n}   {"op": "metrics", "id": n}   {"op": "quit"}
Out: {"event": "ready", "seconds": s}
     {"event": "first", "id": n, "t": t}    t: seconds of CLOCK_MONOTONIC, the same in all processes
     {"event": "done", "id": n, "t": t, "tokens": [..], "text": "..", "cached": n, "finish": "..",
      "prompt_tokens": n, "logprobs": [{token: logprob}, ..] | null}
     {"event": "metrics", "id": n, "values": {..}}   {"event": "error", "id": n, "message": ".."}
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

# Labels that are the same for every sample of one engine.
COMMON_LABELS = ("model_name", "engine")


def take_stdout() -> TextIO:
    """Keeps stdout for the protocol: prints of this process and its children go to stderr."""
    protocol = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    return protocol


def end_group() -> None:
    """Ends this process and what it started, at once. Does not return."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def metric_values() -> dict[str, float]:
    """This process's Prometheus samples, without histogram buckets, by name and labels."""
    from prometheus_client import REGISTRY

    values: dict[str, float] = {}
    for metric in REGISTRY.collect():
        for sample in metric.samples:
            if sample.name.endswith(("_bucket", "_created")):
                continue
            labels = sorted(
                (key, text) for key, text in sample.labels.items() if key not in COMMON_LABELS
            )
            inside = ",".join(f'{key}="{text}"' for key, text in labels)
            name = f"{sample.name}{{{inside}}}" if inside else sample.name
            values[name] = values.get(name, 0.0) + sample.value
    return values


def engine_arguments(model: str, name: str, given: dict[str, Any]) -> Any:
    """Arguments of vLLM from the JSON object of the command line.

    Raises TypeError for an argument that this vLLM does not know.
    """
    from vllm.config import KVEventsConfig, KVTransferConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    arguments: dict[str, Any] = {"enforce_eager": True, "model": model, "served_model_name": name}
    arguments.update(given)
    for key, kind in (
        ("kv_transfer_config", KVTransferConfig),
        ("kv_events_config", KVEventsConfig),
    ):
        if isinstance(arguments.get(key), dict):
            arguments[key] = kind(**arguments[key])
    return AsyncEngineArgs(**arguments)


class Server:
    """The engine and the requests that run on it. Owned by the asyncio thread."""

    def __init__(self, engine: AsyncLLM, protocol: TextIO, detokenize: bool) -> None:
        self._engine = engine
        self._protocol = protocol
        self._detokenize = detokenize
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, message: dict[str, Any]) -> None:
        """Writes one message to the parent."""
        self._protocol.write(json.dumps(message) + "\n")
        self._protocol.flush()

    def start(self, request: dict[str, Any]) -> None:
        """Begins one operation; its events follow."""
        task = asyncio.ensure_future(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: dict[str, Any]) -> None:
        try:
            if request["op"] == "generate":
                await self._generate(request)
            elif request["op"] == "abort":
                await self._engine.abort(str(request["id"]))
            elif request["op"] == "metrics":
                values = metric_values()
                self.send({"event": "metrics", "id": request["id"], "values": values})
            else:
                raise ValueError(f"no operation is named {request['op']!r}")
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            if error.__cause__ is not None:
                message += f" ({type(error.__cause__).__name__}: {error.__cause__})"
            self.send({"event": "error", "id": request.get("id"), "message": message})
            if self._engine.errored:
                self.send({"event": "error", "id": None, "message": message})
                end_group()

    def _inputs(self, request: dict[str, Any]) -> tuple[Any, Any, Any]:
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind

        prompt: dict[str, Any] = {}
        for key in ("prompt_token_ids", "prompt"):
            if key in request:
                prompt[key] = request[key]
        if request.get("salt"):
            prompt["cache_salt"] = request["salt"]
        sampling = SamplingParams(
            temperature=0.0,
            max_tokens=request["max_tokens"],
            logprobs=request.get("logprobs"),
            ignore_eos=request.get("ignore_eos", False),
            detokenize=self._detokenize,
            output_kind=RequestOutputKind.DELTA,
        )
        lora = None
        if request.get("lora"):
            given = request["lora"]
            lora = LoRARequest(
                lora_name=given["name"], lora_int_id=given["id"], lora_path=given["path"]
            )
        return prompt, sampling, lora

    async def _generate(self, request: dict[str, Any]) -> None:
        prompt, sampling, lora = self._inputs(request)
        tokens: list[int] = []
        text: list[str] = []
        logprobs: list[dict[str, float]] = []
        outputs = self._engine.generate(prompt, sampling, str(request["id"]), lora_request=lora)
        async for output in outputs:
            last = output
            part = output.outputs[0]
            if part.token_ids and not tokens:
                self.send({"event": "first", "id": request["id"], "t": time.monotonic()})
            tokens.extend(part.token_ids)
            text.append(part.text or "")
            for position in part.logprobs or ():
                logprobs.append({str(token): entry.logprob for token, entry in position.items()})
        self.send(
            {
                "event": "done",
                "id": request["id"],
                "t": time.monotonic(),
                "tokens": tokens,
                "text": "".join(text),
                "cached": last.num_cached_tokens or 0,
                "prompt_tokens": len(last.prompt_token_ids or ()),
                "finish": last.outputs[0].finish_reason,
                "logprobs": logprobs if request.get("logprobs") is not None else None,
            }
        )


def read_requests(loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[str | None]) -> None:
    """Runs in a thread of its own: lines of stdin to the loop, until "quit" or the parent ends."""
    for line in sys.stdin:
        loop.call_soon_threadsafe(queue.put_nowait, line)
    end_group()


async def serve(arguments: argparse.Namespace, protocol: TextIO) -> None:
    """Starts the engine and answers requests until told to quit."""
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    reader = (asyncio.get_running_loop(), queue)
    threading.Thread(target=read_requests, args=reader, daemon=True).start()

    from vllm.v1.engine.async_llm import AsyncLLM

    started = time.monotonic()
    given = json.loads(arguments.engine)
    engine = AsyncLLM.from_engine_args(engine_arguments(arguments.model, arguments.name, given))
    server = Server(engine, protocol, not given.get("skip_tokenizer_init", False))
    server.send({"event": "ready", "seconds": time.monotonic() - started})
    while (line := await queue.get()) is not None:
        request = json.loads(line)
        if request["op"] == "quit":
            break
        server.start(request)
    engine.shutdown()


def main() -> int:
    """Runs one engine; failures to start are the last "error" event and the exit status."""
    parser = argparse.ArgumentParser(prog="engine.serve", description=__doc__)
    parser.add_argument("--model", required=True, help="folder of the model")
    parser.add_argument("--name", required=True, help="name of the engine")
    parser.add_argument("--cpus", default="", help="CPUs for all its processes; empty: any")
    parser.add_argument("engine", nargs="?", default="{}", help="vLLM's arguments as JSON")
    arguments = parser.parse_args()
    protocol = take_stdout()
    if arguments.cpus:
        os.sched_setaffinity(0, [int(cpu) for cpu in arguments.cpus.split(",")])
    try:
        asyncio.run(serve(arguments, protocol))
    except BaseException as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        protocol.write(json.dumps({"event": "error", "id": None, "message": message}) + "\n")
        protocol.flush()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
