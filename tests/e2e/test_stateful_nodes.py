"""The node of a stateful pipeline's driver is cut off from the network while the driver delivers, and comes back.

The driver that was cut off keeps running, so two drivers have the same state. A separate reader compares the counts
with the records that were sent, and the audit computes them from the decisions.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ackwright.local.demo import flights
from e2e.command_line import run_ackwright
from e2e.pipelines import NAMESPACE, Installation, Pipeline, pipeline, wait_until
from e2e.state_places import SQL, in_s3, on_a_volume
from integration.support.pipelines import read
from lab.netns import NetnsCluster
from lab.nodes import Node

Checkpoint = Callable[[Installation, Path], Any]  # a context with the value of spec.checkpoint
RECORDS = 8_000  # sent at once; four micro-batches
WAIT = 900.0  # seconds; up to three drivers start one after the other
_ENDED = "ackwright: "  # begins the line with which a driver ends by itself


@contextmanager
def counting(installed: Installation, checkpoint: Mapping[str, Any]) -> Iterator[Pipeline]:
    """A pipeline that counts flights by origin. checkpoint: the value of spec.checkpoint."""
    with pipeline(installed, "exactly-once", create=False) as p:
        p.apply(
            transform={"sql": SQL},
            sink={"kafka": {"topic": p.sink}},
            state={"partitions": 2, "outputMode": "update"},
            checkpoint=checkpoint,
        )
        p.wait_for("TopicsReady", "True")
        yield p


def delivering(p: Pipeline) -> Mapping[str, Any]:
    """Sends records, and more once some are counted; returns the driver's pod, which delivers then."""
    p.produce_flights(RECORDS)
    p.wait_until(lambda: bool(counts(p)), "the first counts are written", WAIT)
    p.produce_flights(RECORDS, skip=RECORDS)
    driver = p.driver()
    assert driver is not None
    assert "deletionTimestamp" not in driver["metadata"]
    return driver


def counts(p: Pipeline) -> dict[str, list[int]]:
    """The counts of each origin in the sink, in their order there."""
    by_origin: dict[str, list[int]] = {}
    for record in read(p.installation.kafka, p.sink):
        origin, count = (record.value or b"").decode().split()
        by_origin.setdefault(origin, []).append(int(count))
    return by_origin


def require_exact(p: Pipeline, sent: int) -> None:
    """Fails unless so many records are counted once, each count is written once, and the audit confirms it."""
    p.wait_until_delivered(WAIT)
    written = counts(p)
    expected = Counter(json.loads(value)["origin"] for _, value in flights.records(flights.archive(), sent))
    assert {origin: of_origin[-1] for origin, of_origin in written.items()} == expected
    repeated = {o: c for o, c in written.items() if any(later <= earlier for earlier, later in pairwise(c))}
    assert not repeated, "a group that a micro-batch has changed is written once, with a larger count"
    audit = run_ackwright(p.installation, "audit", p.name, "-o", "json")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    p.wait_for("Ready", "True", "Delivering")
    assert p.condition("GuaranteeMet")["status"] == "True"


@contextmanager
def cut_off(cluster: NetnsCluster, node: str) -> Iterator[None]:
    """While it is open, the node is disconnected. Its processes keep running."""
    cluster.cut(node)
    try:
        yield
    finally:
        cluster.reconnect(node)


@contextmanager
def without_kubelet(cluster: NetnsCluster, node: Node) -> Iterator[None]:
    """While it is open, nothing on the node ends a pod or restarts its container. Afterwards the node is Ready."""
    node.kubelet.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.kubelet.send_signal(signal.SIGCONT)
    wait_until(lambda: node.name in cluster.ready_nodes(), f"{node.name} is Ready")


def successor(p: Pipeline, first: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod that replaces a driver's pod, once it exists."""

    def replaced() -> Mapping[str, Any] | None:
        driver = p.driver()
        return driver if driver and driver["metadata"]["uid"] != first["metadata"]["uid"] else None

    return p.wait_until(replaced, "the driver's pod is replaced")


def is_ready(pod: Mapping[str, Any] | None) -> bool:
    conditions = pod["status"].get("conditions", ()) if pod else ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@pytest.fixture
def nodes(installed: Installation) -> NetnsCluster:
    """The cluster, whose nodes' kubelets can be suspended."""
    if not isinstance(installed.cluster, NetnsCluster):
        pytest.skip("the lab has not created this cluster, and does not change its nodes")
    return installed.cluster


@pytest.mark.parametrize("checkpoint", [in_s3, on_a_volume])
def test_counts_are_right_although_the_drivers_node_is_cut_off(
    installed: Installation, nodes: NetnsCluster, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    """The other node takes over, with the same state; the first driver comes back, and the brokers refuse it.

    Its kubelet is suspended, so that nothing but the brokers ends the first driver. The volume is one that several
    nodes mount at once.
    """
    state = tmp_path / "state"
    state.mkdir()
    with checkpoint(installed, state) as declared, counting(installed, declared) as p:
        first = delivering(p)
        pod, node = first["metadata"], nodes.node(first["spec"]["nodeName"])

        def log() -> str:
            return node.container_log(NAMESPACE, pod["name"], pod["uid"], "driver")

        with without_kubelet(nodes, node):
            with cut_off(nodes, node.name):
                cut_at, lag = time.monotonic(), p.lag()
                assert lag > 0, "the node was cut off when everything was delivered"
                second = successor(p, first)
                p.wait_until(lambda: is_ready(p.driver()) and 0 <= p.lag() < lag, "the other driver delivers", WAIT)
                print(f"the other driver delivers after {time.monotonic() - cut_at:.0f} s")
                assert _ENDED not in log(), "the first driver has ended before it could come back"
                p.produce_flights(RECORDS, skip=2 * RECORDS)
            p.wait_until(lambda: _ENDED in log(), "the first driver ends", WAIT)
            assert f"{_ENDED}Superseded: " in log()
        require_exact(p, 3 * RECORDS)
        driver = p.driver()
        assert driver is not None
        assert driver["metadata"]["uid"] == second["metadata"]["uid"]
        assert driver["spec"]["nodeName"] != node.name


def test_a_volume_of_the_node_that_is_cut_off_holds_the_pipeline_until_the_node_is_back(
    installed: Installation, nodes: NetnsCluster, tmp_path: Path
) -> None:
    """No other node can mount such a volume, so that no driver runs elsewhere; the status says why."""
    node, state = nodes.nodes[0], tmp_path / "state"
    state.mkdir()
    with on_a_volume(installed, state) as declared:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
        volume, patch = declared["volume"]["storageClassName"], json.dumps({"spec": {"nodeAffinity": affinity}})
        installed.kubectl("patch", "persistentvolume", volume, "--type", "merge", "--patch", patch)
        with counting(installed, declared) as p:
            first = delivering(p)
            assert first["spec"]["nodeName"] == node
            with cut_off(nodes, node):
                assert p.lag() > 0, "the node was cut off when everything was delivered"
                second = successor(p, first)
                p.wait_for("JobRunning", "False", "Unschedulable")
                waiting = p.driver()
                assert waiting is not None
                assert "nodeName" not in waiting["spec"]
            require_exact(p, 2 * RECORDS)
            driver = p.driver()
            assert driver is not None
            assert driver["metadata"]["uid"] == second["metadata"]["uid"]
            assert driver["spec"]["nodeName"] == node
