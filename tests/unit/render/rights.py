"""A check of RBAC rules for dangerous permissions, written from Kubernetes' list of privilege escalations.

https://kubernetes.io/docs/concepts/security/rbac-good-practices/#privilege-escalation-risks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

Rule = Mapping[str, Sequence[str]]

_VERBS = {"*", "escalate", "bind", "impersonate", "approve", "sign"}
_RESOURCES = {
    *(
        "*",
        "*/*",
        "pods/*",
        "pods/exec",
        "pods/attach",
        "pods/portforward",
        "pods/ephemeralcontainers",
        "pods/proxy",
        "services/proxy",
    ),
    *(
        "nodes/proxy",
        "serviceaccounts/token",
        "certificatesigningrequests",
        "clusterroles",
        "clusterrolebindings",
        "namespaces",
    ),
    *("validatingwebhookconfigurations", "mutatingwebhookconfigurations", "persistentvolumes"),
}
_READABLE = {"namespaces"}
_OF_SECRETS = {"get"}  # by name: list and watch return the content of all


def dangers(rules: Iterable[Rule]) -> list[str]:
    """The dangerous parts of the rules."""
    return [danger for rule in rules for danger in _of_rule(rule)]


def _of_rule(rule: Rule) -> Iterator[str]:
    verbs, resources, groups = (set(rule.get(k, ())) for k in ("verbs", "resources", "apiGroups"))
    yield from (f"verb {v}" for v in sorted(verbs & _VERBS))
    if verbs <= {"get"}:
        resources -= _READABLE
    yield from (f"resource {r}" for r in sorted(resources & _RESOURCES))
    if "*" in groups:
        yield "group *"
    if {r.partition("/")[0] for r in resources} & {"secrets"} and not verbs <= _OF_SECRETS:
        yield f"secrets: {', '.join(sorted(verbs - _OF_SECRETS))}"
    if rule.get("nonResourceURLs"):
        yield "nonResourceURLs"


def flat(rules: Iterable[Rule]) -> set[tuple[str, str, str, str]]:
    """Each permission as (group, resource, verb, name); an empty name is any name."""
    return {
        (group, resource, verb, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ("",))
    }
