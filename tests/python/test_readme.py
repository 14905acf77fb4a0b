# SPDX-License-Identifier: Apache-2.0
"""The example of the README runs as it stands there."""

import re
from pathlib import Path

import harness
import kvpool
import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def test_should_run_the_example_of_the_readme(
    daemon: harness.Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.setenv("KVPOOL_SOCKET", daemon.socket)

    first: dict[str, object] = {}
    exec(example, first)
    second: dict[str, object] = {}
    exec(example, second)

    assert not isinstance(first.get("found"), bytearray)
    assert second["found"] == bytes(65536)
    assert isinstance(second["match"], kvpool.Match)
