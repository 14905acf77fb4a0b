# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the proofs on real engines. tests/e2e/run sets up what they need.

Tests run one after the other in one process; each module gets the engines that it names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from fleet import Fleet, Fleets  # noqa: E402 - needs the path above
from models import SMOLLM2  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First the tests that share a fleet, one after the other: starting engines is what takes
    time. Then those with engines of their own."""
    items.sort(key=lambda item: "fleets" not in getattr(item, "fixturenames", ()))
    items.sort(key=lambda item: "no_fleet" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def fleets() -> Iterator[Fleets]:
    """Who keeps the engines that modules share."""
    fleets = Fleets()
    yield fleets
    fleets.close()


@pytest.fixture(scope="module")
def no_fleet(fleets: Fleets) -> None:
    """For modules that start engines of their own: the shared ones make room."""
    fleets.close()


@pytest.fixture
def smollm2(fleets: Fleets) -> Fleet:
    """Two engines and a control of SmolLM2, all alive."""
    return fleets.get(SMOLLM2)
