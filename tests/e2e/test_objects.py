"""What becomes of an object's fields on a real API server: ours when it is made, ours when it is changed, and those of others."""

from __future__ import annotations

import sys
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

CONFIG = "/api/v1/namespaces/default/configmaps"
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "0d2c4d5e-0000-4000-8000-000000000001"}


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer(binaries.directory(lambda line: print(line, file=sys.stderr))) as found:
        yield found


@pytest.fixture
def kubernetes(api: ApiServer) -> Kubernetes:
    return connect(str(api.kubeconfig))


def config(name: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "ownerReferences": [OWNER], "labels": {"ours": "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def data(api: ApiServer, name: str) -> dict[str, str]:
    found: dict[str, str] = api.request("GET", f"{CONFIG}/{name}")[1]["data"]
    return found


def test_what_is_no_longer_said_goes_and_what_others_said_stays(api: ApiServer, kubernetes: Kubernetes) -> None:
    made = objects.apply(kubernetes, Apply(config("changed", kept="1", dropped="1"), "missing"))
    assert made["kind"] == "ConfigMap"
    code, _ = api.request("PATCH", f"{CONFIG}/changed?fieldManager=somebody", {"data": {"theirs": "1"}})
    assert code == 200
    for value in ("2", "3"):  # ours by apply only from the first time on
        objects.apply(kubernetes, Apply(config("changed", kept=value), "changed"))
        assert data(api, "changed") == {"kept": value, "theirs": "1"}
    owners = api.request("GET", f"{CONFIG}/changed")[1]["metadata"]["managedFields"]
    assert sorted((o["manager"], o["operation"]) for o in owners) == [("ackwright", "Apply"), ("somebody", "Update")]


def test_applied_as_it_was_created_it_would_keep_what_is_no_longer_said(api: ApiServer, kubernetes: Kubernetes) -> None:
    objects.apply(kubernetes, Apply(config("kept", kept="1", dropped="1"), "missing"))
    kubernetes.apply(config("kept", kept="2"))
    assert data(api, "kept") == {"kept": "2", "dropped": "1"}


def test_one_that_was_made_unnoticed_is_taken_for_what_it_is(api: ApiServer, kubernetes: Kubernetes) -> None:
    """The answer to its making was lost, and the watch has not told of it yet."""
    for value in ("1", "2"):
        objects.apply(kubernetes, Apply(config("again", kept=value), "missing"))
    assert data(api, "again") == {"kept": "2"}


def test_anothers_is_left_as_it_is(api: ApiServer, kubernetes: Kubernetes) -> None:
    code, before = api.request("POST", CONFIG, {"metadata": {"name": "theirs"}, "data": {"theirs": "1"}})
    assert code == 201
    with pytest.raises(AckwrightError) as caught:
        objects.apply(kubernetes, Apply(config("theirs", kept="1"), "missing"))
    assert caught.value.reason is Reason.NAME_TAKEN
    assert api.request("GET", f"{CONFIG}/theirs")[1] == before
