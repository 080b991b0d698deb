"""Each check of `ackwright check`: its verdict, and the remedy for everything that is not OK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ackwright.planning.acls import Kind, Need, Operation, Resource
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.durability import INTERNAL
from ackwright.planning.permission_checks import permission_checks
from ackwright.planning.permissions import Answers, Role
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.readiness import Check, Observed, Verdict, checks
from unit.planning.durable_topics import part, planned, topic
from unit.planning.good_brokers import GOOD, RACKS


def brokers(**settings: str) -> Observed:
    """Three good ones, but for these settings; __ stands for a dot."""
    changed = {name.replace("__", "."): value for name, value in settings.items()}
    return Observed(RACKS, {broker: {**GOOD, **changed} for broker in RACKS})


def judged(observed: Observed, plan: DeliveryPlan | None = None, needed: tuple[str, ...] = ()) -> Mapping[str, Check]:
    found = checks(observed, plan, needed)
    assert len({c.name for c in found}) == len(found)
    for c in found:
        assert bool(c.remedy) == (c.verdict is not Verdict.OK), c
    return {c.name: c for c in found}


def test_good_brokers_are_fit_before_and_after_the_first_use() -> None:
    assert {c.verdict for c in judged(brokers()).values()} == {Verdict.OK}
    used = replace(brokers(), topics={name: topic(name) for name in INTERNAL}, features={"metadata.version": 27})
    found = judged(used)
    assert {c.verdict for c in found.values()} == {Verdict.OK}
    assert found["version"].found == "Kafka 3.7 or newer (metadata.version 27)"


@pytest.mark.parametrize(
    ("setting", "value", "verdict", "remedy"),
    [
        (
            "transaction.partition.verification.enable",
            "false",
            Verdict.FAILED,
            "set transaction.partition.verification.enable=true",
        ),
        ("transaction.max.timeout.ms", "59999", Verdict.FAILED, "set transaction.max.timeout.ms=60000 or more"),
        ("transaction.max.timeout.ms", "60000", Verdict.OK, ""),
        ("offsets.retention.minutes", "119", Verdict.FAILED, "set offsets.retention.minutes=10080"),
        ("offsets.retention.minutes", "120", Verdict.WARNING, "set offsets.retention.minutes=10080 or more"),
        ("default.replication.factor", "1", Verdict.WARNING, "set default.replication.factor=3"),
        ("min.insync.replicas", "1", Verdict.WARNING, "set min.insync.replicas=2"),
        ("unclean.leader.election.enable", "true", Verdict.WARNING, "set unclean.leader.election.enable=false"),
        ("auto.create.topics.enable", "true", Verdict.WARNING, "set auto.create.topics.enable=false"),
        ("authorizer.class.name", "", Verdict.WARNING, "set authorizer.class.name="),
    ],
)
def test_each_setting_of_the_brokers(setting: str, value: str, verdict: Verdict, remedy: str) -> None:
    found = judged(replace(brokers(), settings={1: GOOD, 2: {**GOOD, setting: value}}))[setting]
    assert found.verdict is verdict
    assert found.remedy.startswith(remedy)
    if verdict is not Verdict.OK:
        assert "(broker 1)" in found.found
        assert f"{value or 'not set'} (broker 2)" in found.found


def test_old_brokers_and_settings_that_may_not_be_read() -> None:
    old = {k: v for k, v in GOOD.items() if k != "telemetry.max.bytes"}
    assert judged(replace(brokers(), settings={1: GOOD, 2: old}))["version"] == Check(
        "version", Verdict.FAILED, "broker 2 runs a version older than Kafka 3.7", "upgrade it"
    )
    hidden = judged(Observed(RACKS, {}))
    assert hidden["broker settings"].remedy == "grant DescribeConfigs on the cluster"
    assert "version" not in hidden


@pytest.mark.parametrize(
    ("racks", "f", "verdict"),
    [
        ({1: "a", 2: "b", 3: "c"}, 1, Verdict.OK),
        ({1: "a", 2: "b", 3: "b"}, 1, Verdict.WARNING),
        ({1: "a", 2: "b", 3: None}, 1, Verdict.WARNING),
        ({1: None, 2: None, 3: None}, 1, Verdict.WARNING),
        ({1: None, 2: None, 3: None}, 0, Verdict.OK),
        ({1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}, 2, Verdict.OK),
    ],
)
def test_racks(racks: Mapping[int, str | None], f: int, verdict: Verdict) -> None:
    plan = replace(planned(f=f), topics=())
    assert judged(replace(brokers(), racks=racks), plan)["racks"].verdict is verdict


def test_too_few_brokers_for_f_and_for_the_replicas_that_are_declared() -> None:
    two = replace(brokers(), racks={1: "a", 2: "b"})
    assert judged(two)["brokers"].remedy == "start 1 more, or lower tolerate.brokerFailures"
    plan = planned()
    five = replace(plan, topics=(replace(plan.topics[0], replication_factor=5),))
    assert judged(brokers(), five)["brokers"].remedy.startswith("start 2 more")


def test_internal_topics_that_are_too_weak_break_exactly_once_and_are_pointed_out_otherwise() -> None:
    weak = replace(brokers(), topics={INTERNAL[0]: topic(config={"min.insync.replicas": "1"})})
    for plan, verdict in (
        (None, Verdict.FAILED),
        (planned(), Verdict.FAILED),
        (planned("at-least-once"), Verdict.WARNING),
    ):
        found = judged(weak, plan)[INTERNAL[0]]
        assert found.verdict is verdict
        assert found.remedy == (
            "kafka-configs --alter --entity-type topics --entity-name __consumer_offsets "
            "--add-config min.insync.replicas=2"
        )
    to_be = judged(brokers(transaction__state__log__min__isr="1"))[INTERNAL[1]]
    assert (to_be.verdict, to_be.remedy) == (Verdict.FAILED, "set transaction.state.log.min.isr=2 before the first use")
    idle = replace(brokers(), topics={INTERNAL[0]: topic(first=part(1))})
    assert judged(idle)[INTERNAL[0]].remedy == "restart the missing brokers"


def with_topic(found: ObservedTopic | None, **more: Any) -> Check:
    observed = replace(brokers(), topics={"t": found} if found else {}, **more)
    return judged(observed, planned())["topic t"]


def test_the_pipelines_topics() -> None:
    assert with_topic(None).found == "will be created: 2 partitions, 3 replicas, min.insync.replicas = 2"
    assert with_topic(topic()).found == "is as planned"
    assert with_topic(topic(first=part(1, 2))).remedy == "restart the missing brokers"
    assert with_topic(None, hidden=frozenset({"t"})).found == "the principal may not describe it"
    lower = with_topic(topic(config={"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}))
    assert (lower.verdict, lower.found) == (Verdict.WARNING, "min.insync.replicas is 1, planned is 2")
    assert lower.remedy == "the operator will set min.insync.replicas=2 of topic t"
    stuck = with_topic(topic(first=part(2, 3, leader=None)))
    assert stuck.verdict is Verdict.FAILED
    assert stuck.remedy == "restart one of the brokers 2, 3"
    more = with_topic(replace(topic(), layout=(*topic().layout, *topic().layout)))
    assert more.verdict is Verdict.FAILED
    assert "cannot remove partitions" in more.found


def test_drift_that_the_operator_is_to_leave_is_left() -> None:
    plan = planned(drift_policy="alert")
    observed = replace(
        brokers(), topics={"t": topic(config={"min.insync.replicas": "3", "unclean.leader.election.enable": "false"})}
    )
    assert "driftPolicy is alert" in judged(observed, plan)["topic t"].remedy


@pytest.mark.parametrize("declared", ["t", "another"])
def test_a_topic_in_one_rack_is_to_be_looked_at_declared_or_not(declared: str) -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "c"}
    there = replace(brokers(), racks=racks, settings=dict.fromkeys(racks, GOOD), topics={"t": topic()})
    plan = planned("exactly-once", declared)
    found = judged(there, plan, ("t",))["topic t"]
    assert (found.verdict, "in one rack" in found.found, "another rack" in found.remedy) == (
        Verdict.WARNING,
        True,
        True,
    )
    spread = replace(there, racks=dict(zip(racks, "abcde", strict=True)))
    assert judged(spread, plan, ("t",))["topic t"].verdict is Verdict.OK


def test_topics_that_nobody_declares_and_the_group() -> None:
    plan = planned()
    assert judged(brokers(), plan, ("in",))["topic in"].verdict is Verdict.FAILED
    weak = replace(brokers(), topics={"in": topic("in", config={})}, in_use="it has a subscriber; choose another")
    found = judged(weak, plan, ("in", "in"))
    assert found["topic in"].verdict is Verdict.WARNING
    assert found[f"consumer group {plan.group}"] == Check(
        f"consumer group {plan.group}", Verdict.FAILED, "it has a subscriber", "choose another"
    )


def test_topics_that_the_transform_alone_names_cannot_be_vouched_for() -> None:
    (found,) = set(checks(brokers(), planned(), (), routed=True)) - set(checks(brokers(), planned(), ()))
    assert (found.name, found.verdict) == ("topics of the sink", Verdict.WARNING)


def test_permissions_name_exactly_what_is_missing() -> None:
    flights, ids = Resource(Kind.TOPIC, "flights"), Resource(Kind.TRANSACTIONAL_ID, "ops.p/", prefixed=True)
    wanted = (Need(flights, (Operation.READ, Operation.DESCRIBE), ""), Need(ids, (Operation.WRITE,), ""))
    answers = Answers("User:ann", {flights: frozenset({Operation.DESCRIBE})})
    (found,) = permission_checks({Role.JOB: wanted}, answers)
    assert found == Check(
        "permissions of the job",
        Verdict.FAILED,
        "User:ann lacks Read on topic flights; it is not known whether User:ann has Write on transactional-id ops.p/*",
        "kafka-acls --add --allow-principal User:ann --operation Read --topic flights\n"
        "kafka-acls --add --allow-principal User:ann --operation Write --transactional-id ops.p/ "
        "--resource-pattern-type prefixed",
    )
    (unsure,) = permission_checks({Role.JOB: wanted[1:]}, answers)
    assert unsure.verdict is Verdict.WARNING
    (audit,) = permission_checks({Role.AUDIT: wanted[:1]}, answers)
    assert audit.verdict is Verdict.WARNING
    (none,) = permission_checks({Role.JOB: wanted}, None)
    assert (none.verdict, none.found) == (Verdict.OK, "not needed: the brokers have no authoriser")
    (all_of_it,) = permission_checks({Role.JOB: wanted[:1]}, Answers("User:ann", {flights: frozenset(Operation)}))
    assert all_of_it.found == "User:ann has all 2"
