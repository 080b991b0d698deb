"""The index of what pipelines share."""

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
    found = PipelineIndex()
    found.update(OLD_KEY, OLD)
    found.update(YOUNG_KEY, YOUNG)
    return found


def test_each_sees_the_other_by_what_they_share() -> None:
    found = both()
    assert (found.group_owner(YOUNG), found.group_owner(OLD)) == ("ops/old", None)
    assert found.shared_topics(OLD) == found.shared_topics(YOUNG) == {"b"}


def test_who_is_gone_or_about_to_go_or_has_changed_his_mind_shares_nothing() -> None:
    found = both()
    assert found.remove(OLD_KEY) == {YOUNG_KEY}, "it may have waited for that"
    assert found.group_owner(YOUNG) is None
    assert found.shared_topics(YOUNG) == set()
    found.update(OLD_KEY, resource("old", "2026-01-01T00:00:00Z", "b", deleted=True))
    assert found.shared_topics(YOUNG) == set()
    found.update(OLD_KEY, resource("old", "2026-01-01T00:00:00Z", "z"))
    assert found.shared_topics(YOUNG) == set()
    assert found.remove(OLD_KEY) == {YOUNG_KEY}, "the group is shared still"


def test_other_brokers_are_another_world() -> None:
    found = both()
    found.update(OLD_KEY, resource("old", "2026-01-01T00:00:00Z", "b", brokers="other:9092"))
    assert found.group_owner(YOUNG) is None
    assert found.shared_topics(YOUNG) == set()


def test_nothing_is_left_of_who_is_gone() -> None:
    found = both()
    found.remove(OLD_KEY)
    found.remove(YOUNG_KEY)
    assert (found._sharers, found._shares, found._resources) == ({}, {}, {})
