"""After an upgrade drivers are replaced one pipeline after another, on a real API server and a real broker.

Fake controllers create the pods, and only when the test lets them act, so a new driver becomes ready when the test
decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from ackwright.clients.kubernetes import connect
from ackwright.local.kafka import EmbeddedKafka
from e2e.api_server import ApiServer
from e2e.pods import Pods, progress
from e2e.teams import CRD, Teams, running
from lab import binaries
from lab.cluster import print_progress
from waiting import wait_until

PIPELINES = ("a", "b", "c")


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer(binaries.api_server(print_progress)) as server:
        server.install(CRD)
        yield server


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1) as cluster:
        yield cluster


def declare(teams: Teams, kafka: EmbeddedKafka, namespace: str, name: str) -> None:
    topics = [f"{namespace}-{name}-in", f"{namespace}-{name}-out"]
    teams.declare(
        namespace,
        name,
        kafka.bootstrap_servers,
        tolerate={"brokerFailures": 0},
        source={"topics": topics[:1]},
        sink={"kafka": {"topic": topics[1]}},
        topics=[{"name": topic, "partitions": 1, "replicationFactor": 1} for topic in topics],
    )


def images(pods: Pods, kind: str) -> dict[str, str]:
    """The image of each driver: by its StatefulSet, or by its pod if that is ready."""
    result = {}
    for child in pods.children():
        if child["kind"] == kind and not child["metadata"].get("deletionTimestamp"):
            spec = child["spec"]["template"]["spec"] if kind == "StatefulSet" else child["spec"]
            result[child["metadata"]["labels"]["ackwright.io/pipeline"]] = spec["containers"][0]["image"]
    return result


def is_settled(teams: Teams, pods: Pods, namespace: str, names: Sequence[str] = PIPELINES) -> bool:
    """Lets the controllers act once; returns whether all pipelines are as the operator's settings require."""
    pods.act()
    return all(teams.conditions(namespace, name).get("Reconciling", "").startswith("False") for name in names)


@pytest.mark.parametrize("limit", [1, 3])
def test_an_upgrade_replaces_the_drivers_of_so_many_pipelines_at_a_time(
    api: ApiServer, kafka: EmbeddedKafka, limit: int
) -> None:
    """With the limit 3 all three are replaced at once, which is the control."""
    namespace = f"limit-{limit}"
    teams = Teams(api, [namespace], {"settings": {"MAX_UNAVAILABLE": str(limit), "RESYNC": "1"}})
    with progress() as address, running(teams):
        pods = Pods(connect(str(api.kubeconfig)), namespace, address)
        for name in PIPELINES:
            declare(teams, kafka, namespace, name)
        wait_until(
            lambda: is_settled(teams, pods, namespace) and len(images(pods, "Pod")) == len(PIPELINES), "all deliver"
        )
        assert pods.act() == set()
        teams.operator.stop()
        teams.operator.environment["ACKWRIGHT_SPARK_IMAGE"] = "upgraded:2"
        teams.operator.start()
        wait_until(lambda: teams.answers("/readyz") == 200, "the operator with another image is ready")

        def upgraded(kind: str) -> set[str]:
            return {name for name, image in images(pods, kind).items() if image == "upgraded:2"}

        for replaced in range(limit, len(PIPELINES) + 1):
            wait_until(lambda r=replaced: len(upgraded("StatefulSet")) == r, f"{replaced} are replaced")  # type: ignore[misc]
            before = teams.operator.reconciles()
            wait_until(lambda b=before: teams.operator.reconciles() >= b + 9, "each was reconciled again")  # type: ignore[misc]
            assert len(upgraded("StatefulSet")) == replaced, "the others wait until the new driver is ready"
            assert len(images(pods, "Pod")) == len(PIPELINES), "they deliver with their present drivers"
            wait_until(lambda r=replaced: pods.act() is not None and len(upgraded("Pod")) == r, "new drivers")  # type: ignore[misc]
        wait_until(lambda: is_settled(teams, pods, namespace), "all deliver again")
        assert set(pods.concurrent_drivers.values()) == {1}
        assert set(pods.created.values()) == {2}, "each driver was replaced once"
