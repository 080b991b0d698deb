"""Missing topics, and differences between planned and observed topics."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ackwright.planning.comparison import compare, differences, missing
from ackwright.planning.guarantees import Setting
from ackwright.planning.topics import TopicPlan
from unit.observed import topic

PLAN = TopicPlan(
    "t",
    6,
    3,
    "because",
    (Setting("min.insync.replicas", "2", "two"), Setting("cleanup.policy", "compact,delete", "both")),
)
CONFIG = {"min.insync.replicas": "2", "cleanup.policy": "delete,compact", "retention.ms": "1"}
CURRENT = topic("t", partitions=6, config=CONFIG)


def test_a_topic_as_planned_has_no_difference_whatever_else_is_set() -> None:
    assert differences(PLAN, CURRENT) == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"partitions": 4}, "topic t: partitions is 4, planned is 6 (as declared in spec.topics)"),
        ({"factor": 1}, "topic t: replication.factor is 1, planned is 3 (because)"),
        ({"lag": 1}, "topic t: replicas in sync is 2, planned is 3 (a broker is down or lags)"),
        ({"config": {**CONFIG, "min.insync.replicas": "1"}}, "topic t: min.insync.replicas is 1, planned is 2 (two)"),
        (
            {"config": {"min.insync.replicas": "2"}},
            "topic t: cleanup.policy is not set, planned is compact,delete (both)",
        ),
    ],
)
def test_each_difference_names_topic_setting_and_both_values(change: dict[str, Any], sentence: str) -> None:
    assert [str(d) for d in differences(PLAN, topic("t", **{"partitions": 6, "config": CONFIG, **change}))] == [
        sentence
    ]


def test_missing_topics_are_created_and_existing_ones_compared() -> None:
    other = dataclasses.replace(PLAN, name="other")
    result = compare([PLAN, other], {"t": topic("t", config=CONFIG)})
    assert [t.name for t in result.create] == ["other"]
    assert [(d.topic, d.setting) for d in result.differences] == [("t", "partitions")]


def test_needed_topics_are_missing_unless_they_exist_or_are_planned() -> None:
    assert missing(["t", "x", "there", "x"], [PLAN], {"there": CURRENT}) == ("x",)
