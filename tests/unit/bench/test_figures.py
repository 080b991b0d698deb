"""The arithmetic of the benchmarks."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest
from bench import report
from bench.figures import Figure, growth, median, percentiles, ratio, throughput
from bench.runs import EXACTLY_ONCE, SPARK_SINK
from bench.throughput import figures


def append_times(*ends_ms: int, batch: int) -> npt.NDArray[np.int64]:
    """The append times of batches whose records are all append_times in the millisecond at which the batch ends."""
    return np.repeat(np.array(ends_ms, dtype=np.int64), batch)


def test_the_rate_covers_complete_cycles_after_the_warm_up() -> None:
    # The slow first batch is the warm-up; after it one batch of ten records ends every second.
    run = throughput(append_times(50_000, 51_000, 52_000, 53_000, batch=10), batch=10, warm_up=1)
    assert run.rate == pytest.approx(10.0)
    assert run.cycle_ms == 1000


def test_measured_figures_can_be_written_as_json() -> None:
    run = throughput(append_times(1_000, 2_000, 3_000, batch=10), batch=10, warm_up=1)
    document = json.loads(
        report.as_json(figures("copy", EXACTLY_ONCE, {SPARK_SINK: [run], EXACTLY_ONCE: [run]}, []), {})
    )
    assert [f["reached"] for f in document["figures"]] == [None, None, False]
    assert document["figures"][-1]["spread"] == [1.0, 1.0]


def test_a_slow_warm_up_does_not_change_the_rate_and_a_slow_batch_does() -> None:
    steady = throughput(append_times(9_000, 10_000, 11_000, batch=10), batch=10, warm_up=1)
    slow_start = throughput(append_times(9_900, 10_900, 11_900, batch=10), batch=10, warm_up=1)
    slow_batch = throughput(append_times(9_000, 10_000, 13_000, batch=10), batch=10, warm_up=1)
    assert slow_start.rate == steady.rate
    assert slow_batch.rate == pytest.approx(steady.rate / 2)


def test_too_few_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer than two batches"):
        throughput(append_times(1, 2, batch=10), batch=10, warm_up=1)


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles([float(n) for n in range(1, 101)]) == (50.0, 99.0)
    assert percentiles([7.0]) == (7.0, 7.0)
    assert percentiles([1.0, 1.0, 1.0, 900.0])[1] == 900.0
    with pytest.raises(ValueError, match="nothing"):
        percentiles([])


def test_growth_distinguishes_a_leak_from_noise() -> None:
    times = [float(n) for n in range(60)]
    leak = growth(times, [100 + n for n in times])
    noise = growth(times, [100 + n % 3 for n in times])
    assert leak.slope == pytest.approx(1.0)
    assert leak.relative == pytest.approx(59 / 129.5)
    assert abs(noise.slope) < 0.01
    assert abs(noise.relative) < 0.01


def test_repetitions_are_reported_by_their_median_and_spread() -> None:
    figure = median("rate", [90.0, 300.0, 100.0], "records/s", 95.0)
    assert (figure.value, figure.spread, figure.meets_target) == (100.0, (90.0, 300.0), True)
    with pytest.raises(ValueError, match="rate: nothing was measured"):
        median("rate", [], "records/s")


def test_a_ratio_is_that_of_measurements_taken_in_turn() -> None:
    # The machine halves its speed after the first pair. The medians of both would compare 100 with 150.
    figure = ratio("ratio", [200.0, 100.0, 100.0], [300.0, 150.0, 50.0], 1.0, at_least=False)
    assert figure.value == 0.667
    assert figure.spread == (0.667, 2.0)
    assert figure.meets_target is True
    with pytest.raises(ValueError, match="shorter"):
        ratio("ratio", [1.0, 2.0], [1.0])


def test_a_target_is_a_minimum_or_a_maximum() -> None:
    assert Figure("ratio", 1.0, "", 1.0).meets_target is True
    assert Figure("ratio", 0.99, "", 1.0).meets_target is False
    assert Figure("p99", 1201, "ms", 1200, at_least=False).meets_target is False
    assert Figure("rate", 5, "records/s").meets_target is None


def test_the_json_report_contains_whether_each_target_was_reached() -> None:
    reported = [
        Figure("a", 1.2, "", 1.0),
        Figure("b", 700, "ms", 600, at_least=False, note="why"),
        Figure("c", 3, "records/s"),
    ]
    document = json.loads(report.as_json(reported, {"slots": 2}, {"memory": "RuntimeError: no batch"}))
    assert [(f["name"], f["reached"]) for f in document["figures"]] == [("a", True), ("b", False), ("c", None)]
    assert document["setting"] == {"slots": 2}
    assert document["errors"] == {"memory": "RuntimeError: no batch"}
