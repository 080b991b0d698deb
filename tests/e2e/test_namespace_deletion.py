"""Namespaces are deleted while the operator runs, on a real API server and a real broker, with the chart's permissions.

No controller runs there: the test deletes what is in a namespace, and reports what is left, as Kubernetes' namespace
controller does. `test_lost_namespaces.py` has a cluster with that controller.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ackwright.controller import CHILDREN
from ackwright.local.kafka import EmbeddedKafka
from ackwright.render.names import FINALIZER
from ackwright_stream.admin_client import AdminClient
from e2e.api_server import ApiServer
from e2e.operator_process import kubeconfig_of
from e2e.teams import CRD, OPERATOR, SYSTEM, Teams, create_driver, running
from lab import binaries
from lab.cluster import print_progress
from waiting import wait_until

_CONDITIONS = (
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
)


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer(binaries.api_server(print_progress)) as server:
        server.install(CRD)
        yield server


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1) as cluster:
        yield cluster


def declare(teams: Teams, kafka: EmbeddedKafka, namespace: str) -> None:
    """A pipeline that deletes its topics, of which another namespace has none; with a driver."""
    topics = [f"{namespace}-in", f"{namespace}-out"]
    common = {"partitions": 1, "replicationFactor": 1, "deletionPolicy": "Delete"}
    teams.declare(
        namespace,
        "p",
        kafka.bootstrap_servers,
        tolerate={"brokerFailures": 0},
        source={"topics": topics[:1]},
        sink={"kafka": {"topic": topics[1]}},
        topics=[{"name": name, **common} for name in topics],
    )
    wait_until(lambda: topics_of(kafka, namespace) == set(topics), "the operator has created the topics")
    assert teams.request("GET", teams.path(namespace, "p"))["metadata"]["finalizers"] == [FINALIZER]
    create_driver(teams, namespace, "p", "127.0.0.1")


def topics_of(kafka: EmbeddedKafka, namespace: str) -> set[str]:
    names = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=10).topics
    return {name for name in names if name.startswith(f"{namespace}-")}


def delete_namespace(teams: Teams, namespace: str) -> None:
    """Deletes a namespace and everything in it except for pods, as its controller does if it begins with these."""
    teams.request("DELETE", f"/api/v1/namespaces/{namespace}")
    for api_version, kind in CHILDREN:
        if kind != "Pod":
            prefix = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            teams.request("DELETE", f"{prefix}/namespaces/{namespace}/{kind.lower()}s")
    teams.request("DELETE", teams.path(namespace).rstrip("/"))


def report_left(teams: Teams, namespace: str, left: Sequence[str]) -> None:
    """Reports what is left in a namespace: plural.group of each kind."""
    reported = teams.request("GET", f"/api/v1/namespaces/{namespace}")
    message = f"Some resources are remaining: {', '.join(f'{kind} has 1 resource instances' for kind in left)}"
    statuses = {**dict.fromkeys(_CONDITIONS, "False"), "NamespaceContentRemaining": "True" if left else "False"}
    reported["status"]["conditions"] = [
        {"type": kind, "status": status, "reason": "Reported", "message": message if status == "True" else ""}
        for kind, status in statuses.items()
    ]
    teams.request("PUT", f"/api/v1/namespaces/{namespace}/status", reported)


def is_deleted(teams: Teams, namespace: str) -> bool:
    return teams.api.request("GET", teams.path(namespace, "p"))[0] == 404


def is_lost(teams: Teams, namespace: str) -> bool:
    return teams.metric("ackwright_namespace_lost")[f'namespace="{namespace}"'] == 1.0


def end_driver(teams: Teams, namespace: str) -> None:
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    teams.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/p-0", options)


def test_a_namespace_that_is_deleted_takes_its_pipelines_and_their_topics_along(
    api: ApiServer, kafka: EmbeddedKafka
) -> None:
    """The operator's Role disappears while a driver still runs; topics are deleted once that has ended."""
    teams = Teams(api, ["going", "staying"])
    with running(teams):
        declare(teams, kafka, "going")
        declare(teams, kafka, "staying")
        delete_namespace(teams, "going")
        report_left(teams, "going", ["deliverypipelines.ackwright.io", "pods."])
        wait_until(lambda: is_lost(teams, "going"), "the operator has lost the namespace")
        before = teams.operator.reconciles()
        wait_until(lambda: teams.operator.reconciles() > before + 3, "the deletion is tried again")
        assert not is_deleted(teams, "going")
        assert topics_of(kafka, "going") == {"going-in", "going-out"}, "a driver may still write"
        end_driver(teams, "going")
        report_left(teams, "going", ["deliverypipelines.ackwright.io"])
        wait_until(lambda: is_deleted(teams, "going"), "the pipeline is deleted")
        assert topics_of(kafka, "going") == set()
        teams.reconcile_edit("staying", "p", 2)
        assert topics_of(kafka, "staying") == {"staying-in", "staying-out"}


def test_a_namespace_whose_pods_are_deleted_first_takes_its_pipelines_along(
    api: ApiServer, kafka: EmbeddedKafka
) -> None:
    """As since Kubernetes 1.33. Watches are authorized when they begin, so they still report what is deleted."""
    teams = Teams(api, ["ordered"])
    with running(teams):
        declare(teams, kafka, "ordered")
        end_driver(teams, "ordered")
        delete_namespace(teams, "ordered")
        report_left(teams, "ordered", ["deliverypipelines.ackwright.io"])
        wait_until(lambda: is_deleted(teams, "ordered"), "the pipeline is deleted")
        assert topics_of(kafka, "ordered") == set()


def test_a_pipeline_that_is_deleted_after_the_operator_has_lost_its_role_keeps_its_topics(
    api: ApiServer, kafka: EmbeddedKafka
) -> None:
    """The namespace stays, and so may the driver: Kubernetes removes it after the pipeline."""
    teams = Teams(api, ["unauthorized"], {"settings": {"SETTLE": "5"}})
    with running(teams):
        declare(teams, kafka, "unauthorized")
        for plural in ("roles", "rolebindings"):
            path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/unauthorized/{plural}/{OPERATOR}"
            teams.request("DELETE", path)
        wait_until(lambda: is_lost(teams, "unauthorized"), "the operator has lost the namespace")
        teams.request("DELETE", teams.path("unauthorized", "p"))
        wait_until(lambda: is_deleted(teams, "unauthorized"), "the pipeline is deleted")
        assert topics_of(kafka, "unauthorized") == {"unauthorized-in", "unauthorized-out"}
        events = teams.request("GET", f"/api/v1/namespaces/{SYSTEM}/events")["items"]
        [message] = [e["message"] for e in events if e["reason"] == "TopicsNotDeleted"]
        assert message.startswith("unauthorized/p: topics not deleted within 5 s: unauthorized-in, unauthorized-out: ")


def test_control_without_the_permission_the_pipeline_waits_for_a_person(api: ApiServer, kafka: EmbeddedKafka) -> None:
    teams = Teams(api, ["stuck"], {"rbac": {"deletions": False}, "settings": {"SETTLE": "1"}})
    with running(teams):
        declare(teams, kafka, "stuck")
        end_driver(teams, "stuck")
        delete_namespace(teams, "stuck")
        wait_until(lambda: is_lost(teams, "stuck"), "the operator has lost the namespace")
        assert not is_deleted(teams, "stuck")
        teams.request("PATCH", teams.path("stuck", "p"), {"metadata": {"finalizers": None}})
        assert is_deleted(teams, "stuck")


def test_the_operator_changes_pipelines_only_in_the_namespaces_that_it_watches(api: ApiServer) -> None:
    """Although the permission with which it completes deletions is for all namespaces."""
    teams = Teams(api, ["watched", "unwatched"])
    teams.declare("watched", "p")
    teams.declare("unwatched", "p")
    Teams(api, ["watched"])  # the release now watches this namespace only
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/unwatched/rolebindings/{OPERATOR}"
    teams.request("DELETE", roles)
    kubeconfig = json.loads(kubeconfig_of(api, SYSTEM, OPERATOR).read_text())
    token = kubeconfig["users"][0]["user"]["token"]
    change = {"metadata": {"annotations": {"changed": "by-the-operator"}}}

    def answer(namespace: str) -> tuple[int, Any]:
        return api.request("PATCH", teams.path(namespace, "p"), change, token)

    refusal = "the operator changes pipelines only in the namespaces that it watches"
    wait_until(lambda: refusal in str(answer("unwatched")[1]), "the change is refused")
    assert answer("watched")[0] == 200
    assert api.request("GET", teams.path("unwatched"), None, token)[0] == 200
    assert api.request("GET", "/api/v1/namespaces/watched", None, token)[0] == 200
    for path in ("/api/v1/namespaces", "/api/v1/namespaces/unwatched", "/api/v1/namespaces/unwatched/pods"):
        assert api.request("GET", path, None, token)[0] == 403
