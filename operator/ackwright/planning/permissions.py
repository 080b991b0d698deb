"""The permissions that each role needs in Kafka, and which of them are missing. Pure.

The check, the documentation and the tests share this table. Sources: Kafka's security documentation ("Operations and
Resources on Protocols"), and the job with exactly these ACLs on real brokers (tests/integration/cli/test_check.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ackwright.planning.acls import CLUSTER, Answers, Binding, Kind, Need, Operation, Resource
from ackwright.planning.durability import INTERNAL
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.topics import DECISIONS_TOPIC, LANES_TOPIC, OWN_TOPICS


class Role(StrEnum):
    """The program that needs a permission. A pipeline has one set of credentials, so its principal needs those of all
    roles."""

    OPERATOR = "operator"
    JOB = "job"
    AUDIT = "audit"


@dataclass(frozen=True)
class Lacking:
    """Operations that are not granted, by resource."""

    missing: Mapping[Resource, tuple[Operation, ...]]
    unknown: Mapping[Resource, tuple[Operation, ...]]  # neither confirmed nor excluded


_IMPLYING = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}  # org.apache.kafka.metadata.authorizer.StandardAuthorizerData
_DESCRIBE = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
_MANAGE = (*_DESCRIBE, Operation.CREATE, Operation.ALTER, Operation.ALTER_CONFIGS)
_READ = (Operation.READ, Operation.DESCRIBE)
_WRITE = (Operation.WRITE, Operation.DESCRIBE)


def needs(plan: DeliveryPlan | None) -> dict[Role, tuple[Need, ...]]:
    """The permissions that each role needs; with plan None, those of the operator for any pipeline.

    They are the same under each guarantee. Unless positions are in the sink's store, a driver always joins the group
    and moves positions in transactions.
    """
    if plan is None:
        return {Role.OPERATOR: _operator(None)}
    return {Role.OPERATOR: _operator(plan), Role.JOB: _job(plan), Role.AUDIT: _audit(plan)}


def _operator(plan: DeliveryPlan | None) -> tuple[Need, ...]:
    declared = {t.name: t.deletion_policy for t in plan.topics} if plan else dict.fromkeys(OWN_TOPICS, "Retain")
    used = (*plan.source.topics, *plan.sink.topics) if plan else ()
    managed = [
        Need(
            _topic(name),
            (*_MANAGE, Operation.DELETE) if policy == "Delete" else _MANAGE,
            "creates it and keeps it as declared",
        )
        for name, policy in declared.items()
    ]
    others = [
        Need(_topic(name), _DESCRIBE, "checks whether it exists and how safe it is")
        for name in used
        if name not in declared
    ]
    group = (
        [Need(Resource(Kind.GROUP, plan.group), (Operation.DESCRIBE,), "checks whether a consumer subscribes in it")]
        if plan
        else []
    )
    return (
        Need(CLUSTER, _DESCRIBE, "reads the brokers' settings, groups, moves of replicas and ACLs"),
        Need(CLUSTER, (Operation.ALTER,), "moves replicas"),
        Need(CLUSTER, (Operation.ALTER_CONFIGS,), "throttles moves of replicas"),
        *managed,
        *dict.fromkeys(others),
        *(Need(_topic(name), _DESCRIBE, "checks that it survives what the pipeline survives") for name in INTERNAL),
        *group,
    )


def _job(plan: DeliveryPlan) -> tuple[Need, ...]:
    group = Need(Resource(Kind.GROUP, plan.group), _READ, "reads the source with consumers of this group")
    elsewhere = not plan.sink.in_kafka
    why = "reads the source" if elsewhere else "reads the source, and commits positions in it"
    return (
        *(Need(_topic(name), _READ, why) for name in plan.source.topics),
        *plan.sink.needs,
        *((group,) if elsewhere else ()),
    )


def _audit(plan: DeliveryPlan) -> tuple[Need, ...]:
    # Where the transform routes records is in no plan; it may be to any topic that the pipeline declares.
    routes = [topic.name for topic in plan.topics if topic.name not in OWN_TOPICS] if plan.sink.routed else []
    topics = dict.fromkeys((*plan.source.topics, *plan.sink.topics, *routes))
    reason = "reads the input and the output, and whether either is compacted"
    reads = tuple(Need(_topic(name), (*_READ, Operation.DESCRIBE_CONFIGS), reason) for name in topics)
    if not plan.sink.in_kafka:
        return reads
    # Offsets are described together with their topics, which on a cluster of the sink's own are no source topics.
    markers = [n.resource for n in plan.sink.needs if n.resource.prefixed and n.resource.kind is Kind.TOPIC]
    return (
        *reads,
        *(Need(resource, (Operation.DESCRIBE,), "reads the positions") for resource in markers),
        Need(_topic(LANES_TOPIC), _READ, "reads where each lane began"),
        *((Need(_topic(DECISIONS_TOPIC), _READ, "reads which batches were decided"),) if plan.state else ()),
        Need(Resource(Kind.GROUP, plan.group), (Operation.DESCRIBE,), "reads the positions"),
    )


def lacking(required: Iterable[Need], answers: Answers) -> Lacking:
    """The required operations that are not granted."""
    missing: dict[Resource, tuple[Operation, ...]] = {}
    unknown: dict[Resource, tuple[Operation, ...]] = {}
    for need in required:
        for operation in need.operations:
            granted = _granted(need.resource, operation, answers)
            if not granted:
                where = unknown if granted is None else missing
                where[need.resource] = (*where.get(need.resource, ()), operation)
    return Lacking(missing, unknown)


def grants(principal: str, operations: Mapping[Resource, tuple[Operation, ...]]) -> tuple[str, ...]:
    """Commands that grant the operations, one for each resource, without --bootstrap-server and --command-config."""
    return tuple(
        " ".join(
            (
                "kafka-acls --add --allow-principal",
                shlex.quote(principal),
                *(f"--operation {operation}" for operation in listed),
                f"--{resource.kind}"
                if resource.kind is Kind.CLUSTER
                else f"--{resource.kind} {shlex.quote(resource.name)}",
                *(("--resource-pattern-type prefixed",) if resource.prefixed else ()),
            )
        )
        for resource, listed in operations.items()
    )


def _granted(resource: Resource, operation: Operation, answers: Answers) -> bool | None:
    """Whether an operation is granted; None: not known."""
    if operation is Operation.CREATE and resource.kind is Kind.TOPIC and _granted(CLUSTER, operation, answers):
        return True
    if resource in answers.authorized:
        return operation in answers.authorized[resource]
    if resource in answers.refused and (operation is Operation.DESCRIBE or operation in _IMPLYING[Operation.DESCRIBE]):
        return False
    if answers.bindings is None:
        return None
    granted = _by_acls(resource, operation, answers.principal, answers.bindings)
    return _above_acls(resource, answers, answers.bindings) if granted is False else granted


def _by_acls(resource: Resource, operation: Operation, principal: str, bindings: tuple[Binding, ...]) -> bool | None:
    own = [b for b in bindings if b.principal in (principal, "User:*")]
    if any(not b.allow and b.operation in (operation, Operation.ALL) and _overlaps(b.resource, resource) for b in own):
        return False
    sufficient = {operation, Operation.ALL, *_IMPLYING.get(operation, ())}
    hosts = {b.host for b in own if b.allow and b.operation in sufficient and _covers(b.resource, resource)}
    return True if "*" in hosts else None if hosts else False


def _above_acls(resource: Resource, answers: Answers, bindings: tuple[Binding, ...]) -> bool | None:
    """Whether the principal has a permission that no ACL grants: as a super user, or on a resource without ACLs
    (allow.everyone.if.no.acl.found). Brokers disclose neither setting, but an operation that no ACL explains reveals
    one of them."""

    def has_acls(resource: Resource) -> bool:
        return any(_overlaps(b.resource, resource) for b in bindings)

    unexplained = [
        r for r, o in answers.authorized.items() if any(_by_acls(r, x, answers.principal, bindings) is False for x in o)
    ]
    if not unexplained:
        return False
    if any(has_acls(r) for r in unexplained):  # not a resource without ACLs: the principal is a super user
        return True
    return None if has_acls(resource) else True


def _covers(of_acl: Resource, resource: Resource) -> bool:
    """Whether an ACL's resource includes all of a resource."""
    if of_acl.kind is not resource.kind:
        return False
    if of_acl.prefixed:
        return resource.name.startswith(of_acl.name)
    return of_acl.name == "*" or (of_acl.name == resource.name and not resource.prefixed)


def _overlaps(of_acl: Resource, resource: Resource) -> bool:
    """Whether an ACL's resource includes some part of a resource."""
    part = of_acl.kind is resource.kind and resource.prefixed and of_acl.name.startswith(resource.name)
    return part or _covers(of_acl, resource)


def _topic(name: str) -> Resource:
    return Resource(Kind.TOPIC, name)
