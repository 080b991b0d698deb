"""What is missing and what differs, without brokers."""

from __future__ import annotations

import dataclasses

import pytest

from ackwright.planning.comparison import ObservedTopic, compare, differences, missing
from ackwright.planning.guarantees import Setting
from ackwright.planning.topics import TopicPlan

PLANNED = TopicPlan("t", 6, 3, "because", (Setting("min.insync.replicas", "2", "two"), Setting("cleanup.policy", "compact,delete", "both")))
FOUND = ObservedTopic("t", "id", 6, 3, 0, {"min.insync.replicas": "2", "cleanup.policy": "delete,compact", "retention.ms": "1"})


def test_a_topic_as_planned_has_no_difference_whatever_else_is_set() -> None:
    assert differences(PLANNED, FOUND) == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"partitions": 4}, "topic t: partitions is 4, planned is 6 (as declared in spec.topics)"),
        ({"replication_factor": 1}, "topic t: replication.factor is 1, planned is 3 (because)"),
        ({"out_of_sync": 1}, "topic t: replicas in sync is 2, planned is 3 (a broker is down or lags)"),
        ({"config": {**FOUND.config, "min.insync.replicas": "1"}}, "topic t: min.insync.replicas is 1, planned is 2 (two)"),
        ({"config": {"min.insync.replicas": "2"}}, "topic t: cleanup.policy is not set, planned is compact,delete (both)"),
    ],
)
def test_each_difference_names_topic_setting_and_both_values(change: dict[str, object], sentence: str) -> None:
    assert [str(d) for d in differences(PLANNED, dataclasses.replace(FOUND, **change))] == [sentence]  # type: ignore[arg-type]


def test_what_does_not_exist_is_created_and_what_exists_compared() -> None:
    other = dataclasses.replace(PLANNED, name="other")
    found = compare([PLANNED, other], {"t": dataclasses.replace(FOUND, partitions=1)})
    assert [t.name for t in found.create] == ["other"]
    assert [(d.topic, d.setting) for d in found.differences] == [("t", "partitions")]


def test_needed_topics_are_missing_unless_they_exist_or_are_planned() -> None:
    assert missing(["t", "x", "there", "x"], [PLANNED], {"there": FOUND}) == ("x",)
