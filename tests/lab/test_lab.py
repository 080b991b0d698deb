"""The lab provides what the end-to-end tests need. The tests run in order; the last one removes the cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.cluster import Cluster
from lab.netns import NetnsCluster, leftovers, remove
from lab.nodes import CPUS, PAUSE_IMAGE
from lab.processes import Daemon, LabError, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
UP = [sys.executable, "-m", "tests.lab", "up"]
PODS = ["probe-0", "probe-1"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[NetnsCluster]:
    if os.geteuid() != 0:
        pytest.skip("only root can create the lab's network namespaces; run the tests as root")
    with Cluster.up() as running:
        if not isinstance(running, NetnsCluster):
            pytest.skip("the lab has not created this cluster, and does not change it")
        yield running


@pytest.fixture(scope="module")
def pods(cluster: NetnsCluster) -> Iterator[NetnsCluster]:
    """One pod per node, in a namespace with the Pod Security level restricted."""
    cluster.kubectl("apply", "--filename", "-", text=yaml.safe_dump_all(_objects()))
    cluster.kubectl("--namespace=probe", "rollout", "status", "statefulset/probe", "--timeout=60s", timeout=70)
    yield cluster
    if cluster.problem() is None:  # the last test removes the cluster
        cluster.kubectl("delete", "namespace", "probe", "--wait=false")


def _objects() -> list[dict[str, object]]:
    labels = {"app": "probe"}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "probe",
        "image": PAUSE_IMAGE,
        "securityContext": security,
        "resources": {"requests": {"cpu": "2"}},
    }
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    pod = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
        "topologySpreadConstraints": [spread | {"labelSelector": {"matchLabels": labels}}],
        "containers": [container],
    }
    stateful = {
        "serviceName": "probe",
        "replicas": len(PODS),
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    metadata = {"name": "probe", "namespace": "probe"}
    restricted = {"name": "probe", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": restricted},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": "None", "selector": labels},
        },
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": stateful},
    ]


def run_in_pod(cluster: Cluster, pod: str, *arguments: str) -> str:
    """The output of the pause program in a pod."""
    return cluster.kubectl("--namespace=probe", "exec", pod, "--", "/pause", *arguments).strip()


def test_two_nodes_are_ready_and_report_enough_cpus(cluster: NetnsCluster) -> None:
    assert cluster.ready_nodes() == ["node1", "node2"]
    items = json.loads(cluster.kubectl("get", "nodes", "--output", "json"))["items"]
    assert {int(item["status"]["allocatable"]["cpu"]) >= CPUS for item in items} == {True}


def test_a_second_up_reuses_the_cluster(cluster: NetnsCluster) -> None:
    second = Cluster.up()
    assert isinstance(second, NetnsCluster)
    assert not second.created
    assert second.brokers.broker(1).pid == cluster.brokers.broker(1).pid


def test_a_pod_runs_on_each_node_and_its_log_can_be_read(pods: NetnsCluster) -> None:
    nodes = pods.kubectl("--namespace=probe", "get", "pods", "--output", "jsonpath={.items[*].spec.nodeName}")
    assert sorted(nodes.split()) == ["node1", "node2"]
    assert [pods.kubectl("--namespace=probe", "logs", pod).strip() for pod in PODS] == ["waiting", "waiting"]
    pod = json.loads(pods.kubectl("--namespace=probe", "get", "pod", PODS[0], "--output", "json"))
    node = pods.node(pod["spec"]["nodeName"])
    assert node.container_log("probe", PODS[0], pod["metadata"]["uid"], "probe").endswith(" waiting\n")


def test_names_resolve_in_pods(pods: NetnsCluster) -> None:
    brokers = [host.address for host in pods.brokers.hosts.values()]
    peer = pods.kubectl("--namespace=probe", "get", "pod", PODS[1], "--output", "jsonpath={.status.podIP}")
    assert sorted(run_in_pod(pods, PODS[0], "resolve", "kafka").splitlines()) == brokers
    assert run_in_pod(pods, PODS[0], "resolve", "kafka-2") == brokers[1]
    assert run_in_pod(pods, PODS[0], "resolve", "probe-1.probe") == peer  # the StatefulSet's pod on the other node
    assert run_in_pod(pods, PODS[1], "resolve", "kubernetes.default") == "198.19.0.1"


def test_pods_reach_the_brokers_and_the_api_server(pods: NetnsCluster) -> None:
    for target in ("kafka-1:9092", "kafka-2:9092", "kafka-3:9094", "kubernetes.default:443"):
        assert run_in_pod(pods, PODS[0], "connect", target) == "connected"


def test_pod_security_is_enforced(pods: NetnsCluster) -> None:
    with pytest.raises(LabError, match="violates PodSecurity"):
        pods.kubectl("--namespace=probe", "run", "loose", f"--image={PAUSE_IMAGE}")


def test_a_disconnected_broker_is_unreachable_until_it_is_reconnected(pods: NetnsCluster) -> None:
    broker = pods.brokers.broker(1)
    pods.cut("kafka-1")
    try:
        assert broker.alive
        with pytest.raises(LabError, match=r"timeout|no route to host"):
            run_in_pod(pods, PODS[0], "connect", broker.address)
        assert run_in_pod(pods, PODS[0], "connect", "kafka-2:9092") == "connected"
    finally:
        pods.reconnect("kafka-1")
    assert run_in_pod(pods, PODS[0], "connect", "kafka-1:9092") == "connected"


def test_a_killed_broker_can_be_restarted_with_its_data(cluster: NetnsCluster) -> None:
    broker = cluster.brokers.broker(2)
    broker.kill()
    assert not broker.alive
    broker.start()
    cluster.brokers.wait_until_in_sync()


def test_a_disconnected_node_is_not_ready_until_it_is_reconnected(cluster: NetnsCluster) -> None:
    cluster.cut("node2")
    try:
        wait_until(lambda: cluster.ready_nodes() == ["node1"], "node2 is not Ready", 60)
        assert cluster.problem() is None  # its processes still run
    finally:
        cluster.reconnect("node2")
    wait_until(lambda: cluster.ready_nodes() == ["node1", "node2"], "node2 is Ready", 60)


def test_down_leaves_nothing_even_after_a_start_that_was_killed(cluster: NetnsCluster) -> None:
    if not cluster.created:
        pytest.skip("this cluster ran before the tests and is not removed")
    assert leftovers()
    cluster.down()
    assert leftovers() == []
    starting = subprocess.Popen(UP, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: Daemon("kubelet-node1").alive(), "the first node starts", 60)
    finally:
        starting.send_signal(signal.SIGKILL)
        starting.wait()
    assert leftovers()
    remove()
    assert leftovers() == []
