"""Autoscaling in a cluster: executors' pods follow the lag, and pods that a quota denies are reported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.pipelines import Installation, Pipeline, pipeline, wait_until

LARGEST = 3
CHANGE_S = 600.0  # the cool-down, or the time until missing executors are reported, is five minutes of it


@contextmanager
def scaled(installed: Installation, offsets_per_second: int) -> Iterator[Pipeline]:
    """A pipeline that delivers so slowly that its lag lasts for some measurements of ten seconds."""
    small = {"cpuRequest": "100m", "memory": "600m"}
    executor = {**small, "instances": 1, "autoscaling": {"maxInstances": LARGEST, "drainTarget": "1s"}}
    with pipeline(installed, "exactly-once", create=False) as p:
        source = {**p.document["spec"]["source"], "maxOffsetsPerTrigger": offsets_per_second}
        p.apply(source=source, trigger={"interval": "1s"}, spark={"driver": small, "executor": executor})
        p.wait_for("TopicsReady", "True")
        yield p


def requested(p: Pipeline) -> int | None:
    number: int | None = p.status().get("delivery", {}).get("executorsRequested")
    return number


def test_executors_come_with_a_lag_and_go_after_it(installed: Installation, tmp_path: Path) -> None:
    with scaled(installed, 150) as p:
        p.produce_flights(20_000)
        wait_until(lambda: len(p.executors()) == LARGEST, "all executors run", CHANGE_S)
        p.wait_until_delivered()
        wait_until(lambda: len(p.executors()) == 1, "one executor remains", CHANGE_S)
        wait_until(lambda: requested(p) == 1, "the status has the number")
        p.produce_flights(1000, 20_000)
        p.wait_until_delivered_and_audit(tmp_path)
        assert p.condition("JobRunning")["reason"] == "Running"


def test_executors_that_a_quota_denies_are_reported_and_the_others_deliver(
    installed: Installation, tmp_path: Path
) -> None:
    with scaled(installed, 60) as p:
        p.produce_flights(10)
        p.wait_until_delivered()
        installed.kubectl("create", "quota", "full", "--hard=pods=0")  # no other pod comes; those that run stay
        try:
            p.produce_flights(30_000, 10)
            missing = p.wait_for("JobRunning", "True", "ExecutorsMissing", CHANGE_S)
            assert f"requested {LARGEST} executors, and 1 of them run" in missing["message"]
            assert len(p.executors()) == 1
        finally:
            installed.kubectl("delete", "quota", "full")
        p.wait_for("JobRunning", "True", "Running", CHANGE_S)
        p.wait_until_delivered(CHANGE_S)
        p.wait_until_delivered_and_audit(tmp_path)
