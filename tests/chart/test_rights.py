"""The permissions of the chart's roles: the operator's exactly, and none that allows an escalation in any role."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.shards import LEASE_NAMES
from chart.rendered import ALL, NAMESPACE, documents, objects
from unit.render.pipelines import EXAMPLES, rendered
from unit.render.rights import dangers, flat

OPERATOR = "ackwright-operator"
DELETIONS = f"ackwright-deletions-{NAMESPACE}"
MANAGE = ["get", "list", "watch", "create", "patch", "delete"]
ALL_NAMESPACES: dict[str, Any] = {"watchAllNamespaces": True, **ALL}
EVENTS: dict[str, list[str]] = {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}
# A change of these is a decision; docs/threat-model.md describes what each permission means.
RULES: list[dict[str, list[str]]] = [
    {"apiGroups": ["ackwright.io"], "resources": ["deliverypipelines"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": ["ackwright.io"], "resources": ["deliverypipelines/status"], "verbs": ["get", "update", "patch"]},
    {"apiGroups": ["ackwright.io"], "resources": ["deliverypipelines/finalizers"], "verbs": ["update"]},
    {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": MANAGE},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": MANAGE},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": MANAGE},
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": MANAGE},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": MANAGE},
    {"apiGroups": [""], "resources": ["configmaps", "persistentvolumeclaims"], "verbs": [*MANAGE, "deletecollection"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*MANAGE, "deletecollection"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "deletecollection"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    EVENTS,
]
# In the release's namespace, or with watchAllNamespaces.
OWN_RULES: list[dict[str, list[str]]] = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "list", "watch"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "patch"],
        "resourceNames": list(LEASE_NAMES),
    },
]


@pytest.mark.parametrize(("values", "kind"), [({}, "Role"), (ALL_NAMESPACES, "ClusterRole")])
def test_the_operator_has_exactly_these_permissions(values: dict[str, Any], kind: str) -> None:
    assert objects(values)[kind, OPERATOR]["rules"] == [*RULES, *OWN_RULES]


def test_in_the_namespaces_of_teams_and_in_its_own_the_operator_has_separate_permissions() -> None:
    roles = [o for o in documents({"watchNamespaces": ["a", "b"]}) if o["kind"] == "Role"]
    rules = {o["metadata"]["namespace"]: o["rules"] for o in roles if o["metadata"]["name"] == OPERATOR}
    assert rules == {"a": RULES, "b": RULES, NAMESPACE: [EVENTS, *OWN_RULES]}


def test_in_all_namespaces_the_operator_may_only_complete_deletions() -> None:
    rules = [
        {"apiGroups": ["ackwright.io"], "resources": ["deliverypipelines"], "verbs": ["list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["a", "b"], "verbs": ["get"]},
    ]
    roles = objects({"watchNamespaces": ["b", "a"]})
    assert roles["ClusterRole", DELETIONS]["rules"] == rules
    policy = roles["ValidatingAdmissionPolicy", DELETIONS]["spec"]["matchConstraints"]["namespaceSelector"]
    [expression] = policy["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("NotIn", ["a", "b"])


@pytest.mark.parametrize(
    "values",
    [{}, {"watchAllNamespaces": True}, {"watchNamespaces": ["a"], "rbac": {"deletions": False}}],
    ids=["own", "all", "off"],
)
def test_without_a_need_the_operator_has_no_such_permission(values: dict[str, Any]) -> None:
    assert not [o for o in documents(values) if o["metadata"]["name"] == DELETIONS]


@pytest.mark.parametrize(
    "values", [{}, ALL, ALL_NAMESPACES, {"watchNamespaces": ["a", "b"]}], ids=["default", "all", "any", "two"]
)
def test_no_role_allows_an_escalation(values: dict[str, Any]) -> None:
    roles = [o for o in documents(values) if o["kind"] in ("Role", "ClusterRole")]
    assert roles
    assert {o["metadata"]["name"]: dangers(o["rules"]) for o in roles if dangers(o["rules"])} == {}


def test_the_operator_has_the_permissions_that_it_grants_to_drivers() -> None:
    """Kubernetes forbids granting permissions that the grantor lacks, except with the verb `escalate`."""
    granted = flat(rendered(EXAMPLES[0])["Role"]["rules"])
    assert granted <= flat(RULES)
    assert not granted <= flat(r for r in RULES if r["resources"] != ["services"]), "the control"


@pytest.mark.parametrize("values", [{}, ALL_NAMESPACES], ids=["default", "any"])
def test_permissions_are_bound_only_to_the_operators_account(values: dict[str, Any]) -> None:
    """No role is bound to a group, to all users, or to the account of other pods."""
    bindings = [o for o in documents(values) if o["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert {(s["kind"], s["name"]) for o in bindings for s in o["subjects"]} == {("ServiceAccount", OPERATOR)}
