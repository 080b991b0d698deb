"""The arithmetic of the benchmarks."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest
from bench import report
from bench.__main__ import arguments, cases
from bench.figures import Figure, Throughput, growth, percentiles, spread, throughput
from bench.runs import AT_LEAST_ONCE, EXACTLY_ONCE, SPARK_SINK
from bench.throughput import Case, figures


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
    document = json.loads(report.as_json(figures("copy", {SPARK_SINK: [run], EXACTLY_ONCE: [run]}, {}), {}))
    assert [f["reached"] for f in document["figures"]] == [None, None, True]


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
    assert leak.relative > 0.3
    assert abs(noise.slope) < 0.01
    assert abs(noise.relative) < 0.01


def test_spread_is_relative_to_the_median() -> None:
    assert spread([90.0, 100.0, 110.0]) == "90 to 110 (20%)"


def test_a_target_is_a_minimum_or_a_maximum() -> None:
    assert Figure("ratio", 1.0, "", 1.0).meets_target is True
    assert Figure("ratio", 0.99, "", 1.0).meets_target is False
    assert Figure("p99", 1201, "ms", 1200, at_least=False).meets_target is False
    assert Figure("rate", 5, "records/s").meets_target is None


def test_ratios_compare_the_medians_with_that_of_sparks_own_sink() -> None:
    def runs(*rates: float) -> list[Throughput]:
        return [Throughput(rate, 1000.0, {"jvm": 20.0}) for rate in rates]

    by_name = {
        f.name: f
        for f in figures(
            "case", {SPARK_SINK: runs(100, 300), EXACTLY_ONCE: runs(250, 270), AT_LEAST_ONCE: runs(150, 170)}, {}
        )
    }
    assert by_name[f"case: {EXACTLY_ONCE} ÷ {SPARK_SINK}"].value == 1.3
    assert by_name[f"case: {EXACTLY_ONCE} ÷ {SPARK_SINK}"].meets_target is True
    assert by_name[f"case: {AT_LEAST_ONCE} ÷ {SPARK_SINK}"].value == 0.8
    assert by_name[f"case: {AT_LEAST_ONCE} ÷ {SPARK_SINK}"].meets_target is False


def test_the_cases_have_small_and_large_records_and_enough_batches() -> None:
    assert {(c.size, c.partitions) for c in cases(False, None, 100_000)} == {(100, 4), (1000, 4), (100, 32), (1000, 32)}
    assert [c for c in cases(False, None, 100_000) if c.batch == 500_000] == [Case(100, 32, 5, 500_000)]
    assert {c.batch for c in cases(False, 600_000, 100_000)} == {100_000}
    assert {c.size for c in cases(True, None, 100_000)} == {100, 1000}
    with pytest.raises(ValueError, match="too few"):
        cases(True, 300_000, 100_000)


def test_the_json_report_contains_whether_each_target_was_reached() -> None:
    reported = [
        Figure("a", 1.2, "", 1.0),
        Figure("b", 700, "ms", 600, at_least=False, note="why"),
        Figure("c", 3, "records/s"),
    ]
    document = json.loads(report.as_json(reported, {"slots": 2}))
    assert [(f["name"], f["reached"]) for f in document["figures"]] == [("a", True), ("b", False), ("c", None)]
    assert document["setting"] == {"slots": 2}


def test_arguments() -> None:
    options = arguments(["--quick", "--only", "latency", "--only", "memory", "-o", "json"])
    assert options.only == ["latency", "memory"]
    assert options.output == "json"
