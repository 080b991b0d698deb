"""How many executors a pipeline needs: bounds, three measurements that agree, the cool-down, and loads over time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwright_stream.autoscaling import MEASUREMENTS, Measurement, Scaling
from ackwright_stream.jobspec import Autoscaling

LIMITS = Autoscaling(
    min_executors=1, max_executors=10, cores=2, drain_target_ms=100_000, window_ms=10_000, cool_down_ms=300_000
)
LANES = 64
# One busy processor delivers 1,000 offsets per second. Two were busy all the time, and could not deliver what arrived.
BUSY = Measurement(seconds=10, arrived=40_000, delivered=20_000, busy_seconds=20, lag=200_000)
IDLE = Measurement(seconds=10, arrived=0, delivered=0, busy_seconds=0, lag=0)

_limits = st.builds(
    lambda fewest, more, **rest: Autoscaling(min_executors=fewest, max_executors=fewest + more, **rest),
    st.integers(1, 5),
    st.integers(0, 20),
    cores=st.integers(1, 4),
    drain_target_ms=st.integers(1, 10**7),
    window_ms=st.integers(1, 10**5),
    cool_down_ms=st.integers(0, 10**6),
)
_measurements = st.builds(
    Measurement,
    seconds=st.floats(0.01, 1000),
    arrived=st.integers(0, 10**9),
    delivered=st.integers(0, 10**9),
    busy_seconds=st.floats(0, 10**4),
    lag=st.integers(0, 10**12),
)


def after(scaling: Scaling, *measurements: Measurement, lanes: int = LANES, seconds: float = 10) -> Scaling:
    """The scaling after the measurements, which follow one another."""
    now = scaling.changed_at
    for measurement in measurements:
        now += seconds
        scaling = scaling.after(measurement, lanes, now)
    return scaling


def test_the_need_is_what_arrives_and_the_lag_by_the_rate_of_a_busy_processor() -> None:
    # 4,000 arrive per second, and 2,000 of the lag are due: 6,000 / (0.8 * 1,000) is 7.5, so 8 processors.
    assert after(Scaling.start(LIMITS, 0), *[BUSY] * MEASUREMENTS).target == 4


@pytest.mark.parametrize("measurements", range(MEASUREMENTS))
def test_fewer_measurements_change_nothing(measurements: int) -> None:
    assert after(Scaling.start(LIMITS, 0), *[BUSY] * measurements).target == 1


def test_a_measurement_that_disagrees_prevents_a_change() -> None:
    assert after(Scaling.start(LIMITS, 0), BUSY, BUSY, IDLE, BUSY, BUSY).target == 1


def test_the_smallest_rise_of_three_measurements_counts() -> None:
    less = replace(BUSY, arrived=20_000)
    assert after(Scaling.start(LIMITS, 0), BUSY, less, BUSY).target == 3


def test_without_a_lag_executors_are_not_added() -> None:
    """Small batches that follow one another without a pause keep their processors busy with overhead alone."""
    small = Measurement(seconds=10, arrived=1000, delivered=1000, busy_seconds=20, lag=100)
    assert after(Scaling.start(LIMITS, 0), *[small] * 10).target == 1
    assert after(Scaling.start(LIMITS, 0), *[replace(small, lag=1001)] * 10).target == 2


def test_a_long_batch_that_takes_all_that_has_arrived_leaves_a_lag_and_counts() -> None:
    """Without a limit of a batch, each one takes longer than the last, and each takes all of the lag before it."""
    batch = Measurement(seconds=100, arrived=400_000, delivered=200_000, busy_seconds=200, lag=400_000)
    assert after(Scaling.start(LIMITS, 0), *[batch] * MEASUREMENTS).target == 5


def test_after_a_change_three_measurements_decide_about_the_next() -> None:
    """The measurements before it were of other executors."""
    more = replace(BUSY, arrived=60_000)
    busy = after(Scaling.start(LIMITS, 0), BUSY, more, more)
    assert [after(busy, *[more] * n).target for n in range(MEASUREMENTS + 1)] == [4, 4, 4, 5]


def test_executors_are_released_after_the_cool_down_and_not_before() -> None:
    busy = after(Scaling.start(LIMITS, 0), *[BUSY] * MEASUREMENTS)
    assert busy.changed_at == 30
    before = after(busy, *[IDLE] * 29)
    assert before.target == 4
    assert before.after(IDLE, LANES, 330).target == 1


def test_the_largest_need_of_three_measurements_remains() -> None:
    busy = after(Scaling.start(replace(LIMITS, cool_down_ms=0), 0), *[BUSY] * MEASUREMENTS)
    some = Measurement(seconds=10, arrived=20_000, delivered=20_000, busy_seconds=20, lag=0)
    assert after(busy, IDLE, some, IDLE).target == 2


def test_without_a_delivery_and_with_a_lag_the_need_is_not_known() -> None:
    hanging = replace(IDLE, lag=10**6)
    assert after(Scaling.start(LIMITS, 0), *[hanging] * 10).target == 1
    busy = after(Scaling.start(LIMITS, 0), *[BUSY] * MEASUREMENTS)
    assert after(busy, *[hanging] * 100).target == 4


def test_executors_without_a_lane_for_each_core_are_not_requested() -> None:
    assert after(Scaling.start(LIMITS, 0), *[BUSY] * MEASUREMENTS, lanes=3).target == 2


@given(_limits, st.lists(_measurements, max_size=12), st.integers(1, 300))
def test_the_number_stays_within_its_bounds(limits: Autoscaling, measurements: list[Measurement], lanes: int) -> None:
    scaling = Scaling.start(limits, 0)
    for i, measurement in enumerate(measurements):
        scaling = scaling.after(measurement, lanes, i * 1000.0)
        useful = max(limits.min_executors, math.ceil(lanes / limits.cores))
        assert 1 <= limits.min_executors <= scaling.target <= min(limits.max_executors, useful)


@given(_limits, st.lists(_measurements, max_size=30), st.floats(0.01, 100))
def test_between_two_changes_are_three_measurements_and_before_a_fall_the_cool_down(
    limits: Autoscaling, measurements: list[Measurement], seconds: float
) -> None:
    scaling, changed, since = Scaling.start(limits, 0), 0.0, 0
    for i, measurement in enumerate(measurements, 1):
        now, before, since = i * seconds, scaling.target, since + 1
        scaling = scaling.after(measurement, LANES, now)
        if scaling.target != before:
            assert since >= MEASUREMENTS
            assert scaling.target > before or now - changed >= limits.cool_down_ms / 1000
            changed, since = now, 0


@given(_measurements, st.integers(1, 10**9))
def test_more_arrivals_never_need_fewer_executors(measurement: Measurement, more: int) -> None:
    start = Scaling.start(replace(LIMITS, window_ms=1), 0)
    added = replace(measurement, arrived=measurement.arrived + more, lag=measurement.lag + more)
    if not all(m.lag > m.arrived / m.seconds / 1000 for m in (measurement, added)):
        return  # not behind
    assert after(start, *[added] * MEASUREMENTS).target >= after(start, *[measurement] * MEASUREMENTS).target


@given(
    arriving=st.integers(0, 15_000),
    rate=st.integers(500, 5_000),
    lag=st.integers(0, 10_000_000),
)
def test_a_steady_load_ends_in_a_steady_number_that_delivers_it(arriving: int, rate: int, lag: int) -> None:
    """An hour of a pipeline with a trigger of a second: the busy share of its processors is what the load needs."""
    limits = replace(LIMITS, max_executors=30)
    scaling, now, targets = Scaling.start(limits, 0), 0.0, []
    for _ in range(720):
        now += 10
        processors = scaling.target * limits.cores
        delivered = min(arriving * 10 + lag, processors * rate * 10)
        lag += arriving * 10 - delivered
        scaling = scaling.after(Measurement(10, arriving * 10, delivered, delivered / rate, lag), LANES, now)
        targets.append(scaling.target)
    assert lag <= arriving * 10, "executors that deliver exactly what arrives may leave the arrivals of a measurement"
    assert scaling.target * limits.cores * rate >= arriving
    assert len(set(targets[-180:])) == 1, "it does not swing"
    assert scaling.target <= max(1, math.ceil(arriving / (0.8 * rate) / limits.cores) + 1), (
        "and has no executor to spare"
    )
