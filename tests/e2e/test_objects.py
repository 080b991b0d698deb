"""The fields of an object on a real API server: those that the operator creates and changes, and those of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ackwright.apply import objects
from ackwright.clients.kubernetes import Kubernetes, connect
from ackwright.errors import AckwrightError
from ackwright.planning.steps import Apply
from ackwright_stream.jobspec import Reason
from e2e.api_server import ApiServer
from lab import binaries
from lab.cluster import print_progress

CONFIG = "/api/v1/namespaces/default/configmaps"
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "0d2c4d5e-0000-4000-8000-000000000001"}


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer(binaries.directory(print_progress)) as server:
        yield server


@pytest.fixture
def kubernetes(api: ApiServer) -> Kubernetes:
    return connect(str(api.kubeconfig))


def config(name: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "ownerReferences": [OWNER], "labels": {"ours": "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def data(api: ApiServer, name: str) -> dict[str, str]:
    stored: dict[str, str] = api.request("GET", f"{CONFIG}/{name}")[1]["data"]
    return stored


def test_removed_fields_are_deleted_and_fields_of_others_are_kept(api: ApiServer, kubernetes: Kubernetes) -> None:
    created = objects.apply(kubernetes, Apply(config("changed", value="1", dropped="1"), "missing"))
    assert created["kind"] == "ConfigMap"
    code, _ = api.request("PATCH", f"{CONFIG}/changed?fieldManager=somebody", {"data": {"theirs": "1"}})
    assert code == 200
    for value in ("2", "3"):  # the first of these applies takes over the fields that were created
        objects.apply(kubernetes, Apply(config("changed", value=value), "changed"))
        assert data(api, "changed") == {"value": value, "theirs": "1"}
    owners = api.request("GET", f"{CONFIG}/changed")[1]["metadata"]["managedFields"]
    assert sorted((o["manager"], o["operation"]) for o in owners) == [("ackwright", "Apply"), ("somebody", "Update")]


def test_a_plain_apply_after_a_create_would_keep_removed_fields(api: ApiServer, kubernetes: Kubernetes) -> None:
    """The control of the test above."""
    objects.apply(kubernetes, Apply(config("value", value="1", dropped="1"), "missing"))
    kubernetes.apply(config("value", value="2"))
    assert data(api, "value") == {"value": "2", "dropped": "1"}


def test_an_object_that_exists_unexpectedly_is_updated(api: ApiServer, kubernetes: Kubernetes) -> None:
    """The response to its creation was lost, and the watch has not delivered the event yet."""
    for value in ("1", "2"):
        objects.apply(kubernetes, Apply(config("again", value=value), "missing"))
    assert data(api, "again") == {"value": "2"}


def test_an_object_of_another_owner_is_not_changed(api: ApiServer, kubernetes: Kubernetes) -> None:
    code, before = api.request("POST", CONFIG, {"metadata": {"name": "theirs"}, "data": {"theirs": "1"}})
    assert code == 201
    with pytest.raises(AckwrightError) as caught:
        objects.apply(kubernetes, Apply(config("theirs", value="1"), "missing"))
    assert caught.value.reason is Reason.NAME_TAKEN
    assert api.request("GET", f"{CONFIG}/theirs")[1] == before
