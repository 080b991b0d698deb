"""The permissions that each role needs, and which are missing: from authorized operations, else ACLs, else unknown."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackwright.planning.acls import CLUSTER, Answers, Binding, Kind, Need, Operation, Resource
from ackwright.planning.permissions import Role, grants, lacking, needs
from ackwright.planning.plan import DeliveryPlan, load
from ackwright.sinks.kafka import KafkaSink
from ackwright_stream.jobspec import Guarantee
from unit.planning.durable_topics import plan_for

ROOT = Path(__file__).parents[3]
FLIGHTS = Resource(Kind.TOPIC, "flights")
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def example() -> DeliveryPlan:
    return load(ROOT / "examples" / "delayed-flights-exactly-once.yaml")[1]


def acl(
    resource: Resource, operation: Operation, *, principal: str = "User:ann", host: str = "*", allow: bool = True
) -> Binding:
    return Binding(principal, host, resource, operation, allow)


def granted(resource: Resource, operation: Operation, **answers: Any) -> bool | None:
    """Whether the operation is permitted; None if that is unknown."""
    result = lacking([Need(resource, (operation,), "")], Answers("User:ann", **answers))
    return None if result.unknown else not result.missing


def test_the_documented_table_is_the_one_that_is_checked() -> None:
    required = needs(example())
    derived = {
        (
            role.value,
            f"{need.resource.kind} {need.resource.name}{'*' if need.resource.prefixed else ''}",
            ", ".join(need.operations),
            need.why,
        )
        for role, all_of_it in required.items()
        for need in all_of_it
    }
    rows = re.findall(
        r"^\| (operator|job|audit) \| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$",
        (ROOT / "docs" / "check.md").read_text(),
        re.MULTILINE,
    )
    assert set(rows) == derived


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_the_job_needs_the_same_permissions_under_each_guarantee(guarantee: Guarantee) -> None:
    assert needs(plan_for(guarantee))[Role.JOB] == needs(plan_for())[Role.JOB]


def test_lane_transactional_ids_of_a_pipeline_with_a_longer_name_are_not_covered() -> None:
    ids = [n.resource for n in needs(example())[Role.JOB] if n.resource.kind is Kind.TRANSACTIONAL_ID]
    group = example().group
    assert ids == [Resource(Kind.TRANSACTIONAL_ID, group), Resource(Kind.TRANSACTIONAL_ID, f"{group}/", prefixed=True)]


def test_a_routed_sink_needs_permissions_only_on_the_source_and_the_lanes_topic() -> None:
    routed = replace(plan_for(), sink=KafkaSink().plan(Guarantee.EXACTLY_ONCE, "g", 1))
    topics = {n.resource.name for n in needs(routed)[Role.JOB] if n.resource.kind is Kind.TOPIC}
    assert topics == {"in", "ackwright-lanes"}
    assert set(needs(None)) == {Role.OPERATOR}


def test_the_audit_of_a_routed_sink_reads_every_declared_topic() -> None:
    declared = replace(example(), sink=KafkaSink().plan(Guarantee.EXACTLY_ONCE, "g", 1))
    topics = {n.resource.name for n in needs(declared)[Role.AUDIT] if n.resource.kind is Kind.TOPIC}
    assert topics == {t.name for t in declared.topics}
    assert {"flights", "delayed-flights-exactly-once", "ackwright-lanes"} <= topics


def test_authorized_operations_from_the_brokers_take_precedence_over_acls() -> None:
    authorized = {FLIGHTS: frozenset({DESCRIBE})}
    assert granted(FLIGHTS, DESCRIBE, authorized=authorized) is True
    assert granted(FLIGHTS, READ, authorized=authorized, bindings=(acl(FLIGHTS, READ),)) is False


def test_a_principal_without_describe_lacks_every_operation_that_implies_it() -> None:
    refused = frozenset({FLIGHTS})
    assert granted(FLIGHTS, READ, refused=refused) is False
    assert granted(FLIGHTS, Operation.ALTER_CONFIGS, refused=refused) is None
    assert (
        granted(FLIGHTS, Operation.ALTER_CONFIGS, refused=refused, bindings=(acl(FLIGHTS, Operation.ALTER_CONFIGS),))
        is True
    )


def test_create_on_the_cluster_implies_create_of_a_topic() -> None:
    assert (
        granted(
            FLIGHTS,
            Operation.CREATE,
            authorized={CLUSTER: frozenset({Operation.CREATE}), FLIGHTS: frozenset({DESCRIBE})},
        )
        is True
    )


ID = Resource(Kind.TRANSACTIONAL_ID, "ops.p/", prefixed=True)


def of_ids(name: str, prefixed: bool = False) -> Resource:
    return Resource(Kind.TRANSACTIONAL_ID, name, prefixed)


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ((), False),
        ((acl(of_ids("ops.p/", True), WRITE),), True),
        ((acl(of_ids("ops.", True), Operation.ALL),), True),
        ((acl(of_ids("*"), WRITE, principal="User:*"),), True),
        ((acl(of_ids("ops.p/"), WRITE),), False),
        ((acl(of_ids("ops.p/flights-", True), WRITE),), False),
        ((acl(of_ids("ops.", True), WRITE, principal="User:bob"),), False),
        ((acl(of_ids("ops.", True), WRITE, host="10.0.0.1"),), None),
        ((acl(of_ids("ops.", True), DESCRIBE),), False),
        ((acl(of_ids("ops.", True), WRITE), acl(of_ids("ops.p/flights-0"), WRITE, allow=False)), False),
        ((acl(Resource(Kind.GROUP, "ops.", True), WRITE),), False),
    ],
)
def test_transactional_ids_are_judged_by_acls(bindings: tuple[Binding, ...], expected: bool | None) -> None:
    assert granted(ID, WRITE, bindings=bindings) is expected
    assert granted(ID, WRITE, bindings=None) is None


def test_write_implies_describe() -> None:
    assert granted(ID, DESCRIBE, bindings=(acl(of_ids("ops.p/", True), WRITE),)) is True


def test_an_operation_that_no_acl_explains_implies_a_super_user_or_an_open_resource() -> None:
    authorized = {FLIGHTS: frozenset({READ})}
    assert granted(ID, WRITE, authorized=authorized, bindings=()) is True
    ours_elsewhere = acl(of_ids("*"), WRITE, principal="User:bob")
    assert granted(ID, WRITE, authorized=authorized, bindings=(ours_elsewhere,)) is None
    assert (
        granted(ID, WRITE, authorized=authorized, bindings=(ours_elsewhere, acl(FLIGHTS, READ, principal="User:bob")))
        is True
    )
    assert granted(ID, WRITE, authorized=authorized, bindings=(acl(FLIGHTS, READ),)) is False


def test_grants_are_commands_to_copy() -> None:
    assert grants("User:ann", {FLIGHTS: (READ, DESCRIBE), CLUSTER: (Operation.ALTER,), ID: (WRITE,)}) == (
        "kafka-acls --add --allow-principal User:ann --operation Read --operation Describe --topic flights",
        "kafka-acls --add --allow-principal User:ann --operation Alter --cluster",
        "kafka-acls --add --allow-principal User:ann --operation Write --transactional-id ops.p/ "
        "--resource-pattern-type prefixed",
    )
    (quoted,) = grants("User:ann b", {Resource(Kind.GROUP, "a;b"): (READ,)})
    assert "'User:ann b'" in quoted
    assert "'a;b'" in quoted
