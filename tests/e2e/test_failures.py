"""Pods, nodes, brokers and the operator itself die mid-batch: the pipeline goes on, and the audit is clean."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from e2e.pipelines import SYSTEM, Installation, Pipeline, pipeline, wait_until

FLIGHTS = 30_000


def delivering(p: Pipeline) -> None:
    """Fed, running, and in the middle of it."""
    p.wait_for("TopicsReady", "True")
    p.feed(FLIGHTS)
    wait_until(lambda: 0 < p.lag() < FLIGHTS, f"{p.name} is in the middle")


def finished(p: Pipeline, directory: Path) -> None:
    p.wait_until_delivered()
    verdict = p.audit(directory)
    assert verdict["exitCode"] == 0, verdict
    p.wait_for("Ready", "True", "Delivering")


@pytest.mark.parametrize("victim", ["driver", "executor"])
def test_pods_killed_mid_batch(installed: Installation, tmp_path: Path, victim: str) -> None:
    with pipeline(installed, "exactly-once") as p:
        delivering(p)
        pod = p.driver() if victim == "driver" else p.executors()[0]
        assert pod is not None
        installed.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
        finished(p, tmp_path)


def test_operator_killed_while_a_pipeline_is_applied_and_edited(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "exactly-once", create=False) as p:
        installed.cluster.kubectl("--namespace", SYSTEM, "scale", "deployment/ackwright-operator", "--replicas=0")
        wait_until(lambda: not installed.get("pods", namespace=SYSTEM), "the operator is gone", 60)
        p.apply()
        p.apply(trigger={"interval": "700ms"})
        installed.cluster.kubectl("--namespace", SYSTEM, "scale", "deployment/ackwright-operator", "--replicas=1")
        p.wait_for("TopicsReady", "True")
        p.feed(10_000)
        installed.cluster.kubectl("--namespace", SYSTEM, "delete", "pods", "--all", "--force", "--grace-period=0")
        finished(p, tmp_path)


def test_broker_killed_mid_batch(installed: Installation, tmp_path: Path) -> None:
    brokers = installed.cluster.brokers
    with pipeline(installed, "exactly-once") as p:
        delivering(p)
        broker = brokers.broker(2)
        broker.kill()
        try:
            p.wait_until_delivered()
        finally:
            broker.start()
            brokers.wait_until_in_sync(120)
        finished(p, tmp_path)


def test_node_cut_off_with_the_driver_on_it_and_back(installed: Installation, tmp_path: Path) -> None:
    """The other node takes over although the old driver may still run; when the node comes back, the old driver is fenced."""
    with pipeline(installed, "exactly-once") as p:
        delivering(p)
        old = p.driver()
        assert old is not None
        node = old["spec"]["nodeName"]
        installed.cluster.cut(node)
        began = time.monotonic()
        try:

            def replaced() -> bool:
                found = p.driver()
                return bool(
                    found and found["metadata"]["uid"] != old["metadata"]["uid"] and found["spec"].get("nodeName")
                )

            wait_until(replaced, "a new driver")
            p.wait_for("JobRunning", "True")
            print(f"fail-over took {time.monotonic() - began:.0f} s")
            driver = p.driver()
            assert driver is not None
            assert driver["spec"]["nodeName"] != node
        finally:
            installed.cluster.reconnect(node)
        finished(p, tmp_path)
