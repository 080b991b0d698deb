"""Broken clauses of the guarantee for observed topics: each with its reason, cause and remedy, sorted by severity."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.durability import INTERNAL, broken, drift, remarks
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.replicas import Partition, Racks
from ackwright.planning.topics import LANES_TOPIC, MIN_INSYNC, UNCLEAN
from unit.planning.durable_topics import CONFIG, RACKS, part, plan_for, topic


def clauses(delivery_plan: DeliveryPlan, *topics: ObservedTopic, racks: Racks = RACKS) -> list[tuple[str, str]]:
    return [(c.reason, str(c)) for c in broken(delivery_plan, {t.name: t for t in topics}, racks)]


def remarked(*topics: ObservedTopic, racks: Racks = RACKS) -> list[tuple[str, str]]:
    return [(c.reason, str(c)) for c in remarks(plan_for(), {t.name: t for t in topics}, racks)]


def test_topics_as_planned_break_no_clause_and_get_no_remark() -> None:
    assert (clauses(plan_for(), topic(), *map(topic, INTERNAL)), remarked(topic())) == ([], [])


@pytest.mark.parametrize("leader", [None, 3])
def test_partitions_without_a_leader_are_reported_with_the_brokers_to_restart(leader: int | None) -> None:
    observed = topic(first=part(3, leader=leader))
    cause = "topic t: no leader for 1 of 2 partitions, so they can be neither read nor written"
    sentence = f"{cause}; restart one of the brokers 3"
    assert clauses(plan_for(), observed, racks=dict.fromkeys((1, 2))) == [("NoLeader", sentence)]


def test_without_leader_and_in_sync_replicas_all_replicas_are_named() -> None:
    ((_, sentence),) = clauses(plan_for(), topic(first=part(leader=None)))
    assert sentence.endswith("restart one of the brokers 1, 2, 3")


def test_fewer_in_sync_replicas_than_the_minimum_are_reported() -> None:
    observed = topic(first=part(1))
    cause = "topic t accepts no records in 1 of 2 partitions until a broker returns"
    sentence = f"{cause}: 1 replica in sync, min.insync.replicas = 2"
    assert clauses(plan_for(), observed) == [
        (
            "NotEnoughReplicas",
            f"{sentence}; read in the brokers' logs why replicas lag",
        )
    ]
    assert clauses(plan_for(), observed, racks=dict.fromkeys((1, 3))) == [
        ("NotEnoughReplicas", f"{sentence}; broker 2 is down; restart it")
    ]


def test_unclean_leader_election_is_reported() -> None:
    observed = topic(config=CONFIG | {UNCLEAN: "true"})
    sentence = "topic t: unclean.leader.election.enable is true, planned is false (no laggard)"
    assert clauses(plan_for(), observed) == [("UncleanElection", sentence)]


@pytest.mark.parametrize(
    ("observed", "sentence"),
    [
        (topic(first=part(1, 2, replicas=(1, 2))), "topic t: replication.factor is 2, planned is 3 (because)"),
        (topic(config=CONFIG | {MIN_INSYNC: "1"}), "topic t: min.insync.replicas is 1, planned is 2 (two)"),
    ],
)
def test_a_topic_with_fewer_replicas_or_a_lower_minimum_is_too_weak(observed: ObservedTopic, sentence: str) -> None:
    assert clauses(plan_for(), observed) == [("TopicsTooWeak", sentence)]


def test_a_topic_stronger_than_planned_breaks_no_clause() -> None:
    four = Partition(0, (1, 2, 3, 4), frozenset((1, 2, 3, 4)), 1)
    stronger = ObservedTopic("t", "id", (four, replace(four, number=1)), CONFIG | {MIN_INSYNC: "3"})
    assert clauses(plan_for(), stronger, racks=dict.fromkeys((1, 2, 3, 4))) == []


@pytest.mark.parametrize("name", INTERNAL)
def test_weak_internal_topics_break_exactly_once_only(name: str) -> None:
    weak = topic(name, config={MIN_INSYNC: "1"})
    sentence = (
        f"Kafka's internal topic {name} has 3 replicas and min.insync.replicas = 1; with tolerate.brokerFailures = 1 "
        "it needs 3 and 2; raise them on the brokers, or lower tolerate.brokerFailures"
    )
    assert clauses(plan_for(), weak) == [("InternalTopicsTooWeak", sentence)]
    assert clauses(plan_for(), topic(name, first=part(1, 2, replicas=(1, 2)))) != []
    for guarantee in ("at-least-once", "at-most-once"):
        assert clauses(plan_for(guarantee), weak) == []


def test_internal_topics_are_required_to_tolerate_as_many_broker_failures() -> None:
    one = ObservedTopic(INTERNAL[0], "id", (Partition(0, (1,), frozenset((1,)), 1),), {})
    assert clauses(plan_for(f=0), one) == []
    assert [reason for reason, _ in clauses(plan_for(f=2), topic(INTERNAL[0]))] == ["InternalTopicsTooWeak"]


def test_without_tolerated_failures_only_a_missing_leader_breaks_the_guarantee() -> None:
    delivery_plan = plan_for("at-most-once", f=0)
    assert clauses(delivery_plan, topic(first=part(1), config=CONFIG | {UNCLEAN: "true"})) == []
    assert [reason for reason, _ in clauses(delivery_plan, topic(first=part(leader=None)))] == ["NoLeader"]


def test_broken_clauses_are_sorted_by_severity_across_topics() -> None:
    topics = [
        topic("leaderless", first=part(leader=None)),
        topic("short", first=part(1)),
        topic("unclean", config=CONFIG | {UNCLEAN: "true"}),
        topic("weak", config=CONFIG | {MIN_INSYNC: "1"}),
        topic(INTERNAL[1], config={MIN_INSYNC: "1"}),
    ]
    expected = ["NoLeader", "NotEnoughReplicas", "UncleanElection", "TopicsTooWeak", "InternalTopicsTooWeak"]
    for order in permutations(topics):
        delivery_plan = plan_for("exactly-once", *(t.name for t in order if t.name not in INTERNAL))
        assert [reason for reason, _ in clauses(delivery_plan, *order)] == expected


def test_a_clause_broken_by_a_needed_topic_outside_the_plan_is_reported() -> None:
    assert [reason for reason, _ in clauses(plan_for(), topic("of somebody else", first=part(leader=None)))] == [
        "NoLeader"
    ]


def test_lagging_replicas_are_a_remark_except_of_internal_topics() -> None:
    behind = topic(first=part(1, 2))
    sentence = "topic t: replicas out of sync in 1 of 2 partitions (fewest in sync: 2)"
    assert remarked(behind) == [("UnderReplicated", sentence)]
    assert remarked(behind, racks=dict.fromkeys((1, 2))) == [
        ("UnderReplicated", f"{sentence}; broker 3 is down; restart it")
    ]
    assert remarked(replace(behind, name=INTERNAL[0])) == []


def test_one_rack_is_a_remark_after_lagging_replicas() -> None:
    observed = topic(first=part(1, 2), config=CONFIG)
    racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    remedy = "move one replica of each to another rack with kafka-reassign-partitions"
    one_rack = ("OneRack", f"topic t: all replicas of some partitions are in one rack, and are lost with it; {remedy}")
    assert [reason for reason, _ in remarked(replace(topic(), name="s"), observed, racks=racks)] == [
        "UnderReplicated",
        "OneRack",
        "OneRack",
    ]
    assert one_rack in remarked(observed, racks=racks)
    assert remarked(topic(), racks={1: "a", 2: "a", 3: "b"}) == []


@pytest.mark.parametrize("policy", ["repair", "alert", "pause"])
def test_drift_is_reported_by_policy_and_a_lagging_replica_is_no_drift(policy: str) -> None:
    observed = {"t": topic(first=part(1), config=CONFIG | {MIN_INSYNC: "1"})}
    for other in ("repair", "alert", "pause"):
        messages = [str(d) for d in drift(plan_for(drift_policy=other), observed, policy)]
        assert messages == (["topic t: min.insync.replicas is 1, planned is 2 (two)"] if other == policy else [])


def test_the_operators_own_topics_and_missing_ones_do_not_drift() -> None:
    delivery_plan = plan_for("exactly-once", LANES_TOPIC, "missing")
    own = replace(delivery_plan, topics=(replace(delivery_plan.topics[0], internal=True), delivery_plan.topics[1]))
    assert drift(own, {LANES_TOPIC: topic(LANES_TOPIC, config=CONFIG | {MIN_INSYNC: "1"})}, "repair") == ()
