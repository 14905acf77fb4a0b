# SPDX-License-Identifier: Apache-2.0
"""The experiment's points: read, ordered, and cut to the time; and its work file."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from experiments.plan import (
    ARMS,
    DEFAULT_POINTS,
    FEWEST_REQUESTS,
    MOST_REQUESTS,
    SIDE_WEIGHT,
    Point,
    order,
    parse_points,
    requests_for,
)
from experiments.work import Answers, Work, WorkError, compare, differing


def test_should_read_points_and_drop_what_is_said_twice() -> None:
    assert parse_points("30@0.9, 60@closed,30@0.9") == [Point(30, 0.9), Point(60, None)]


@pytest.mark.parametrize(
    "text",
    ["", "30", "@0.9", "x@0.9", "30@", "30@fast", "30@0", "30@9", "99@0.9", "30@nan", "-1@1"],
)
def test_should_refuse_what_is_no_point(text: str) -> None:
    with pytest.raises(ValueError, match=r"point|load"):
        parse_points(text)


def test_should_write_a_point_as_it_was_read() -> None:
    names = [point.name for point in parse_points(DEFAULT_POINTS)]
    assert ",".join(names) == DEFAULT_POINTS


def test_should_measure_capacity_first_with_arm_none_first() -> None:
    point, arms = order(parse_points("60@0.9,30@0.9"))[0]
    assert point == Point(30, None)
    assert arms == ARMS


def test_should_let_each_arm_begin_in_turn() -> None:
    rows = order(parse_points("30@0.5,30@0.7,30@0.85,30@0.9"))[1:]
    assert [arms[0] for _, arms in rows] == ["none", "engine", "kvpool", "none"]
    assert all(sorted(arms) == sorted(ARMS) for _, arms in rows)


def test_should_run_kvpool_alone_beyond_the_capacity_of_arm_none() -> None:
    assert Point(30, 1.1).arms == ("kvpool",)
    assert "none" in Point(30, 0.95).arms
    assert "none" in Point(30, None).arms


def test_should_give_the_points_that_matter_most_more_requests() -> None:
    main, capacity, ordinary, side = parse_points("30@0.9,30@closed,30@0.7,60@0.9")
    assert main.weight > ordinary.weight > side.weight
    assert capacity.weight > ordinary.weight


def test_should_choose_as_many_requests_as_fit_into_the_time() -> None:
    points = parse_points("30@0.5,60@closed")
    count = requests_for(points, ARMS, capacity=2.0, closed=20, seconds=273.0)
    # Closed: 3 arms of 20 / 2 s; pauses: 6 of 3 s; open: 3 arms of 0.75 n / (0.5 * 2) s.
    assert count == (273 - 30 - 18) / (3 * SIDE_WEIGHT)


def test_should_keep_the_number_of_requests_within_bounds() -> None:
    points = parse_points("30@0.5")
    assert requests_for(points, ARMS, 2.0, 20, 1.0) == FEWEST_REQUESTS
    assert requests_for(points, ARMS, 2.0, 20, 1e6) == MOST_REQUESTS
    assert requests_for([], ARMS, 2.0, 20, 100.0) == FEWEST_REQUESTS


def test_should_give_more_requests_where_arms_are_left_out() -> None:
    points = parse_points("30@0.7")
    two, three = (requests_for(points, arms, 2.0, 20, 180.0) for arms in (ARMS[:2], ARMS))
    assert two > three


def test_should_resume_what_was_finished(tmp_path: Path) -> None:
    work = Work(tmp_path / "work.json", {"seed": 1})
    work.add("30@0.9", "none", {"arm": "none"}, [[1, 2], [3]])
    work.add("30@0.9", "kvpool", {"arm": "kvpool"}, [[1, 2], [4]])
    again = Work.resume(tmp_path / "work.json", {"seed": 1})
    assert again.has("30@0.9", "none")
    assert not again.has("30@0.9", "engine")
    assert [row["answers_differ"] for row in again.finished_rows()] == [0, 1]


def test_should_not_compare_answers_that_have_no_base(tmp_path: Path) -> None:
    work = Work(tmp_path / "work.json", {})
    work.add("30@1.1", "kvpool", {"arm": "kvpool"}, [[1]])
    assert work.finished_rows()[0]["answers_differ"] is None


def test_should_refuse_to_resume_a_run_with_other_settings(tmp_path: Path) -> None:
    Work(tmp_path / "work.json", {"seed": 1}).write()
    with pytest.raises(WorkError, match="seed"):
        Work.resume(tmp_path / "work.json", {"seed": 2})


@pytest.mark.parametrize("text", ["", "{", '{"format": 0}'])
def test_should_refuse_to_resume_from_what_is_no_work_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "work.json"
    if text:
        path.write_text(text)
    with pytest.raises(WorkError, match=r"work\.json"):
        Work.resume(path, {})


def test_should_count_answers_that_differ_and_refuse_unequal_numbers() -> None:
    assert differing([[1], [2], [3]], [[1], [5], [3]]) == 1
    with pytest.raises(ValueError, match="argument"):
        differing([[1]], [])


def test_should_hold_found_answers_against_those_that_were_found_too() -> None:
    none = Answers([[1], [2]], [[1], [2]], 0)
    engine = Answers([[1], [2]], [[1], [7]], 64)
    kvpool = Answers([[1], [2]], [[1], [7]], 64)
    found = compare({"none": none, "engine": engine, "kvpool": kvpool})
    assert found["none"]["differ_from_none"] == 0
    assert found["kvpool"]["differ_from_none"] == 1
    assert found["kvpool"]["differ_computed"] == 0
    assert found["kvpool"]["differ_found"] == 0


def test_should_count_found_answers_that_are_not_as_the_own_cache_gives_them() -> None:
    same = Answers([[1]], [[1]], 0)
    wrong = Answers([[1]], [[9]], 64)
    assert compare({"none": same, "engine": same, "kvpool": wrong})["kvpool"]["differ_found"] == 1
