"""The exact permissions of a driver in Kubernetes, and a control of the check applied to the operator's Role."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ackwright.errors import InvalidSpec
from ackwright.planning.plan import plan
from unit.render.pipelines import EXAMPLES, MINIMAL, declared, pipelines, rendered
from unit.render.rights import dangers, flat

# The golden value. A change of it is a decision; docs/threat-model.md explains the consequences.
DRIVER = {
    *(("", "pods", verb, "") for verb in ("create", "delete", "deletecollection", "get", "list", "patch", "watch")),
    *(
        ("", kind, verb, "")
        for kind in ("configmaps", "persistentvolumeclaims", "services")
        for verb in ("deletecollection", "list")
    ),
}


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(pipelines)
def test_a_driver_has_exactly_these_permissions_under_every_spec(pipeline: Any) -> None:
    by_kind = rendered(pipeline)
    assert flat(by_kind["Role"]["rules"]) == DRIVER
    assert dangers(by_kind["Role"]["rules"]) == []
    account = {
        "kind": "ServiceAccount",
        "name": f"{pipeline.metadata.name}-driver",
        "namespace": pipeline.metadata.namespace,
    }
    assert by_kind["RoleBinding"]["subjects"] == [account]
    assert by_kind["RoleBinding"]["roleRef"]["kind"] == "Role"


@pytest.mark.parametrize(
    "spark",
    [
        {"serviceAccountName": "admin"},
        {"driver": {"serviceAccountName": "admin"}},
        {"executor": {"serviceAccount": "admin"}},
        {"podTemplate": {"spec": {"serviceAccountName": "admin"}}},
        {"conf": {"spark.kubernetes.authenticate.driver.serviceAccountName": "admin"}},
        {"conf": {"spark.kubernetes.authenticate.executor.serviceAccountName": "admin"}},
        {"conf": {"spark.kubernetes.authenticate.serviceAccountName": "admin"}},
        {"conf": {"spark.kubernetes.executor.podTemplateFile": "/x"}},
    ],
    ids=str,
)
def test_a_spec_cannot_choose_a_service_account(spark: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.spark"):
        plan(declared(MINIMAL | {"spark": spark}))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"verbs": ["get", "*"]}, ["verb *"]),
        ({"resources": ["*"]}, ["resource *"]),
        ({"apiGroups": ["*"]}, ["group *"]),
        ({"resources": ["secrets"], "verbs": ["get", "list"]}, ["secrets: list"]),
        ({"resources": ["secrets"], "verbs": ["watch"]}, ["secrets: watch"]),
        ({"resources": ["secrets"], "verbs": ["get", "create"]}, ["secrets: create"]),
        ({"resources": ["pods/exec"], "verbs": ["create"]}, ["resource pods/exec"]),
        ({"resources": ["serviceaccounts/token"], "verbs": ["create"]}, ["resource serviceaccounts/token"]),
        (
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"]},
            ["verb escalate"],
        ),
        ({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["bind"]}, ["verb bind"]),
        ({"resources": ["users"], "verbs": ["impersonate"]}, ["verb impersonate"]),
        ({"nonResourceURLs": ["/logs"]}, ["nonResourceURLs"]),
        ({"resources": ["secrets"], "verbs": ["get"]}, []),
    ],
)
def test_control_the_permission_check_detects_each_dangerous_rule(rule: dict[str, Any], expected: list[str]) -> None:
    planted = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]} | rule
    assert dangers([*rendered(EXAMPLES[0])["Role"]["rules"], planted]) == expected
