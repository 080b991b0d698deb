"""Stateful pipelines on a real cluster: the state is on a volume or in S3 when the driver's pod is killed.

A separate reader compares the counts with the records that were sent, and the audit computes them from the decisions.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ackwright.local.demo import flights
from e2e.command_line import run_ackwright
from e2e.pipelines import Installation, Pipeline, pipeline
from integration.support.pipelines import read
from integration.support.s3_server import BUCKET, KEY, SECRET, S3Server
from lab.network import MACHINE

RECORDS = 8_000  # sent before the kill, and once more after it; four micro-batches
SQL = "SELECT origin AS key, CONCAT_WS(' ', origin, COUNT(*)) AS value FROM source GROUP BY origin"
Checkpoint = Callable[[Installation, Path], Any]  # a context with the value of spec.checkpoint


@contextmanager
def on_a_volume(installed: Installation, directory: Path) -> Iterator[dict[str, Any]]:
    """A directory of this machine, which all nodes of the lab share."""
    directory.chmod(0o777)  # the driver is not root
    name = f"state-{uuid.uuid4().hex[:6]}"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "hostPath": {"path": str(directory)},
    }
    installed.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    try:
        yield {"volume": {"size": "1Gi", "storageClassName": name}}
    finally:
        installed.kubectl("delete", "persistentvolume", name, "--wait=false")


@contextmanager
def in_s3(installed: Installation, directory: Path) -> Iterator[dict[str, Any]]:
    with S3Server(directory / "server", MACHINE) as server:
        login = installed.create_secret("state-login", username=KEY, password=SECRET)
        s3 = {"endpoint": server.endpoint, "credentialsSecret": {"name": login}}
        yield {"uri": f"s3a://{BUCKET}/{uuid.uuid4().hex[:6]}", "s3": s3}


def last_counts(p: Pipeline) -> dict[str, int]:
    """The last count of each origin in the sink."""
    texts = [(r.value or b"").decode().split() for r in read(p.installation.kafka, p.sink)]
    return {origin: int(count) for origin, count in texts}


@pytest.mark.parametrize("checkpoint", [on_a_volume, in_s3])
def test_counts_are_right_although_the_drivers_pod_is_killed(
    installed: Installation, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with (
        checkpoint(installed, state) as declared,
        pipeline(installed, "exactly-once", create=False) as p,
    ):
        p.apply(
            transform={"sql": SQL},
            sink={"kafka": {"topic": p.sink}},
            state={"partitions": 2, "outputMode": "update"},
            checkpoint=declared,
        )
        p.wait_for("TopicsReady", "True")
        p.produce_flights(RECORDS)
        p.wait_until(lambda: bool(last_counts(p)), "the first counts are written")
        killed = p.driver()
        assert killed is not None
        p.produce_flights(RECORDS, skip=RECORDS)
        p.installation.kubectl("delete", "pod", killed["metadata"]["name"], "--force", "--grace-period=0")
        assert sum(last_counts(p).values()) < 2 * RECORDS, "the driver was killed when everything was counted"
        p.wait_until_delivered()
        audit = run_ackwright(installed, "audit", p.name, "-o", "json")  # a Job with the pipeline's Secrets
        assert audit.returncode == 0, audit.stdout + audit.stderr
        sent = flights.records(flights.archive(), 2 * RECORDS)
        assert last_counts(p) == Counter(json.loads(value)["origin"] for _, value in sent)
        successor = p.driver()
        assert successor is not None
        assert successor["metadata"]["uid"] != killed["metadata"]["uid"]
        p.wait_for("Ready", "True", "Delivering")
        assert p.condition("GuaranteeMet")["status"] == "True"
