"""Pod templates in a real API server: it accepts each, returns pods as they are rendered, and keeps them restricted.

The namespace enforces the Pod Security Standard "restricted", so that the API server's own check decides.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ackwright.api.spec import parse
from ackwright.planning.plan import plan
from ackwright.planning.steps import contains
from ackwright.render.workload import objects
from ackwright.settings import OperatorSettings
from e2e.api_server import ApiServer
from e2e.crd_cases import edited
from lab import binaries
from unit.api.drawn_pods import pod_templates

CRD = Path(__file__).parents[2] / "crds" / "deliverypipelines.ackwright.io.yaml"
NAMESPACE = "restricted"
PIPELINES = f"/apis/ackwright.io/v1alpha1/namespaces/{NAMESPACE}/deliverypipelines"
ENFORCED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer(binaries.api_server(lambda line: print(line, file=sys.stderr))) as server:
        server.install(CRD)
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": ENFORCED}})
        priority = {"metadata": {"name": "jobs"}, "value": 1}
        assert server.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)[0] == 201
        yield server


def document(template: dict[str, Any]) -> dict[str, Any]:
    spark = {role: {"podTemplate": template} for role in ("driver", "executor")}
    return edited({"metadata.namespace": NAMESPACE, "spec.spark": spark})


def executor_pod(config: dict[str, Any]) -> dict[str, Any]:
    """An executor's pod with what Spark adds to its template, as far as the API server requires it."""
    pod: dict[str, Any] = json.loads(config["data"]["executor.yaml"])
    pod["metadata"]["name"] = "executor"
    pod["spec"]["containers"][0]["image"] = "x"
    return pod


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(template=pod_templates())
def test_every_template_is_accepted_and_comes_back_as_it_is_rendered(api: ApiServer, template: dict[str, Any]) -> None:
    code, stored = api.request("POST", f"{PIPELINES}?dryRun=All&fieldValidation=Strict", document(template))
    assert code == 201, stored["message"]
    pipeline = parse(document(template))
    assert parse(stored).spec == pipeline.spec, "defaults change nothing"
    rendered = objects(pipeline, plan(pipeline), "uid", OperatorSettings(), identity="uid")
    config = next(o for o in rendered if o["kind"] == "ConfigMap" and "executor.yaml" in o["data"])
    driver = rendered[-1]
    pod = driver["spec"]["template"]
    driver_pod = {"metadata": {**pod["metadata"], "name": "driver"}, "spec": pod["spec"]}
    for path, desired in (
        (f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets", driver),
        (f"/api/v1/namespaces/{NAMESPACE}/pods", {"apiVersion": "v1", "kind": "Pod", **driver_pod}),
        (f"/api/v1/namespaces/{NAMESPACE}/pods", executor_pod(config)),
    ):
        code, answer = api.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", desired)
        assert code == 201, answer["message"]
        if desired is driver:
            assert contains(answer["spec"], desired["spec"]), "the operator would apply it forever"


def test_control_the_namespace_refuses_a_pod_that_is_not_restricted(api: ApiServer) -> None:
    pipeline = parse(document({"sidecars": [{"name": "s", "image": "x"}]}))
    rendered = objects(pipeline, plan(pipeline), "uid", OperatorSettings(), identity="uid")
    pod = executor_pod(next(o for o in rendered if o["kind"] == "ConfigMap" and "executor.yaml" in o["data"]))
    del pod["spec"]["initContainers"][0]["securityContext"]
    code, answer = api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", pod)
    assert code == 403
    assert 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation' in answer["message"]
