# SPDX-License-Identifier: Apache-2.0
"""What a newcomer sees first: one long prompt, two engines, and what the second need not compute.

The part of `tools/demo --engines` that runs when engines and daemon are there: `python -m
engine.demo --socket SOCKET --text FILE`. One process; it owns the engines that it starts. Exit
codes: 0 the second engine found the prompt and answered the same, 1 it did not, or failed.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from engine.process import Engine, EngineError, Result

MODEL = "smollm2-135m"
TEXT_CHARACTERS = 8000
ANSWER_TOKENS = 48
CONTEXT_TOKENS = 4096
COLUMNS = 78
# The first request of an engine pays for what is set up lazily; it must share nothing with the
# prompt that is timed.
WARM_UP = "Name three colours of the rainbow and three animals of the forest. " * 12
QUESTION = "In one sentence: what may I do with software under this license?"


@dataclass(frozen=True)
class Shown:
    """One line of the table: an engine and what it did with the prompt."""

    name: str
    result: Result

    @property
    def computed(self) -> int:
        """Prompt tokens that the engine computed itself."""
        return self.result.prompt_tokens - self.result.cached


def say(text: str) -> None:
    """Progress, for a person."""
    print(f"demo: {text}", file=sys.stderr, flush=True)


def prompt_of(text: str) -> str:
    """The long prompt, in the model's chat format."""
    return (
        f"<|im_start|>user\n{text[:TEXT_CHARACTERS]}\n\n{QUESTION}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def start(names: dict[str, str], kvpool: bool, socket: Path) -> list[Engine]:
    """Starts engines (name to CPU) at the same time and warms them up. Raises EngineError."""
    began = time.monotonic()
    engines: list[Engine] = []
    try:
        for name, cpu in names.items():
            engines.append(
                Engine(
                    MODEL,
                    name,
                    cpus=cpu,
                    kvpool=kvpool,
                    socket=socket,
                    wait=False,
                    max_model_len=CONTEXT_TOKENS,
                )
            )
        for engine in engines:
            engine.wait_ready()
            engine.generate(WARM_UP, 4)
    except BaseException:
        close(engines)
        raise
    say(f"{' and '.join(names)}: ready after {time.monotonic() - began:.0f} s")
    return engines


def close(engines: list[Engine]) -> None:
    """Ends engines."""
    for engine in engines:
        engine.close()


def ask(socket: Path, prompt: str) -> list[Shown]:
    """The prompt on an engine, then on a second one, then twice on one without kvpool."""
    say("starting two vLLM engines as anyone would: no flag names kvpool")
    engines = start({"first": "0", "second": "1"}, True, socket)
    try:
        shown = [
            Shown(f"{engine.name} engine", engine.generate(prompt, ANSWER_TOKENS))
            for engine in engines
        ]
    finally:
        close(engines)
    say("starting an engine with KVPOOL_DISABLE=1, to compare")
    engines = start({"control": "1"}, False, socket)
    try:
        for name in ("without kvpool", "the same, asked again"):
            shown.append(Shown(name, engines[0].generate(prompt, ANSWER_TOKENS)))
    finally:
        close(engines)
    return shown


def table(shown: list[Shown]) -> str:
    """The lines of the table."""
    lines = [f"{'':<24}{'time to first token':>20}{'computed of prompt tokens':>28}"]
    for row in shown:
        computed = f"{row.computed} of {row.result.prompt_tokens}"
        lines.append(f"{row.name:<24}{row.result.ttft * 1000:>17.0f} ms{computed:>28}")
    return "\n".join(lines)


def verdict(shown: list[Shown]) -> tuple[bool, str]:
    """Whether the demo shows what it should, and a sentence that says so.

    An engine that finds a prompt computes the little that is left in other shapes, which can turn a
    near tie; so the second engine is held against one that found the prompt in its own cache.
    """
    first, second, control, again = (row.result for row in shown)
    if second.cached == 0:
        return False, "The second engine found nothing: see python -m kvpool doctor."
    if first.tokens != control.tokens or second.tokens != again.tokens:
        answers = "\n".join(f"{row.name}: {row.result.text.strip()!r}" for row in shown)
        return False, f"The answers differ, which must not be:\n{answers}"
    same = "all answers are the same"
    if second.tokens != first.tokens:
        same = "its answer is the one that an engine gives with the prompt in its own cache"
    faster = control.ttft / second.ttft
    return True, (
        f"The second engine's first token came {faster:.1f} times sooner than without kvpool; "
        f"{same}."
    )


def main() -> int:
    """Runs the demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog="engine.demo", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="the daemon's socket")
    parser.add_argument("--text", type=Path, required=True, help="a long text to ask about")
    options = parser.parse_args()
    try:
        shown = ask(options.socket, prompt_of(options.text.read_text(encoding="utf-8")))
    except (EngineError, OSError) as error:
        say(str(error))
        return 1
    fine, sentence = verdict(shown)
    print(table(shown))
    print()
    answer = " ".join(shown[1].result.text.split())
    if fine:
        print(textwrap.fill(f"Answer: {answer}", COLUMNS))
        print()
    print(textwrap.fill(sentence, COLUMNS) if fine else sentence)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
