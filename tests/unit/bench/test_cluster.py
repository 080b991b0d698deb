"""How the pauses in a cluster are judged."""

from __future__ import annotations

from bench import cluster
from bench.runs import EXACTLY_ONCE


def test_the_slowest_takeover_is_judged_and_a_standby_has_to_be_faster() -> None:
    for standby, judged in ((False, True), (True, False)):
        median, p99 = cluster.summary(EXACTLY_ONCE, [1.0, 2.0, 6.0], standby=standby)
        assert (median.value, median.meets_target) == (2.0, None)
        assert p99.value > 5.0
        assert p99.meets_target is judged


def test_a_pod_that_does_not_exist_has_no_processes() -> None:
    assert cluster.processes("5c1f0d6e-0000-4000-8000-000000000000") == []
