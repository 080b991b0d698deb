"""The index of pipelines that share a consumer group or a topic."""

from __future__ import annotations

from typing import Any

from ackwright.pipeline_index import PipelineIndex


def resource(name: str, created: str, *topics: str, brokers: str = "k:9092", deleted: bool = False) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ops", "creationTimestamp": created} | (
        {"deletionTimestamp": created} if deleted else {}
    )
    spec = {
        "kafka": {"bootstrapServers": brokers},
        "source": {"groupId": "g"},
        "topics": [{"name": t, "partitions": 1} for t in topics],
    }
    return {"metadata": meta, "spec": spec}


OLD, YOUNG = resource("old", "2026-01-01T00:00:00Z", "a", "b"), resource("young", "2026-01-02T00:00:00Z", "b", "c")
OLD_KEY, YOUNG_KEY = ("ops", "old"), ("ops", "young")


def both() -> PipelineIndex:
    index = PipelineIndex()
    index.update(OLD_KEY, OLD)
    index.update(YOUNG_KEY, YOUNG)
    return index


def test_each_finds_the_other_by_what_they_share() -> None:
    index = both()
    assert (index.group_owner(YOUNG), index.group_owner(OLD)) == ("ops/old", None)
    assert index.shared_topics(OLD) == index.shared_topics(YOUNG) == {"b"}


def test_a_deleted_or_changed_pipeline_shares_nothing() -> None:
    index = both()
    assert index.remove(OLD_KEY) == {YOUNG_KEY}, "it may have waited for that"
    assert index.group_owner(YOUNG) is None
    assert index.shared_topics(YOUNG) == set()
    index.update(OLD_KEY, resource("old", "2026-01-01T00:00:00Z", "b", deleted=True))
    assert index.shared_topics(YOUNG) == set()
    index.update(OLD_KEY, resource("old", "2026-01-01T00:00:00Z", "z"))
    assert index.shared_topics(YOUNG) == set()
    assert index.remove(OLD_KEY) == {YOUNG_KEY}, "the group is shared still"


def test_other_brokers_are_another_world() -> None:
    index = both()
    index.update(OLD_KEY, resource("old", "2026-01-01T00:00:00Z", "b", brokers="other:9092"))
    assert index.group_owner(YOUNG) is None
    assert index.shared_topics(YOUNG) == set()


def test_nothing_is_left_of_a_deleted_pipeline() -> None:
    index = both()
    index.remove(OLD_KEY)
    index.remove(YOUNG_KEY)
    assert (index._sharers, index._shares, index._resources) == ({}, {}, {})
