"""Pods, nodes, brokers and the operator are killed during a batch: the pipeline continues, and the audit passes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.pipelines import SYSTEM, Installation, Pipeline, pipeline, wait_until

FLIGHTS = 30_000


def start_delivery(p: Pipeline) -> None:
    """Produces flights and waits until some of them are delivered."""
    p.wait_for("TopicsReady", "True")
    p.produce_flights(FLIGHTS)
    wait_until(lambda: 0 < p.lag() < FLIGHTS, f"{p.name} has delivered a part of the flights")


def finish_delivery(p: Pipeline, directory: Path) -> None:
    p.wait_until_delivered_and_audit(directory)
    p.wait_for("Ready", "True", "Delivering")


def kill(installed: Installation, pod: Mapping[str, Any] | None) -> None:
    assert pod is not None
    installed.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_the_drivers_pod_is_killed_during_a_batch(installed: Installation, tmp_path: Path, guarantee: str) -> None:
    with pipeline(installed, guarantee) as p:
        start_delivery(p)
        kill(installed, p.driver())
        finish_delivery(p, tmp_path)


def test_an_executors_pod_is_killed_during_a_batch(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "exactly-once") as p:
        start_delivery(p)
        kill(installed, p.executors()[0])
        finish_delivery(p, tmp_path)


def test_a_driver_that_a_quota_denies_resumes_when_the_quota_allows_it(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "exactly-once") as p:
        start_delivery(p)
        installed.kubectl("create", "quota", "full", "--hard=pods=0")
        try:
            kill(installed, p.driver())
            p.wait_for("Ready", "False")
            wait_until(lambda: "exceeded quota" in installed.kubectl("get", "events"), "the quota denies the pod")
            assert p.driver() is None
        finally:
            installed.kubectl("delete", "quota", "full")
        finish_delivery(p, tmp_path)


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
    """The other node takes over although the old driver may still run, and fences it when its node is back."""
    with pipeline(installed, "exactly-once") as p:
        start_delivery(p)
        old = p.driver()
        assert old is not None
        node = old["spec"]["nodeName"]
        installed.cluster.cut(node)
        cut_at = time.monotonic()
        try:

            def is_replaced() -> bool:
                current = p.driver()
                return bool(
                    current and current["metadata"]["uid"] != old["metadata"]["uid"] and current["spec"].get("nodeName")
                )

            wait_until(is_replaced, "a new driver")
            p.wait_for("JobRunning", "True")
            print(f"fail-over took {time.monotonic() - cut_at:.0f} s")
            driver = p.driver()
            assert driver is not None
            assert driver["spec"]["nodeName"] != node
        finally:
            installed.cluster.reconnect(node)
        finish_delivery(p, tmp_path)
