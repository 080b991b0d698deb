"""Stateful pipelines on a real cluster: pods are killed while the state is on a volume, or in S3.

With state on a volume the driver runs the tasks, with state in S3 executors do. A separate reader compares the counts
with the records that were sent, and the audit computes them from the decisions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ackwright.local.demo import flights
from e2e.command_line import run_ackwright
from e2e.leaks import collect_texts, leaks
from e2e.pipelines import Installation, Pipeline, pipeline
from e2e.state_places import SQL, in_s3, on_a_volume
from integration.support.pipelines import read
from integration.support.s3_server import KEY, SECRET

RECORDS = 8_000  # sent before the first kill, and once more at each kill; four micro-batches
EXECUTORS = 2


@contextmanager
def counting(installed: Installation, checkpoint: Mapping[str, Any], **spec: Any) -> Iterator[Pipeline]:
    """A pipeline that has counted some of RECORDS flights by their origin."""
    with pipeline(installed, "exactly-once", create=False) as p:
        p.apply(
            transform={"sql": SQL},
            sink={"kafka": {"topic": p.sink}},
            state={"partitions": 2 * EXECUTORS, "outputMode": "update"},
            checkpoint=checkpoint,
            **spec,
        )
        p.wait_for("TopicsReady", "True")
        p.produce_flights(RECORDS)
        p.wait_until(lambda: bool(last_counts(p)), "the first counts are written")
        yield p


def last_counts(p: Pipeline) -> dict[str, int]:
    """The last count of each origin in the sink."""
    texts = [(r.value or b"").decode().split() for r in read(p.installation.kafka, p.sink)]
    return {origin: int(count) for origin, count in texts}


def kill_while_counting(p: Pipeline, pod: Mapping[str, Any], sent: int) -> None:
    """Kills a pod while the pipeline counts the next RECORDS flights, of which `sent` were produced before."""
    p.produce_flights(RECORDS, skip=sent)
    p.installation.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
    assert sum(last_counts(p).values()) < sent + RECORDS, "the pod was killed when everything was counted"


def assert_each_is_counted_once(p: Pipeline, records: int) -> None:
    """Waits until all records are delivered, and compares the counts with them."""
    p.wait_until_delivered()
    audit = run_ackwright(p.installation, "audit", p.name, "-o", "json")  # a Job with the pipeline's Secrets
    assert audit.returncode == 0, audit.stdout + audit.stderr
    sent = flights.records(flights.archive(), records)
    assert last_counts(p) == Counter(json.loads(value)["origin"] for _, value in sent)
    p.wait_for("Ready", "True", "Delivering")
    assert p.condition("GuaranteeMet")["status"] == "True"


def driver(p: Pipeline) -> Mapping[str, Any]:
    pod = p.driver()
    assert pod is not None
    return pod


def starts(pod: Mapping[str, Any]) -> tuple[str, int]:
    """Of which pod a driver is, and how often it has started in it."""
    return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]


def running(p: Pipeline) -> dict[str, Mapping[str, Any]]:
    """The executors' pods that run, by name."""
    return {pod["metadata"]["name"]: pod for pod in p.executors() if pod["status"].get("phase") == "Running"}


def test_counts_are_right_although_the_drivers_pod_with_the_volume_is_killed(
    installed: Installation, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with on_a_volume(installed, state) as checkpoint, counting(installed, checkpoint) as p:
        assert p.executors() == []
        killed = driver(p)
        kill_while_counting(p, killed, RECORDS)
        assert_each_is_counted_once(p, 2 * RECORDS)
        assert starts(driver(p))[0] != killed["metadata"]["uid"]


def test_counts_are_right_although_an_executor_and_the_driver_of_state_in_s3_are_killed(
    installed: Installation, tmp_path: Path
) -> None:
    small = {"cpuRequest": "200m", "memory": "600m"}
    spark = {"driver": small, "executor": {**small, "instances": EXECUTORS}}
    with in_s3(installed, tmp_path / "state") as checkpoint, counting(installed, checkpoint, spark=spark) as p:
        before = p.wait_until(lambda: pods if len(pods := running(p)) == EXECUTORS else None, "all executors run")
        assert leaks(collect_texts(installed, [], tmp_path), {"key": KEY, "secret": SECRET}) == []
        first = driver(p)
        lost = min(before)
        kill_while_counting(p, before[lost], RECORDS)
        p.wait_until(lambda: len(running(p).keys() - {lost}) == EXECUTORS, "another executor runs")
        p.wait_until_delivered()
        assert starts(driver(p)) == starts(first), "the driver continues by itself"
        kill_while_counting(p, first, 2 * RECORDS)
        assert_each_is_counted_once(p, 3 * RECORDS)
        assert starts(driver(p))[0] != first["metadata"]["uid"]
        p.wait_until(lambda: running(p).keys().isdisjoint(before), "the executors of the first driver have ended")
