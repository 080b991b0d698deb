"""Pods, nodes, brokers and the operator are killed during a batch: the pipeline continues, and the audit passes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.pipelines import SYSTEM, Installation, Pipeline, pipeline, wait_until
from lab.processes import LabError

FLIGHTS = 30_000
GUARANTEES = ("exactly-once", "at-least-once", "at-most-once")
# Many small processes, of which the kernel chooses none while the job's JVM is larger.
_EXHAUST = """
import subprocess, sys
child = "held = bytearray(20 << 20); import signal; print(flush=True); signal.pause()"
while True:
    subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE).stdout.readline()
"""


def start_delivery(p: Pipeline) -> None:
    """Produces flights and waits until some of them are delivered."""
    p.wait_for("TopicsReady", "True")
    p.produce_flights(FLIGHTS)
    wait_until(lambda: 0 < p.lag() < FLIGHTS, f"{p.name} has delivered a part of the flights")


def finish_delivery(p: Pipeline, directory: Path) -> None:
    p.wait_until_delivered_and_audit(directory)
    p.wait_for("Ready", "True", "Delivering")


def kill(installed: Installation, *pods: Mapping[str, Any]) -> None:
    """Kills the pods at the same time."""
    installed.kubectl("delete", "pod", *(pod["metadata"]["name"] for pod in pods), "--force", "--grace-period=0")


def driver(p: Pipeline) -> Mapping[str, Any]:
    pod = p.driver()
    assert pod is not None
    return pod


@contextmanager
def each_guarantee(installed: Installation) -> Iterator[list[Pipeline]]:
    """A pipeline under each guarantee, which have delivered a part; all their pods are on one node."""
    *others, node = installed.cluster.nodes
    with ExitStack() as stack:
        for other in others:
            installed.cluster.kubectl("cordon", other)
            stack.callback(installed.cluster.kubectl, "uncordon", other)
        pipelines = [stack.enter_context(pipeline(installed, guarantee)) for guarantee in GUARANTEES]
        for p in pipelines:
            start_delivery(p)
        for other in others:
            installed.cluster.kubectl("uncordon", other)
        assert {driver(p)["spec"]["nodeName"] for p in pipelines} == {node}
        yield pipelines


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_drivers_pod_is_killed_during_a_batch(installed: Installation, tmp_path: Path, guarantee: str) -> None:
    with pipeline(installed, guarantee) as p:
        start_delivery(p)
        kill(installed, driver(p))
        finish_delivery(p, tmp_path)


def test_an_executors_pod_is_killed_during_a_batch(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "exactly-once") as p:
        start_delivery(p)
        kill(installed, p.executors()[0])
        finish_delivery(p, tmp_path)


def test_all_drivers_are_killed_at_once_and_resume_when_a_quota_allows_them(
    installed: Installation, tmp_path: Path
) -> None:
    with each_guarantee(installed) as pipelines:
        installed.kubectl("create", "quota", "full", "--hard=pods=0")
        try:
            kill(installed, *(driver(p) for p in pipelines))
            for p in pipelines:
                p.wait_for("Ready", "False")
            wait_until(lambda: "exceeded quota" in installed.kubectl("get", "events"), "the quota denies the pods")
            assert [p.driver() for p in pipelines] == [None] * len(pipelines)
        finally:
            installed.kubectl("delete", "quota", "full")
        for p in pipelines:
            finish_delivery(p, tmp_path)


def test_a_driver_that_the_kernel_kills_at_its_memory_limit_is_reported_and_resumes(
    installed: Installation, tmp_path: Path
) -> None:
    with pipeline(installed, "exactly-once") as p:
        start_delivery(p)
        before = driver(p)
        with suppress(LabError):  # the command ends with the container
            argv = ("exec", before["metadata"]["name"], "--container", "driver", "--", "python3", "-c", _EXHAUST)
            installed.kubectl(*argv, timeout=120)
        finish_delivery(p, tmp_path)
        container = driver(p)["status"]["containerStatuses"][0]
        assert driver(p)["metadata"]["uid"] == before["metadata"]["uid"], "Kubernetes starts the container again"
        assert container["lastState"]["terminated"]["reason"] == "OOMKilled"
        assert "OutOfMemory" in str(p.status()["driver"]["lastError"])


def test_a_standby_takes_over_from_a_driver_whose_pod_is_killed_and_an_edit_replaces_both(
    installed: Installation, tmp_path: Path
) -> None:
    with pipeline(installed, "exactly-once", standby=True) as p:
        p.wait_for("JobRunning", "True", "Running")  # with a standby that is ready
        start_delivery(p)
        active = p.status()["driver"]["pod"]
        installed.kubectl("delete", "pod", active, "--force", "--grace-period=0")
        killed_at, lag = time.monotonic(), p.lag()
        wait_until(lambda: 0 <= p.lag() < lag, "records are delivered again")
        print(f"the standby delivers after {time.monotonic() - killed_at:.1f} s")
        p.wait_until_delivered()
        p.wait_for("JobRunning", "True", "Running")
        assert p.status()["driver"]["pod"] != active
        p.apply(trigger={"interval": "700ms"})
        p.wait_for("Reconciling", "False", "Settled")
        p.produce_flights(1000, FLIGHTS)
        finish_delivery(p, tmp_path)
        p.wait_for("JobRunning", "True", "Running")


def test_the_operator_is_killed_while_a_pipeline_is_applied_and_edited(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "exactly-once", create=False) as p:
        installed.cluster.kubectl("--namespace", SYSTEM, "scale", "deployment/ackwright-operator", "--replicas=0")
        wait_until(lambda: not installed.get("pods", namespace=SYSTEM), "the operator has ended", 60)
        p.apply()
        p.apply(trigger={"interval": "700ms"})
        installed.cluster.kubectl("--namespace", SYSTEM, "scale", "deployment/ackwright-operator", "--replicas=1")
        p.wait_for("TopicsReady", "True")
        p.produce_flights(10_000)
        installed.cluster.kubectl("--namespace", SYSTEM, "delete", "pods", "--all", "--force", "--grace-period=0")
        finish_delivery(p, tmp_path)


def test_a_broker_is_killed_during_a_batch(installed: Installation, tmp_path: Path) -> None:
    brokers = installed.cluster.brokers
    with pipeline(installed, "exactly-once") as p:
        start_delivery(p)
        broker = brokers.broker(2)
        broker.kill()
        try:
            p.wait_until_delivered()
        finally:
            broker.start()
            brokers.wait_until_in_sync(120)
        finish_delivery(p, tmp_path)


def test_the_drivers_node_is_disconnected_and_reconnected(installed: Installation, tmp_path: Path) -> None:
    """The other node takes over although the old drivers may still run, and fences them when their node is back."""
    with each_guarantee(installed) as pipelines:
        old = {p.name: driver(p)["metadata"]["uid"] for p in pipelines}
        node = driver(pipelines[0])["spec"]["nodeName"]
        installed.cluster.cut(node)
        cut_at = time.monotonic()
        try:
            for p in pipelines:
                wait_until(partial(is_replaced, p, old[p.name]), f"a new driver of {p.name}")
                p.wait_for("JobRunning", "True")
                print(f"{p.name}: fail-over took {time.monotonic() - cut_at:.0f} s")
                assert driver(p)["spec"]["nodeName"] != node
        finally:
            installed.cluster.reconnect(node)
        for p in pipelines:
            finish_delivery(p, tmp_path)


def test_the_node_of_drivers_and_leading_operator_is_drained(installed: Installation, tmp_path: Path) -> None:
    """As before a node is updated: the drivers drain, the other node takes over, and another replica leads."""
    cluster = installed.cluster
    with each_guarantee(installed) as pipelines:
        node = driver(pipelines[0])["spec"]["nodeName"]
        leader = leading_operator(installed)
        if leader["spec"]["nodeName"] != node:  # replicas are on different nodes: the next leader is beside the drivers
            cluster.kubectl("--namespace", SYSTEM, "delete", "pod", leader["metadata"]["name"])
            wait_until(lambda: leading_operator(installed)["spec"]["nodeName"] == node, "the other replica leads")
        cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s", timeout=200)
        try:
            for p in pipelines:
                finish_delivery(p, tmp_path)
                assert driver(p)["spec"]["nodeName"] != node
            wait_until(lambda: leading_operator(installed)["spec"]["nodeName"] != node, "another replica leads", 60)
            pipelines[0].apply(trigger={"interval": "700ms"})
            pipelines[0].wait_for("Reconciling", "False", "Settled")
        finally:
            cluster.kubectl("uncordon", node)


def is_replaced(p: Pipeline, uid: str) -> bool:
    """Whether the driver is another pod than the one with this uid, and on a node."""
    pod = p.driver()
    return bool(pod and pod["metadata"]["uid"] != uid and pod["spec"].get("nodeName"))


def leading_operator(installed: Installation) -> Mapping[str, Any]:
    """The operator's pod that holds the Lease; empty names if that pod has ended."""
    holder = str(installed.get("lease", "ackwright-operator", namespace=SYSTEM)["spec"].get("holderIdentity") or "")
    pods = installed.get("pods", namespace=SYSTEM, labels="app.kubernetes.io/name=ackwright")
    nobody: Mapping[str, Any] = {"metadata": {"name": ""}, "spec": {"nodeName": ""}}
    return next((pod for pod in pods if holder.startswith(pod["metadata"]["name"])), nobody)
