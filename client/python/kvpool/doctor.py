# SPDX-License-Identifier: Apache-2.0
"""`python -m kvpool doctor`: what is there, what would stop engines from sharing, what to do.

Looks and changes nothing; only --try stores a block, and drops it. Needs neither the extension nor
a daemon: it says that they are missing. A process of its own, one thread.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from kvpool import doctor_daemon, doctor_engines, doctor_running, doctor_trial, identity
from kvpool.doctor_report import Report


def _examine_package(report: Report) -> bool:
    """Adds the section `kvpool`. Returns whether the library can be called."""
    facts: dict[str, Any] = {
        "version": package_version(),
        "library": None,
        "python": platform.python_version(),
        "path": sys.executable,
        "folder": os.path.dirname(os.path.abspath(__file__)),
    }
    report.facts["kvpool"] = facts
    try:
        from kvpool import version

        facts["library"] = f"libkvpool {version()}"
    except (ImportError, OSError) as error:
        report.stops(
            "package.extension",
            f"the library cannot be loaded: {error}",
            "install kvpool into this Python with pip, from its repository or a wheel",
        )
    return facts["library"] is not None


def package_version() -> str:
    """The version of the package, "unknown" where it was not installed."""
    try:
        from kvpool._version import VERSION
    except ImportError:
        return "unknown"
    return str(VERSION)


def _examine_attach(report: Report) -> None:
    """Whether the library attaches where the doctor itself did."""
    import kvpool

    try:
        kvpool.Pool(
            socket=report.facts["daemon"]["socket"], name="kvpool doctor", deadline=2, require=True
        ).close()
    except kvpool.Error as error:
        report.stops(
            "daemon.library",
            f"the daemon answers, but the library does not attach: {error.strerror}",
            "see the daemon's log",
        )


def _examine_model(report: Report, name: str) -> None:
    try:
        path = identity.locate(name)
        found = identity.model(path)
    except identity.Unidentified as error:
        report.facts["model"] = {"path": name, "reason": error.reason}
        report.stops(
            "model.unidentified",
            f"the model is not identified, so its KV stays private: {error.reason}",
            "give it whole, as safetensors or GGUF, in a folder that engines may read",
        )
        return
    report.facts["model"] = {"path": path, **vars(found)}


def examine(*, socket: str | None = None, model: str | None = None, trial: bool = False) -> Report:
    """Looks at everything. `socket`, `model` and `trial` as on the command line."""
    report = Report()
    callable_ = _examine_package(report)
    doctor_daemon.examine(report, socket)
    if report.facts["daemon"]["attached"] and callable_:
        if trial:
            doctor_trial.examine(report, report.facts["daemon"]["socket"])
        else:
            _examine_attach(report)
    doctor_engines.examine_engines(report)
    doctor_engines.examine_environment(report)
    doctor_running.examine(report)
    if model is not None:
        _examine_model(report, model)
    return report
