"""Each check of `ackwright check`: its verdict, and the remedy for everything that is not OK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ackwright.planning.acls import Answers, Kind, Need, Operation, Resource
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.durability import INTERNAL
from ackwright.planning.permission_checks import permission_checks
from ackwright.planning.permissions import Role
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.readiness import Check, Observed, Verdict, checks
from ackwright_stream.broker_requirements import OtherMembers
from unit.planning.durable_topics import part, plan_for, topic
from unit.planning.good_brokers import GOOD, RACKS


def brokers(**settings: str) -> Observed:
    """Three brokers that pass every check except for these settings; in their names, __ is a dot."""
    changed = {name.replace("__", "."): value for name, value in settings.items()}
    return Observed(RACKS, {broker: {**GOOD, **changed} for broker in RACKS})


def judged(observed: Observed, plan: DeliveryPlan | None = None, needed: tuple[str, ...] = ()) -> Mapping[str, Check]:
    results = checks(observed, plan, needed)
    assert len({c.name for c in results}) == len(results)
    for c in results:
        assert bool(c.remedy) == (c.verdict is not Verdict.OK), c
    return {c.name: c for c in results}


def test_good_brokers_pass_every_check_before_and_after_the_first_use() -> None:
    assert {c.verdict for c in judged(brokers()).values()} == {Verdict.OK}
    used = replace(brokers(), topics={name: topic(name) for name in INTERNAL}, features={"metadata.version": 27})
    results = judged(used)
    assert {c.verdict for c in results.values()} == {Verdict.OK}
    assert results["version"].found == "Kafka 3.7 or newer (metadata.version 27)"


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
        ("offsets.retention.minutes", "10079", Verdict.WARNING, "set offsets.retention.minutes=10080 or more"),
        ("offsets.retention.minutes", "10080", Verdict.OK, ""),
        ("default.replication.factor", "1", Verdict.WARNING, "set default.replication.factor=3"),
        ("min.insync.replicas", "1", Verdict.WARNING, "set min.insync.replicas=2"),
        ("unclean.leader.election.enable", "true", Verdict.WARNING, "set unclean.leader.election.enable=false"),
        ("auto.create.topics.enable", "true", Verdict.WARNING, "set auto.create.topics.enable=false"),
        ("authorizer.class.name", "", Verdict.WARNING, "set authorizer.class.name="),
    ],
)
def test_each_broker_setting_has_a_verdict_and_a_remedy(
    setting: str, value: str, verdict: Verdict, remedy: str
) -> None:
    result = judged(replace(brokers(), settings={1: GOOD, 2: {**GOOD, setting: value}}))[setting]
    assert result.verdict is verdict
    assert result.remedy.startswith(remedy)
    if verdict is not Verdict.OK:
        assert "(broker 1)" in result.found
        assert f"{value or 'not set'} (broker 2)" in result.found


def test_old_brokers_fail_and_unreadable_settings_name_the_permission() -> None:
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
def test_racks_are_enough_for_the_tolerated_failures(racks: Mapping[int, str | None], f: int, verdict: Verdict) -> None:
    plan = replace(plan_for(f=f), topics=())
    assert judged(replace(brokers(), racks=racks), plan)["racks"].verdict is verdict


def test_too_few_brokers_for_the_tolerated_failures_or_the_declared_replicas() -> None:
    two = replace(brokers(), racks={1: "a", 2: "b"})
    assert judged(two)["brokers"].remedy == "start 1 more, or lower tolerate.brokerFailures"
    plan = plan_for()
    five = replace(plan, topics=(replace(plan.topics[0], replication_factor=5),))
    assert judged(brokers(), five)["brokers"].remedy.startswith("start 2 more")


def test_weak_internal_topics_fail_exactly_once_and_are_a_warning_otherwise() -> None:
    weak = replace(brokers(), topics={INTERNAL[0]: topic(config={"min.insync.replicas": "1"})})
    for plan, verdict in (
        (None, Verdict.FAILED),
        (plan_for(), Verdict.FAILED),
        (plan_for("at-least-once"), Verdict.WARNING),
    ):
        result = judged(weak, plan)[INTERNAL[0]]
        assert result.verdict is verdict
        assert result.remedy == (
            "kafka-configs --alter --entity-type topics --entity-name __consumer_offsets "
            "--add-config min.insync.replicas=2"
        )
    to_be = judged(brokers(transaction__state__log__min__isr="1"))[INTERNAL[1]]
    assert (to_be.verdict, to_be.remedy) == (Verdict.FAILED, "set transaction.state.log.min.isr=2 before the first use")
    idle = replace(brokers(), topics={INTERNAL[0]: topic(first=part(1))})
    assert judged(idle)[INTERNAL[0]].remedy == "restart the missing brokers"


def with_topic(current: ObservedTopic | None, **more: Any) -> Check:
    observed = replace(brokers(), topics={"t": current} if current else {}, **more)
    return judged(observed, plan_for())["topic t"]


def test_each_state_of_a_declared_topic_has_its_verdict_and_remedy() -> None:
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


def test_under_the_drift_policy_alert_the_remedy_names_the_policy() -> None:
    plan = plan_for(drift_policy="alert")
    observed = replace(
        brokers(), topics={"t": topic(config={"min.insync.replicas": "3", "unclean.leader.election.enable": "false"})}
    )
    assert "driftPolicy is alert" in judged(observed, plan)["topic t"].remedy


@pytest.mark.parametrize("declared", ["t", "another"])
def test_a_topic_with_all_replicas_in_one_rack_is_a_warning_declared_or_not(declared: str) -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "c"}
    there = replace(brokers(), racks=racks, settings=dict.fromkeys(racks, GOOD), topics={"t": topic()})
    plan = plan_for("exactly-once", declared)
    result = judged(there, plan, ("t",))["topic t"]
    assert (result.verdict, "in one rack" in result.found, "another rack" in result.remedy) == (
        Verdict.WARNING,
        True,
        True,
    )
    spread = replace(there, racks=dict(zip(racks, "abcde", strict=True)))
    assert judged(spread, plan, ("t",))["topic t"].verdict is Verdict.OK


def test_undeclared_topics_and_a_group_in_use_are_reported() -> None:
    plan = plan_for()
    assert judged(brokers(), plan, ("in",))["topic in"].verdict is Verdict.FAILED
    weak = replace(brokers(), topics={"in": topic("in", config={})}, others=OtherMembers(("billing",), False))
    results = judged(weak, plan, ("in", "in"))
    assert results["topic in"].verdict is Verdict.WARNING
    assert results[f"consumer group {plan.group}"] == Check(
        f"consumer group {plan.group}",
        Verdict.FAILED,
        f"consumer group {plan.group} is used by other consumers (client.id billing)",
        "stop them, or recreate the pipeline with another source.groupId",
    )


def test_the_remedy_of_a_topic_that_refuses_writes_is_no_part_of_its_cause() -> None:
    """The cause has a semicolon, too."""
    down = replace(brokers(), racks={1: "a", 2: "b"}, topics={"t": topic(first=part(1, replicas=(1, 2, 3)))})
    check = judged(down, plan_for(), ("t",))["topic t"]
    assert check.verdict is Verdict.FAILED
    assert check.found.endswith("1 replica in sync, min.insync.replicas = 2; broker 3 is down")
    assert check.remedy == "restart it"
    lagging = judged(replace(down, racks=RACKS), plan_for(), ("t",))["topic t"]
    assert lagging.found.endswith("1 replica in sync, min.insync.replicas = 2")
    assert lagging.remedy == "read in the brokers' logs why replicas lag"


def test_topics_that_only_the_transform_names_are_a_warning() -> None:
    (result,) = set(checks(brokers(), plan_for(), (), routed=True)) - set(checks(brokers(), plan_for(), ()))
    assert (result.name, result.verdict) == ("topics of the sink", Verdict.WARNING)


def test_permissions_name_exactly_what_is_missing() -> None:
    flights, ids = Resource(Kind.TOPIC, "flights"), Resource(Kind.TRANSACTIONAL_ID, "ops.p/", prefixed=True)
    required = (Need(flights, (Operation.READ, Operation.DESCRIBE), ""), Need(ids, (Operation.WRITE,), ""))
    answers = Answers("User:ann", {flights: frozenset({Operation.DESCRIBE})})
    (result,) = permission_checks({Role.JOB: required}, answers)
    assert result == Check(
        "permissions of the job",
        Verdict.FAILED,
        "User:ann lacks Read on topic flights; it is not known whether User:ann has Write on transactional-id ops.p/*",
        "kafka-acls --add --allow-principal User:ann --operation Read --topic flights\n"
        "kafka-acls --add --allow-principal User:ann --operation Write --transactional-id ops.p/ "
        "--resource-pattern-type prefixed",
    )
    (unsure,) = permission_checks({Role.JOB: required[1:]}, answers)
    assert unsure.verdict is Verdict.WARNING
    (audit,) = permission_checks({Role.AUDIT: required[:1]}, answers)
    assert audit.verdict is Verdict.WARNING
    (none,) = permission_checks({Role.JOB: required}, None)
    assert (none.verdict, none.found) == (Verdict.OK, "not needed: the brokers have no authoriser")
    (all_of_it,) = permission_checks({Role.JOB: required[:1]}, Answers("User:ann", {flights: frozenset(Operation)}))
    assert all_of_it.found == "User:ann has all 2"
