"""The console's reads with a real API server, and with the rights of a user that may do no more than list and get."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackwright.clients.kubernetes import connect
from ackwright.console import cluster
from ackwright.console.cluster import ClusterSource
from ackwright.console.source import Source
from ackwright.console.views import Remedies, detail
from e2e.api_server import ApiServer
from lab import binaries
from unit.console import recorded
from waiting import wait_until

CRD = Path(__file__).parents[2] / "crds" / "deliverypipelines.ackwright.io.yaml"
NAMES = [n for n, row in recorded.PIPELINES.items() if row[4] not in ("invalid", "never-valid")]  # which it refuses
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/ops"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer(binaries.directory(lambda line: print(line, file=sys.stderr))) as server:
        server.install(CRD)
        for namespace in {recorded.PIPELINES[name][0] for name in NAMES}:
            server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for name in NAMES:
            create(server, recorded.resource(name))
        yield server


def create(api: ApiServer, resource: dict[str, Any]) -> None:
    meta, status = resource["metadata"], resource.get("status")
    place = f"/apis/ackwright.io/v1alpha1/namespaces/{meta['namespace']}/deliverypipelines"
    new = {**resource, "metadata": {"name": meta["name"], "namespace": meta["namespace"]}}
    code, stored = api.request("POST", place, new)
    assert code == 201, stored
    if status:
        code, answer = api.request("PUT", f"{place}/{meta['name']}/status", {**stored, "status": status})
        assert code == 200, answer


def user(api: ApiServer, name: str, *rules: tuple[str, str, list[str]]) -> Path:
    """The kubeconfig of an account with these rights in namespace ops: API group, resource, verbs."""
    api.request("POST", "/api/v1/namespaces/ops/serviceaccounts", {"metadata": {"name": name}})
    code, answer = api.request("POST", f"/api/v1/namespaces/ops/serviceaccounts/{name}/token", {"spec": {}})
    assert code == 201, answer
    role = {
        "metadata": {"name": name},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": verbs} for group, resource, verbs in rules],
    }
    assert api.request("POST", f"{RBAC}/roles", role)[0] == 201
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "ops"}],
    }
    assert api.request("POST", f"{RBAC}/rolebindings", binding)[0] == 201
    config = json.loads(api.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    file = api.directory / f"{name}.kubeconfig"
    file.write_text(json.dumps(config))
    return file


def names(source: Source) -> set[str]:
    return {r["metadata"]["name"] for r in source.pipelines().resources}


def test_an_administrator_sees_all_namespaces_and_changes_at_once(api: ApiServer) -> None:
    source = ClusterSource(connect(str(api.kubeconfig)), None, "all namespaces")
    assert names(source) == set(NAMES)
    source.watch()
    added = recorded.resource("stock")
    added["metadata"]["name"] = "added"
    create(api, added)
    wait_until(lambda: "added" in names(source), "the new pipeline is listed")
    place = "/apis/ackwright.io/v1alpha1/namespaces/shop/deliverypipelines/added"
    assert api.request("DELETE", place)[0] == 200
    wait_until(lambda: "added" not in names(source), "the deleted pipeline is not listed")
    assert source.pipelines().problem is None


def test_details_are_those_that_the_api_server_has(api: ApiServer) -> None:
    event = {
        "metadata": {"generateName": "delayed-flights."},
        "involvedObject": {"kind": "DeliveryPipeline", "name": "delayed-flights", "namespace": "ops"},
        "reason": "Delivering",
        "message": "records are delivered",
        "type": "Normal",
        "lastTimestamp": recorded.AT,
    }
    assert api.request("POST", "/api/v1/namespaces/ops/events", event)[0] == 201
    read = ClusterSource(connect(str(api.kubeconfig)), "ops", "ops").details("ops", "delayed-flights")
    assert read
    shown = detail(*read, Remedies())
    assert [e["message"] for e in shown["events"]] == ["records are delivered"]
    assert shown["row"]["health"] == "ready"
    assert shown["chain"]["links"]
    # There is no such pod here: the rest is shown, and the reason for what is missing.
    assert [line.partition(":")[0] for line in shown["missing"]] == ["the driver's progress"]


def test_a_user_that_may_only_list_and_get_pipelines(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_RELIST_S", 0.2)
    kubeconfig = user(api, "reader", ("ackwright.io", "deliverypipelines", ["get", "list"]))
    source = ClusterSource(connect(str(kubeconfig)), "ops", "ops")
    expected = {n for n in NAMES if recorded.PIPELINES[n][0] == "ops"}
    assert names(source) == expected
    source.watch()
    added = recorded.resource("new-arrivals")
    added["metadata"]["name"] = "later"
    create(api, added)
    wait_until(lambda: names(source) == {*expected, "later"}, "the next list has the new pipeline")
    assert source.pipelines().problem is None
    read = source.details("ops", "delayed-flights")
    assert read
    assert [line.partition(":")[0] for line in read[1].missing] == ["pods", "Events", "the driver's progress"]
    assert all("forbidden" in line for line in read[1].missing)
