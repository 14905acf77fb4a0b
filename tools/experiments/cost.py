# SPDX-License-Identifier: Apache-2.0
"""What the pool costs an engine that never finds anything in it.

Two engines with the same settings, one with kvpool and one without, get the same prompts in turns:
without, with, with, without, round after round, one request at a time. No engine sees a prompt
twice. Told are the time of a round with over the time of it without, and what the connector itself
counted (time with the daemon, time of copies) over the time of all requests with it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.process import Engine, EngineError, engines_dir, model_dir

from experiments import machine
from experiments.arms import ArmsError, Daemon, Setup, check
from experiments.mix import END_TOKEN, FIRST_TOKEN

SOURCE = Path(__file__).resolve().parent.parent.parent
ORDER = ("without", "with", "with", "without")
COUNTED = ("lookup_seconds", "store_seconds")


def prompts(seed: int, number: int, tokens: int) -> list[list[int]]:
    """Prompts that have no block in common."""
    draw = random.Random(f"cost {seed}")
    return [[draw.randrange(FIRST_TOKEN, END_TOKEN) for _ in range(tokens)] for _ in range(number)]


def seconds_of(engine: Engine, batch: list[list[int]], answer: int) -> float:
    """One request after the other. Raises EngineError where one was found in a cache."""
    begun = time.monotonic()
    for prompt in batch:
        result = engine.generate(prompt, answer, ignore_eos=True)
        if result.cached:
            raise EngineError(f"{result.cached} tokens were cached: this is no cost of a miss")
    return time.monotonic() - begun


def round_of(
    engines: dict[str, Engine], seed: int, options: argparse.Namespace
) -> dict[str, float]:
    """Seconds of one round, by engine. Each prompt goes to each engine once."""
    halves = [prompts(2 * seed + half, options.batch, options.tokens) for half in range(2)]
    sums, turns = {"without": 0.0, "with": 0.0}, {"without": 0, "with": 0}
    for name in ORDER:
        sums[name] += seconds_of(engines[name], halves[turns[name]], options.answer)
        turns[name] += 1
    return sums


def counted(engine: Engine) -> float:
    """Seconds that the connector says it took."""
    values = engine.metrics()
    return sum(values.get(f"vllm:kvpool_{name}_total", 0.0) for name in COUNTED)


def measure(options: argparse.Namespace, setup: Setup, folder: Path) -> dict[str, Any]:
    """Runs all rounds; returns the document."""
    arguments = setup.arguments("engine")
    daemon = Daemon(options.build, folder, setup.pool_mib)
    engines: dict[str, Engine] = {}
    try:
        for name in ("without", "with"):
            engines[name] = Engine(
                setup.model,
                name,
                cpus="0",
                kvpool=name == "with",
                socket=daemon.socket,
                log=folder / f"{name}.log",
                wait=False,
                **arguments,
            )
        for engine in engines.values():
            engine.wait_ready()
        round_of(engines, 0, options)  # warm
        before = counted(engines["with"])
        rounds = [round_of(engines, 1 + i, options) for i in range(options.rounds)]
        own = counted(engines["with"]) - before
    finally:
        for engine in engines.values():
            engine.close()
        daemon.close()
    ratios = sorted(each["with"] / each["without"] for each in rounds)
    quartiles = statistics.quantiles(ratios, n=4)
    return {
        "what": "Time of requests that find nothing, with kvpool over without, in turns in one run",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine.name(),
        "versions": machine.versions(
            SOURCE, options.build / "daemon" / "kvpoold", engines_dir() / "vllm/bin/python"
        ),
        "parameters": {
            "model": model_dir(setup.model).name,
            "prompt_tokens": options.tokens,
            "output_tokens": options.answer,
            "requests_a_round": 2 * options.batch,
            "rounds": options.rounds,
            "order": list(ORDER),
            **arguments,
        },
        "ratio_median": round(statistics.median(ratios), 4),
        "ratio_quartiles": [round(quartiles[0], 4), round(quartiles[2], 4)],
        "ratio_of_sums": round(
            sum(each["with"] for each in rounds) / sum(each["without"] for each in rounds), 4
        ),
        "counted_by_the_connector": round(own / sum(each["with"] for each in rounds), 5),
        "goal": 1.01,
        "rounds": [{name: round(each[name], 4) for name in each} for each in rounds],
    }


def main() -> int:
    """Measures and writes cost.json; returns the exit status."""
    parser = argparse.ArgumentParser(prog="tools/experiment --cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4, help="requests of a half round")
    parser.add_argument("--tokens", type=int, default=1024, help="of a prompt")
    parser.add_argument("--answer", type=int, default=16, help="tokens of an answer")
    parser.add_argument("--output", type=Path, default=SOURCE / "docs/results")
    parser.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.rounds - 1, options.batch, options.tokens, options.answer) < 1:
        print("cost: at least 2 rounds, 1 request, 1 token", file=sys.stderr)
        return 2
    setup = Setup()
    try:
        check(setup, ("engine", "kvpool"), {0, 1}, options.build / "daemon" / "kvpoold")
        with tempfile.TemporaryDirectory(prefix="kvpool-cost-") as folder:
            document = measure(options, setup, Path(folder))
    except (ArmsError, EngineError) as error:
        print(f"cost: {error}", file=sys.stderr)
        return 1
    options.output.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent="\t", ensure_ascii=False) + "\n"
    (options.output / "cost.json").write_text(text, encoding="utf-8")
    print(
        f"with over without: {document['ratio_median']} (quartiles {document['ratio_quartiles']}); "
        f"the connector itself counts {100 * document['counted_by_the_connector']:.2f} %"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
