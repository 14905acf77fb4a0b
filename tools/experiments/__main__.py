# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/experiment: options, the run, results into files."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.process import EngineError, engines_dir

from experiments import machine, method, report
from experiments.arms import Arms, ArmsError, Setup, check
from experiments.mix import Shape
from experiments.plan import ARMS, DEFAULT_POINTS, QUICK_POINTS, parse_points
from experiments.run import Run, Settings, SharingError
from experiments.work import Work, WorkError

SOURCE = Path(__file__).resolve().parent.parent.parent
WORK_FOLDER = SOURCE / "build-experiment"
FULL_SECONDS = 1800.0
QUICK_SECONDS = 180.0
QUICK_ARMS = "none,kvpool"
USAGE = 2


def say(text: str) -> None:
    """Progress, for a person."""
    print(f"experiment: {text}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="tools/experiment",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures latency and throughput of two vLLM engines without prefix caching,\n"
        "with their own, and with kvpool, under the same requests. Writes experiment.json,\n"
        "experiment.md and two plots into docs/results. Takes 30 minutes on two idle CPUs.\n"
        "As `tools/experiment --cost`: what it costs an engine that finds nothing (10 minutes).",
        epilog="Needs what tools/engines installs. Exit codes: 0 measured, 1 failure, 2 usage.",
    )
    made.add_argument(
        "--quick",
        action="store_true",
        help=f"3 minutes: arms {QUICK_ARMS}, points {QUICK_POINTS}, few requests",
    )
    made.add_argument(
        "--points",
        metavar="LIST",
        help=f"MIX@LOAD or MIX@closed, with commas between (default: {DEFAULT_POINTS}); "
        "30@closed is always measured: loads are parts of what arm none carries there",
    )
    made.add_argument("--arms", metavar="LIST", help=f"of {', '.join(ARMS)} (default: all)")
    made.add_argument("--seed", type=int, default=1, help="another draw of prompts and arrivals")
    made.add_argument("--minutes", type=float, help="time for all of it (default: 30, or 3)")
    made.add_argument("--resume", action="store_true", help="go on where a run was cut short")
    made.add_argument("--output", type=Path, metavar="DIR", help="default: docs/results")
    made.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    return made


def arm_names(text: str) -> tuple[str, ...]:
    """The arms that are wanted, in their order. Raises ValueError."""
    wanted = [word.strip() for word in text.split(",")]
    for word in wanted:
        if word not in ARMS:
            raise ValueError(f"no arm is called {word!r}; there are {', '.join(ARMS)}")
    if "none" not in wanted:
        raise ValueError("arm none cannot be left out: loads are parts of what it carries")
    return tuple(arm for arm in ARMS if arm in wanted)


def settings_of(options: argparse.Namespace) -> Settings:
    """What the options ask for. Raises ValueError."""
    points = parse_points(options.points or (QUICK_POINTS if options.quick else DEFAULT_POINTS))
    seconds = QUICK_SECONDS if options.quick else FULL_SECONDS
    if options.minutes is not None:
        seconds = 60 * options.minutes
    if not 60 <= seconds <= 86400:
        raise ValueError(f"{seconds / 60:g} minutes: 1 to 1440 can be given")
    return Settings(
        points=tuple(points),
        seed=options.seed,
        seconds=seconds,
        output_tokens=8,
        in_flight=8 if options.quick else 12,
        closed_requests=22 if options.quick else 60,
        samples=2 if options.quick else 8,
    )


def asked_of(names: tuple[str, ...], settings: Settings, setup: Setup) -> dict[str, Any]:
    """What two runs must have in common for one to go on with the other: all but the time."""
    what = {"settings": asdict(settings), "setup": asdict(setup), "arms": names}
    del what["settings"]["seconds"]
    return json.loads(json.dumps(what))


def measure(
    options: argparse.Namespace, names: tuple[str, ...], settings: Settings, setup: Setup
) -> tuple[Work, list[str]]:
    """Runs; returns the work and the points that were left out. Raises what arms and run raise."""
    began = time.monotonic()
    asked = asked_of(names, settings, setup)
    WORK_FOLDER.mkdir(exist_ok=True)
    path = WORK_FOLDER / "work.json"
    work = Work.resume(path, asked) if options.resume else Work(path, asked)
    check(setup, names, os.sched_getaffinity(0), options.build / "daemon" / "kvpoold")
    work.write()
    for old in WORK_FOLDER.glob("engine-*.log"):
        old.unlink()
    with Arms(names, setup, options.build, WORK_FOLDER, say) as arms:
        left_out = Run(arms, settings, work, began, say).all()
    return work, left_out


def document_of(
    options: argparse.Namespace, work: Work, left_out: list[str], settings: Settings, setup: Setup
) -> dict[str, Any]:
    """The results document."""
    shape = Shape(block_tokens=setup.block_tokens)
    python = engines_dir() / "vllm" / "bin" / "python"
    rows = work.finished_rows()
    return {
        "what": "Two vLLM engines, one CPU each: latency and throughput with and without kvpool",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine.name(),
        "versions": machine.versions(SOURCE, options.build / "daemon" / "kvpoold", python),
        "parameters": {
            **setup.describe(),
            "prompts": asdict(shape),
            "output_tokens": settings.output_tokens,
            "in_flight": settings.in_flight,
            "seed": settings.seed,
            "requests_per_point": work.data["requests"],
            "capacity_per_second": work.data["capacity"],
            "seconds": round(work.data["seconds"]),
        },
        "method": method.lines(setup, shape, settings, work.data["requests"]),
        "goals": report.goals(rows),
        "samples": work.data["samples"],
        "left_out": left_out,
        "rows": rows,
    }


def write(document: dict[str, Any], folder: Path) -> None:
    """Writes the document, the page and the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent="\t", ensure_ascii=False)
    (folder / "experiment.json").write_text(text + "\n", encoding="utf-8")
    page = report.markdown(document)
    (folder / "experiment.md").write_text(page, encoding="utf-8")
    from experiments import plots  # needs matplotlib, and the figures are safe by now

    made = plots.draw(document, folder)
    say(f"wrote experiment.json, experiment.md, {', '.join(p.name for p in made)} in {folder}")
    print(page[page.index("- P50") : page.index("![")])


def end(*_: object) -> None:
    """SIGTERM and SIGHUP end the run as SIGINT does: engines and daemon are ended with it."""
    raise KeyboardInterrupt


def main() -> int:
    """Runs the experiment; returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    options = parser().parse_args()
    setup = Setup()
    try:
        names = arm_names(options.arms or (QUICK_ARMS if options.quick else ",".join(ARMS)))
        settings = settings_of(options)
    except ValueError as error:
        say(f"{error}; see tools/experiment --help")
        return USAGE
    try:
        work, left_out = measure(options, names, settings, setup)
    except (ArmsError, EngineError, SharingError, WorkError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; --resume goes on")
        return 130
    if left_out:
        say(f"no time was left for {', '.join(left_out)}")
    write(
        document_of(options, work, left_out, settings, setup),
        options.output or SOURCE / "docs/results",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
