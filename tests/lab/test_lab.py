"""The lab does what the end-to-end tests rely on. In order of a cluster's life; the last test ends it."""

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
from lab.netns import NetnsCluster, remove, traces
from lab.nodes import CPUS, PAUSE_IMAGE
from lab.processes import Daemon, LabError, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
UP = [sys.executable, "-m", "tests.lab", "up"]
PODS = ["probe-0", "probe-1"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[NetnsCluster]:
    if os.geteuid() != 0:
        pytest.skip("only root can make the lab's network namespaces: run the tests as root")
    with Cluster.up() as found:
        if not isinstance(found, NetnsCluster):
            pytest.skip("this cluster was not made by the lab: its nodes stay untouched")
        yield found


@pytest.fixture(scope="module")
def pods(cluster: NetnsCluster) -> Iterator[NetnsCluster]:
    """One pod on each node, in a namespace that takes only restricted ones."""
    cluster.kubectl("apply", "--filename", "-", text=yaml.safe_dump_all(_objects()))
    cluster.kubectl("--namespace=probe", "rollout", "status", "statefulset/probe", "--timeout=60s", timeout=70)
    yield cluster
    if cluster.problem() is None:  # the last test takes it down
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


def ask(cluster: Cluster, pod: str, *arguments: str) -> str:
    """What the pause program says inside a pod."""
    return cluster.kubectl("--namespace=probe", "exec", pod, "--", "/pause", *arguments).strip()


def test_two_nodes_are_ready_and_have_room_for_pods_of_ordinary_size(cluster: NetnsCluster) -> None:
    assert cluster.ready_nodes() == ["node1", "node2"]
    items = json.loads(cluster.kubectl("get", "nodes", "--output", "json"))["items"]
    assert {int(item["status"]["allocatable"]["cpu"]) >= CPUS for item in items} == {True}


def test_a_second_up_finds_the_cluster(cluster: NetnsCluster) -> None:
    found = Cluster.up()
    assert isinstance(found, NetnsCluster)
    assert not found.created
    assert found.brokers.broker(1).pid == cluster.brokers.broker(1).pid


def test_a_pod_runs_on_each_node_and_can_be_asked(pods: NetnsCluster) -> None:
    found = pods.kubectl("--namespace=probe", "get", "pods", "--output", "jsonpath={.items[*].spec.nodeName}")
    assert sorted(found.split()) == ["node1", "node2"]
    assert [pods.kubectl("--namespace=probe", "logs", pod).strip() for pod in PODS] == ["waiting", "waiting"]


def test_names_resolve_in_pods(pods: NetnsCluster) -> None:
    brokers = [host.address for host in pods.brokers.hosts.values()]
    peer = pods.kubectl("--namespace=probe", "get", "pod", PODS[1], "--output", "jsonpath={.status.podIP}")
    assert sorted(ask(pods, PODS[0], "resolve", "kafka").splitlines()) == brokers
    assert ask(pods, PODS[0], "resolve", "kafka-2") == brokers[1]
    assert ask(pods, PODS[0], "resolve", "probe-1.probe") == peer  # another pod of the StatefulSet, on the other node
    assert ask(pods, PODS[1], "resolve", "kubernetes.default") == "198.19.0.1"


def test_pods_reach_the_brokers_and_the_api_server(pods: NetnsCluster) -> None:
    for target in ("kafka-1:9092", "kafka-2:9092", "kafka-3:9094", "kubernetes.default:443"):
        assert ask(pods, PODS[0], "connect", target) == "connected"


def test_pod_security_is_enforced(pods: NetnsCluster) -> None:
    with pytest.raises(LabError, match="violates PodSecurity"):
        pods.kubectl("--namespace=probe", "run", "loose", f"--image={PAUSE_IMAGE}")


def test_a_broker_that_is_cut_off_is_out_of_reach_and_comes_back(pods: NetnsCluster) -> None:
    broker = pods.brokers.broker(1)
    pods.cut("kafka-1")
    try:
        assert broker.alive
        with pytest.raises(LabError, match=r"timeout|no route to host"):
            ask(pods, PODS[0], "connect", broker.address)
        assert ask(pods, PODS[0], "connect", "kafka-2:9092") == "connected"
    finally:
        pods.mend("kafka-1")
    assert ask(pods, PODS[0], "connect", "kafka-1:9092") == "connected"


def test_a_killed_broker_starts_again_with_its_data(cluster: NetnsCluster) -> None:
    broker = cluster.brokers.broker(2)
    broker.kill()
    assert not broker.alive
    broker.start()
    cluster.brokers.wait_until_in_sync()


def test_a_node_that_is_cut_off_becomes_not_ready_and_comes_back(cluster: NetnsCluster) -> None:
    cluster.cut("node2")
    try:
        wait_until(lambda: cluster.ready_nodes() == ["node1"], "node2 is not Ready", 60)
        assert cluster.problem() is None  # all on it still runs
    finally:
        cluster.mend("node2")
    wait_until(lambda: cluster.ready_nodes() == ["node1", "node2"], "node2 is Ready", 60)


def test_down_leaves_nothing_even_of_a_start_that_was_killed(cluster: NetnsCluster) -> None:
    if not cluster.created:
        pytest.skip("this cluster ran before the tests, and stays")
    assert traces()
    cluster.down()
    assert traces() == []
    starting = subprocess.Popen(UP, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: Daemon("kubelet-node1").alive(), "the first node starts", 60)
    finally:
        starting.send_signal(signal.SIGKILL)
        starting.wait()
    assert traces()
    remove()
    assert traces() == []
