"""The rights that the chart gives, rule by rule: the operator's as a golden value, and of all of them what none may hold."""

from __future__ import annotations

from typing import Any

import pytest

from chart.rendered import ALL, documents, objects
from unit.render.pipelines import EXAMPLES, rendered
from unit.render.rights import dangers, flat

OPERATOR = "ackwright-operator"
KEPT = ["get", "list", "watch", "create", "patch", "delete"]
ANY: dict[str, Any] = {"watchAllNamespaces": True, **ALL}
# A right more or less is a decision, and docs/threat-model.md tells what it means.
RULES: list[dict[str, list[str]]] = [
    {"apiGroups": ["ackwright.io"], "resources": ["deliverypipelines"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": ["ackwright.io"], "resources": ["deliverypipelines/status"], "verbs": ["get", "update", "patch"]},
    {"apiGroups": ["ackwright.io"], "resources": ["deliverypipelines/finalizers"], "verbs": ["update"]},
    {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": KEPT},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": KEPT},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": KEPT},
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": KEPT},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": KEPT},
    {"apiGroups": [""], "resources": ["configmaps", "persistentvolumeclaims"], "verbs": [*KEPT, "deletecollection"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*KEPT, "deletecollection"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "deletecollection"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "list", "watch"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "patch"],
        "resourceNames": [OPERATOR],
    },
]


@pytest.mark.parametrize(("values", "kind"), [({}, "Role"), (ANY, "ClusterRole")])
def test_the_operator_has_exactly_these_rights(values: dict[str, Any], kind: str) -> None:
    assert objects(values)[kind, OPERATOR]["rules"] == RULES


@pytest.mark.parametrize(
    "values", [{}, ALL, ANY, {"watchNamespaces": ["a", "b"]}], ids=["default", "all", "any", "two"]
)
def test_no_role_holds_what_leads_to_more_rights(values: dict[str, Any]) -> None:
    roles = [o for o in documents(values) if o["kind"] in ("Role", "ClusterRole")]
    assert roles
    assert {o["metadata"]["name"]: dangers(o["rules"]) for o in roles if dangers(o["rules"])} == {}


def test_the_operator_has_what_it_grants_to_drivers() -> None:
    """Nobody may grant what he does not have, unless he may escalate; so this is what it takes to do without."""
    granted = flat(rendered(EXAMPLES[0])["Role"]["rules"])
    assert granted <= flat(RULES)
    assert not granted <= flat(r for r in RULES if r["resources"] != ["services"]), "the control"


@pytest.mark.parametrize("values", [{}, ANY], ids=["default", "any"])
def test_rights_are_the_operators_alone(values: dict[str, Any]) -> None:
    """Nothing is bound to a group, to everybody, or to an account that other pods have."""
    bindings = [o for o in documents(values) if o["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert {(s["kind"], s["name"]) for o in bindings for s in o["subjects"]} == {("ServiceAccount", OPERATOR)}
