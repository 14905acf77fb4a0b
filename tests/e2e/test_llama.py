# SPDX-License-Identifier: Apache-2.0
"""Processes of llama.cpp with Gemma 3 270M share prompts through a kvpoold of their own.

Each case has its control, the same program without kvpool, and compares every bit of every logit.
Owned by pytest; one process, which starts the daemon and the engines.

Environment: KVPOOL_BUILD is a build folder with the meson option llama, KVPOOL_LLAMA another
kvpool-llama, KVPOOL_ENGINES the folder that tools/engines-llama filled.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BLOCK = 128
PATIENCE = 600.0  # seconds that anything may take before a test fails
COMMON = ("--predict", "2", "--threads", "1", "--json", "--logits-digest")
VOCABULARY = (
    "the pool keeps blocks of memory that several engines read and write while one daemon lends "
    "them out and takes them back when an engine is gone so that no prompt is computed twice on "
    "this host where many applications begin with equal instructions and long documents"
)


def text(seed: int, words: int) -> str:
    """English-looking text that is always the same for a seed."""
    source = random.Random(seed)
    return " ".join(source.choices(VOCABULARY.split(), k=words))


def until(condition: Callable[[], bool], what: str) -> None:
    """Asks again and again, and fails the test where the answer never is yes."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.02)


def _engines() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("KVPOOL_ENGINES") or cache / "kvpool" / "engines")


class Daemon:
    """A kvpoold of `size` MiB on a socket in `folder`."""

    def __init__(self, build: Path, folder: Path, size: int = 256) -> None:
        self.socket = folder / "kvpool.sock"
        self._build, self._size = build, size
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Starts it, and returns when it serves."""
        self._process = subprocess.Popen(
            [self._build / "daemon/kvpoold", "--socket", self.socket, "--size", f"{self._size}M"],
            stderr=subprocess.DEVNULL,
        )
        until(lambda: self.status()["pool"]["ready_bytes"] == self._size << 20, "the pool is whole")

    def status(self) -> dict[str, Any]:
        """What it says about itself; zeros where it does not answer."""
        answer = subprocess.run(
            [self._build / "tools" / "kvpoolctl", "--json", "status"],
            env=os.environ | {"KVPOOL_SOCKET": str(self.socket)},
            capture_output=True,
            check=False,
        )
        if not answer.stdout:
            return {"pool": {"ready_bytes": 0}}
        return json.loads(answer.stdout)

    def kill(self) -> None:
        """Ends it without any warning."""
        assert self._process
        self._process.kill()
        self._process.wait()


class Llama:
    """kvpool-llama with one model and one daemon's socket."""

    def __init__(self, program: Path, model: Path, socket: Path, folder: Path) -> None:
        self.program, self.model, self._socket, self._folder = program, model, socket, folder

    def start(self, prompt: str, *flags: str, model: Path | None = None) -> subprocess.Popen[bytes]:
        """A process that computes the prompt and two tokens after it."""
        file = self._folder / "prompt.txt"
        file.write_text(prompt)
        return subprocess.Popen(
            [self.program, "--model", model or self.model, "--file", file, *COMMON, *flags],
            env=os.environ | {"KVPOOL_SOCKET": str(self._socket)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @staticmethod
    def finish(process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What a process that start() gave came to."""
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err.decode()
        return json.loads(out)

    def run(self, prompt: str, *flags: str, model: Path | None = None) -> dict[str, Any]:
        """Starts and finishes; what came from the pool has changed no bit if this returns."""
        return self.finish(self.start(prompt, *flags, model=model))

    def control(self, prompt: str, *flags: str) -> dict[str, Any]:
        """The same without kvpool."""
        result = self.run(prompt, "--no-kvpool", *flags)
        assert result["restored_tokens"] == 0
        assert result["private"] == "no pool was given"
        return result


@pytest.fixture(scope="module")
def program() -> Path:
    build = os.environ.get("KVPOOL_BUILD")
    if not build:
        pytest.skip("KVPOOL_BUILD names no build folder")
    path = Path(os.environ.get("KVPOOL_LLAMA") or Path(build) / "client/llama/kvpool-llama")
    if not path.exists():
        pytest.skip(f"{path} is not there: set up the build with -Dllama=FOLDER")
    return path


@pytest.fixture(scope="module")
def model() -> Path:
    path = _engines() / "models" / "gemma3-270m-gguf" / "gemma-3-270m-q4_k_m.gguf"
    if not path.exists():
        pytest.skip(f"{path} is not there: run tools/engines-llama")
    return path


@pytest.fixture
def daemon(program: Path, tmp_path: Path) -> Iterator[Daemon]:
    assert program
    started = Daemon(Path(os.environ["KVPOOL_BUILD"]), tmp_path)
    yield started
    started.kill()


@pytest.fixture
def llama(program: Path, model: Path, daemon: Daemon, tmp_path: Path) -> Llama:
    return Llama(program, model, daemon.socket, tmp_path)


@pytest.fixture(scope="module")
def prompt() -> str:
    """Longer than the model's window."""
    return text(1, 620)


@pytest.fixture(scope="module")
def long_prompt() -> str:
    """About 1,400 tokens."""
    return text(1, 1350)


def usable(result: dict[str, Any]) -> int:
    """Tokens of a prompt that can come from the pool: the last one is always computed."""
    return (result["prompt_tokens"] - 1) // BLOCK * BLOCK


def assert_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    """The two computed the same, bit by bit."""
    assert a["logits_sha256"] == b["logits_sha256"]
    assert a["text"] == b["text"]
    assert a["prompt_tokens"] == b["prompt_tokens"]


def test_should_compute_a_prompt_in_one_process_and_restore_it_in_another(
    llama: Llama, long_prompt: str
) -> None:
    control = llama.control(long_prompt)
    first = llama.run(long_prompt)
    second = llama.run(long_prompt)
    assert 1300 <= first["prompt_tokens"] <= 1500
    assert first["restored_tokens"] == 0
    assert first["published_blocks"] == first["prompt_tokens"] // BLOCK
    assert second["restored_tokens"] == usable(second)
    assert second["published_blocks"] == 0
    assert_same(first, control)
    assert_same(second, control)


def test_should_restore_the_half_that_two_prompts_share(llama: Llama, long_prompt: str) -> None:
    other = long_prompt[: len(long_prompt) // 2] + " " + text(2, 650)
    llama.run(long_prompt)
    result = llama.run(other)
    assert 4 * BLOCK <= result["restored_tokens"] <= result["prompt_tokens"] // 2
    assert result["restored_tokens"] % BLOCK == 0
    assert result["published_blocks"] > 0
    assert_same(result, llama.control(other))
    again = llama.run(other)
    assert again["restored_tokens"] == usable(again)
    assert_same(result, again)


def test_should_compute_a_prompt_that_is_shorter_than_a_block(llama: Llama) -> None:
    short = text(3, 60)
    control = llama.control(short)
    for _ in range(2):
        result = llama.run(short)
        assert result["prompt_tokens"] < BLOCK
        assert (result["restored_tokens"], result["published_blocks"]) == (0, 0)
        assert_same(result, control)


def test_should_go_on_when_the_daemon_is_gone_and_share_again_when_it_is_back(
    llama: Llama, daemon: Daemon, prompt: str
) -> None:
    first = llama.run(prompt)
    daemon.kill()
    alone = llama.run(prompt)
    assert alone["restored_tokens"] == 0
    assert alone["pool_error"]
    daemon.start()
    refilled = llama.run(prompt)
    restored = llama.run(prompt)
    assert restored["restored_tokens"] == usable(restored)
    for result in (alone, refilled, restored):
        assert_same(result, first)


def test_should_go_on_when_the_daemon_is_killed_in_the_middle_of_a_prompt(
    llama: Llama, daemon: Daemon, long_prompt: str
) -> None:
    control = llama.control(long_prompt)
    process = llama.start(long_prompt)
    until(lambda: daemon.status()["accounting"]["blocks"]["reserved"] > 0, "it computes")
    daemon.kill()
    assert_same(llama.finish(process), control)


def test_should_compute_once_what_two_processes_want_in_the_same_instant(
    llama: Llama, long_prompt: str
) -> None:
    results = [Llama.finish(p) for p in [llama.start(long_prompt), llama.start(long_prompt)]]
    results.sort(key=lambda result: result["restored_tokens"])
    assert results[0]["restored_tokens"] == 0
    assert results[1]["restored_tokens"] == usable(results[1]), results
    assert_same(*results)
    assert_same(results[0], llama.control(long_prompt))


def test_should_compute_what_a_process_did_not_finish_that_was_killed(
    llama: Llama, daemon: Daemon, long_prompt: str
) -> None:
    control = llama.control(long_prompt)
    killed = llama.start(long_prompt)
    until(lambda: daemon.status()["accounting"]["blocks"]["reserved"] > 0, "it computes")
    waiting = llama.start(long_prompt)
    until(lambda: daemon.status()["service"]["requests"]["wait"] > 0, "the other waits")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    result = Llama.finish(waiting)
    assert result["restored_tokens"] < usable(result)
    assert_same(result, control)
    again = llama.run(long_prompt)
    assert again["restored_tokens"] == usable(again)
    assert_same(again, control)


@pytest.mark.parametrize(
    "changed",
    [("--kv-type", "q8_0"), ("--threads", "2"), ("--block", "64"), ("--salt", "b")],
    ids=lambda changed: changed[0],
)
def test_should_not_share_across_what_changes_the_bytes(
    llama: Llama, prompt: str, changed: tuple[str, str]
) -> None:
    llama.run(prompt, "--salt", "a")
    other = llama.run(prompt, "--salt", "a", *changed)
    assert other["restored_tokens"] == 0
    assert other["published_blocks"] > 0
    same = llama.run(prompt, "--salt", "a", *changed)
    assert same["restored_tokens"] > 0
    assert_same(other, same)
    assert_same(other, llama.control(prompt, *changed))


def test_should_share_a_model_that_lies_in_two_folders(
    llama: Llama, prompt: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.gguf"
    shutil.copyfile(llama.model, copy)
    first = llama.run(prompt)
    second = llama.run(prompt, model=copy)
    assert second["restored_tokens"] == usable(second)
    assert_same(first, second)


def test_should_not_share_with_a_model_of_the_same_shapes_and_other_bytes(
    llama: Llama, prompt: str, tmp_path: Path
) -> None:
    tuned = tmp_path / llama.model.name
    shutil.copyfile(llama.model, tuned)
    with tuned.open("r+b") as file:
        file.seek(-4096, os.SEEK_END)
        end = file.read()
        file.seek(-4096, os.SEEK_END)
        file.write(bytes(byte ^ 1 for byte in end))
    llama.run(prompt)
    other = llama.run(prompt, model=tuned)
    assert other["restored_tokens"] == 0
    again = llama.run(prompt, model=tuned)
    assert again["restored_tokens"] == usable(again)
    assert_same(other, again)


def test_should_say_how_large_blocks_are_that_the_pool_has_no_place_for(
    program: Path, model: Path, prompt: str, tmp_path: Path
) -> None:
    small = Daemon(Path(os.environ["KVPOOL_BUILD"]), tmp_path, size=64)
    try:
        llama = Llama(program, model, small.socket, tmp_path)
        result = llama.run(prompt, "--block", "512")
        assert (result["restored_tokens"], result["published_blocks"]) == (0, 0)
        assert "a block of 512 tokens takes 9437184 bytes" in result["pool_error"]
        assert_same(result, llama.control(prompt, "--block", "512"))
    finally:
        small.kill()


def _no_file(path: Path, _model: Path) -> None:
    path.unlink(missing_ok=True)


def _empty(path: Path, _model: Path) -> None:
    path.touch()


def _folder(path: Path, _model: Path) -> None:
    path.mkdir()


def _no_model(path: Path, _model: Path) -> None:
    path.write_text("This is not a model.\n" * 100)


def _cut_short(path: Path, model: Path) -> None:
    with model.open("rb") as whole:
        path.write_bytes(whole.read(1 << 20))


def _without_its_end(path: Path, model: Path) -> None:
    shutil.copyfile(model, path)
    os.truncate(path, model.stat().st_size - (1 << 20))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_no_file, "No such file or directory"),
        (_empty, "it is empty"),
        (_folder, "Is a directory"),
        (_no_model, "is no model that llama.cpp can load"),
        (_cut_short, "is no model that llama.cpp can load"),
        (_without_its_end, "is no model that llama.cpp can load"),
    ],
)
def test_should_say_what_is_wrong_with_a_model(
    program: Path, model: Path, tmp_path: Path, make: Callable[[Path, Path], None], reason: str
) -> None:
    path = tmp_path / "model.gguf"
    make(path, model)
    result = subprocess.run(
        [program, "--model", path, "--prompt", "Hello", "--no-kvpool"],
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert result.returncode == 2
    assert result.stdout == b""
    assert str(path) in result.stderr.decode()
    assert reason in result.stderr.decode()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--prompt", "Hello", "--kv-type", "q9"], "unknown KV type q9"),
        (["--prompt", "one two three four", "--context", "2"], "the context takes 2"),
        (["--file", "/nonexistent/prompt"], "cannot open the prompt"),
        (["--prompt", "Hello", "--predict", "many"], "many is no number"),
        (["--prompt", "Hello", "--file", "/dev/null"], "either --prompt or --file"),
        (["--prompt", "Hello", "--swift"], "--swift is no option"),
    ],
)
def test_should_say_what_is_wrong_with_the_command_line(
    program: Path, model: Path, flags: list[str], reason: str
) -> None:
    result = subprocess.run(
        [program, "--model", model, *flags],
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert result.returncode == 2
    assert reason in result.stderr.decode()
