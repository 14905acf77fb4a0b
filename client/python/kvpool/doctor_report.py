# SPDX-License-Identifier: Apache-2.0
"""What the doctor finds: facts, and findings about them.

A Report is filled by one thread and then only read. Facts are JSON values, so that --json prints
them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = 1

STOPS = "stops"
NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing to know: `level` STOPS where it keeps engines from sharing, NOTE where it may.

    `topic` names it for programs, `what` says it in a sentence, `do` says what to do, "" where
    there is nothing to do.
    """

    level: str
    topic: str
    what: str
    do: str = ""


@dataclass
class Report:
    """Facts by section, and the findings in the order in which they were made."""

    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def stops(self, topic: str, what: str, do: str = "") -> None:
        """Adds a finding that keeps engines from sharing."""
        self.findings.append(Finding(STOPS, topic, what, do))

    def note(self, topic: str, what: str, do: str = "") -> None:
        """Adds a finding that may matter."""
        self.findings.append(Finding(NOTE, topic, what, do))

    @property
    def sharing(self) -> bool:
        """Whether nothing was found that keeps engines from sharing."""
        return all(finding.level != STOPS for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """What --json prints. A field whose meaning changes raises schema_version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "sharing": self.sharing,
            **self.facts,
            "findings": [vars(finding) for finding in self.findings],
        }
