"""The clauses of the guarantee that present topics break: each with its name, cause and remedy, the worst first."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.durability import INTERNAL, broken, drift, remarks
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.replicas import Partition, Racks
from ackwright.planning.topics import LANES_TOPIC, MIN_INSYNC, UNCLEAN
from unit.planning.durable_topics import CONFIG, RACKS, part, planned, topic


def said(made: DeliveryPlan, *topics: ObservedTopic, racks: Racks = RACKS) -> list[tuple[str, str]]:
    return [(c.reason, c.sentence) for c in broken(made, {t.name: t for t in topics}, racks)]


def remarked(*topics: ObservedTopic, racks: Racks = RACKS) -> list[tuple[str, str]]:
    return [(c.reason, c.sentence) for c in remarks(planned(), {t.name: t for t in topics}, racks)]


def test_of_topics_as_planned_nothing_is_said() -> None:
    assert (said(planned(), topic(), *map(topic, INTERNAL)), remarked(topic())) == ([], [])


@pytest.mark.parametrize("leader", [None, 3])
def test_no_leader(leader: int | None) -> None:
    found = topic(first=part(3, leader=leader))
    cause = "topic t: no leader for 1 of 2 partitions, so they can be neither read nor written"
    sentence = f"{cause}; restart one of the brokers 3"
    assert said(planned(), found, racks=dict.fromkeys((1, 2))) == [("NoLeader", sentence)]


def test_no_leader_and_nobody_in_sync_names_all_replicas() -> None:
    ((_, sentence),) = said(planned(), topic(first=part(leader=None)))
    assert sentence.endswith("restart one of the brokers 1, 2, 3")


def test_not_enough_replicas() -> None:
    found = topic(first=part(1))
    cause = "topic t accepts no records in 1 of 2 partitions until a broker returns"
    sentence = f"{cause}: 1 replica in sync, min.insync.replicas = 2"
    assert said(planned(), found) == [("NotEnoughReplicas", sentence)]
    assert said(planned(), found, racks=dict.fromkeys((1, 3))) == [
        ("NotEnoughReplicas", f"{sentence}; broker 2 is down")
    ]


def test_unclean_election() -> None:
    found = topic(config=CONFIG | {UNCLEAN: "true"})
    sentence = "topic t: unclean.leader.election.enable is true, planned is false (no laggard)"
    assert said(planned(), found) == [("UncleanElection", sentence)]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (topic(first=part(1, 2, replicas=(1, 2))), "topic t: replication.factor is 2, planned is 3 (because)"),
        (topic(config=CONFIG | {MIN_INSYNC: "1"}), "topic t: min.insync.replicas is 1, planned is 2 (two)"),
    ],
)
def test_topics_too_weak(found: ObservedTopic, sentence: str) -> None:
    assert said(planned(), found) == [("TopicsTooWeak", sentence)]


def test_what_is_stronger_than_planned_breaks_nothing() -> None:
    four = Partition(0, (1, 2, 3, 4), frozenset((1, 2, 3, 4)), 1)
    stronger = ObservedTopic("t", "id", (four, replace(four, number=1)), CONFIG | {MIN_INSYNC: "3"})
    assert said(planned(), stronger, racks=dict.fromkeys((1, 2, 3, 4))) == []


@pytest.mark.parametrize("name", INTERNAL)
def test_internal_topics_too_weak_under_exactly_once_only(name: str) -> None:
    weak = topic(name, config={MIN_INSYNC: "1"})
    sentence = (
        f"Kafka's internal topic {name} has 3 replicas and min.insync.replicas = 1; with tolerate.brokerFailures = 1 "
        "it needs 3 and 2: raise them on the brokers, or lower tolerate.brokerFailures"
    )
    assert said(planned(), weak) == [("InternalTopicsTooWeak", sentence)]
    assert said(planned(), topic(name, first=part(1, 2, replicas=(1, 2)))) != []
    for guarantee in ("at-least-once", "at-most-once"):
        assert said(planned(guarantee), weak) == []


def test_internal_topics_are_as_strong_as_the_lost_brokers_that_are_tolerated() -> None:
    one = ObservedTopic(INTERNAL[0], "id", (Partition(0, (1,), frozenset((1,)), 1),), {})
    assert said(planned(f=0), one) == []
    assert [reason for reason, _ in said(planned(f=2), topic(INTERNAL[0]))] == ["InternalTopicsTooWeak"]


def test_without_tolerated_failures_only_what_nobody_leads_breaks_the_guarantee() -> None:
    made = planned("at-most-once", f=0)
    assert said(made, topic(first=part(1), config=CONFIG | {UNCLEAN: "true"})) == []
    assert [reason for reason, _ in said(made, topic(first=part(leader=None)))] == ["NoLeader"]


def test_the_worst_comes_first_whichever_topic_it_is_of() -> None:
    topics = [
        topic("leaderless", first=part(leader=None)),
        topic("short", first=part(1)),
        topic("unclean", config=CONFIG | {UNCLEAN: "true"}),
        topic("weak", config=CONFIG | {MIN_INSYNC: "1"}),
        topic(INTERNAL[1], config={MIN_INSYNC: "1"}),
    ]
    expected = ["NoLeader", "NotEnoughReplicas", "UncleanElection", "TopicsTooWeak", "InternalTopicsTooWeak"]
    for order in permutations(topics):
        made = planned("exactly-once", *(t.name for t in order if t.name not in INTERNAL))
        assert [reason for reason, _ in said(made, *order)] == expected


def test_a_clause_of_a_topic_that_is_needed_and_not_planned_is_told_too() -> None:
    assert [reason for reason, _ in said(planned(), topic("of somebody else", first=part(leader=None)))] == ["NoLeader"]


def test_lagging_replicas_are_a_remark_and_the_brokers_own_topics_none() -> None:
    behind = topic(first=part(1, 2))
    sentence = "topic t: replicas out of sync in 1 of 2 partitions (fewest in sync: 2)"
    assert remarked(behind) == [("UnderReplicated", sentence)]
    assert remarked(behind, racks=dict.fromkeys((1, 2))) == [("UnderReplicated", f"{sentence}; broker 3 is down")]
    assert remarked(replace(behind, name=INTERNAL[0])) == []


def test_one_rack_is_a_remark_after_lagging_replicas() -> None:
    found = topic(first=part(1, 2), config=CONFIG)
    racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    remedy = "move one replica of each to another rack with kafka-reassign-partitions"
    one_rack = ("OneRack", f"topic t: all replicas of some partitions are in one rack, and are lost with it; {remedy}")
    assert [reason for reason, _ in remarked(replace(topic(), name="s"), found, racks=racks)] == [
        "UnderReplicated",
        "OneRack",
        "OneRack",
    ]
    assert one_rack in remarked(found, racks=racks)
    assert remarked(topic(), racks={1: "a", 2: "a", 3: "b"}) == []


@pytest.mark.parametrize("policy", ["repair", "alert", "pause"])
def test_drift_is_told_by_policy_and_a_lagging_replica_is_none(policy: str) -> None:
    found = {"t": topic(first=part(1), config=CONFIG | {MIN_INSYNC: "1"})}
    for other in ("repair", "alert", "pause"):
        told = [str(d) for d in drift(planned(drift_policy=other), found, policy)]
        assert told == (["topic t: min.insync.replicas is 1, planned is 2 (two)"] if other == policy else [])


def test_the_operators_own_topics_and_missing_ones_do_not_drift() -> None:
    made = planned("exactly-once", LANES_TOPIC, "missing")
    own = replace(made, topics=(replace(made.topics[0], internal=True), made.topics[1]))
    assert drift(own, {LANES_TOPIC: topic(LANES_TOPIC, config=CONFIG | {MIN_INSYNC: "1"})}, "repair") == ()
