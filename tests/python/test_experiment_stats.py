# SPDX-License-Identifier: Apache-2.0
"""The experiment's arrivals, percentiles and figures."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from experiments.arrivals import arrivals
from experiments.stats import Outcome, crossing, figures, percentile, steady_rate


def outcome(due: float, sent: float, first: float, done: float, cached: int) -> Outcome:
    return Outcome(due, sent, first, done, 100, cached, (1, 2), 0)


def test_arrivals_should_be_in_order_and_within_the_time_that_the_rate_gives() -> None:
    moments = arrivals(90, 3.0, 1)
    assert moments == sorted(moments)
    assert len(moments) == 90
    assert moments[0] >= 0
    assert moments[-1] <= 30


def test_arrivals_of_one_seed_should_be_the_same_on_another_scale() -> None:
    slow, fast = arrivals(50, 2.0, 5), arrivals(50, 4.0, 5)
    assert slow == pytest.approx([2 * moment for moment in fast])


def test_arrivals_should_be_irregular() -> None:
    moments = arrivals(400, 1.0, 1)
    gaps = [b - a for a, b in pairwise(moments)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert 0.8 < spread / mean < 1.2  # 1 for a Poisson process


@pytest.mark.parametrize(("requests", "rate"), [(0, 1.0), (5, 0.0), (5, -1.0)])
def test_arrivals_should_refuse_what_cannot_be(requests: int, rate: float) -> None:
    with pytest.raises(ValueError, match="cannot arrive"):
        arrivals(requests, rate, 1)


def test_percentile_should_lie_between_its_neighbours() -> None:
    assert percentile([4, 1, 3, 2], 0.5) == 2.5
    assert percentile([4, 1, 3, 2], 0) == 1
    assert percentile([4, 1, 3, 2], 1) == 4
    assert percentile(list(range(101)), 0.99) == pytest.approx(99)
    assert percentile([7], 0.9) == 7


@pytest.mark.parametrize(("values", "part"), [([], 0.5), ([1], 1.1), ([1], -0.1)])
def test_percentile_should_refuse_what_has_none(values: list[float], part: float) -> None:
    with pytest.raises(ValueError, match="no "):
        percentile(values, part)


def test_figures_should_count_latency_from_when_a_request_was_due() -> None:
    found = figures([outcome(1.0, 1.5, 2.0, 3.0, 40)])
    assert found["p50_s"] == 2.0
    assert found["ttft_p50_s"] == 1.0
    assert found["sent_late_max_s"] == 0.5


def test_figures_should_weigh_hits_by_tokens_and_count_throughput_over_the_whole_span() -> None:
    found = figures([outcome(0, 0, 1, 2, 0), outcome(1, 1, 2, 4, 50)])
    assert found["token_hit_rate"] == 0.25
    assert found["requests_per_second"] == 0.5
    assert found["prompt_tokens_per_second"] == 50


def test_steady_rate_should_leave_out_start_and_end() -> None:
    # Two in flight, each takes 2 s; the last two end alone, the first two start alone.
    ends = [2.0, 2.0, 4.0, 4.0, 6.0, 6.0, 9.0]
    row = [outcome(end - 2, end - 2, end, end, 0) for end in ends]
    # From 2.0 to the last start at 7.0: four requests.
    assert steady_rate(row, 2) == pytest.approx(4 / 5)


def test_steady_rate_should_count_tokens_not_requests() -> None:
    row = [Outcome(i, i, i + 1, i + 1, n, 0, (), 0) for i, n in enumerate((100, 100, 300, 100))]
    # One in flight. From 1 to 3: 100 and 300 of a mean of 150.
    assert steady_rate(row, 1) == pytest.approx(400 / 150 / 2)


def test_steady_rate_should_refuse_too_few_requests() -> None:
    with pytest.raises(ValueError, match="too few"):
        steady_rate([outcome(0, 0, 1, 1, 0)] * 2, 2)


def test_crossing_should_be_found_between_points() -> None:
    assert crossing([(0.5, 1.0), (0.7, 2.0), (0.9, 6.0)], 4.0) == pytest.approx(0.8)


def test_crossing_should_be_the_last_where_noise_makes_two() -> None:
    points = [(0.5, 1.0), (0.6, 3.0), (0.7, 1.5), (0.9, 3.5)]
    assert crossing(points, 2.5) == pytest.approx(0.8)


def test_crossing_should_be_none_outside_the_points() -> None:
    assert crossing([(0.5, 1.0), (0.9, 2.0)], 3.0) is None
    assert crossing([(0.5, 1.0), (0.9, 2.0)], 0.5) is None
    assert crossing([], 1.0) is None
