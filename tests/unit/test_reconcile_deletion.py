"""Deletes pipelines while replicas of their topics are moved."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason
from unit.fake_kubernetes import Killed
from unit.topic_worlds import declared, delete, is_gone, throttles, to_the_end, weak
from unit.world import SPEC, World


def test_a_pipeline_that_is_deleted_while_replicas_are_copied_for_it_ends_their_throttle() -> None:
    """Though its topics stay."""
    world = weak().settle()
    assert not is_gone(delete(world))
    assert "Pod" not in world.kinds(), "the driver does not wait"
    assert throttles(world) == ["0", "1", "2", "in"]
    world.kafka.arrive()
    assert is_gone(world)
    assert (throttles(world), "in" in world.kafka.existing) == ([], True)
    assert "MovesLeft" not in dict(world.kubernetes.recorded)


def test_only_a_throttle_holds_up_the_end() -> None:
    world = weak()
    assert is_gone(delete(to_the_end(world)), reconciles=0)


def test_the_throttle_goes_before_the_pipeline_however_long_the_copies_take() -> None:
    world = delete(weak().settle())
    assert not is_gone(world)
    world.seconds += world.settings.settle
    assert is_gone(world)
    assert throttles(world) == []
    assert (
        "replicas of topic in are still being moved, now without a throttle"
        in dict(world.kubernetes.recorded)["MovesLeft"]
    )


@pytest.mark.parametrize("lost", [1, 3])
def test_a_throttle_that_cannot_be_removed_is_reported_when_the_pipeline_is_deleted(lost: int) -> None:
    world = weak().settle()
    world.kafka.arrive()
    world.kafka.count -= lost
    world.kafka.down = AckwrightError(Reason.BROKERS_UNREACHABLE, "no answer") if lost == 3 else None
    assert not is_gone(delete(world))
    world.seconds += world.settings.settle
    assert is_gone(world)
    message = dict(world.kubernetes.recorded)["MovesLeft"]
    assert "the throttle of topic in stays on brokers 0, 1, 2 (kafka-configs --alter --delete-config" in message
    assert message.endswith("no answer" if lost == 3 else "broker 2 is down")


def test_a_topic_that_goes_with_the_pipeline_takes_its_moves_along() -> None:
    world = World(declared(deletionPolicy="Delete"))
    world.kafka.existing["in"] = {"min.insync.replicas": "1"}
    world.kafka.shape("in", 2, 1)
    delete(world.settle())
    world.reconcile()
    world.kafka.arrive()
    assert is_gone(world)
    assert ("in" in world.kafka.existing, throttles(world)) == (False, [])


@pytest.mark.parametrize("replaced", [False, True])
def test_only_the_topic_that_the_pipeline_had_is_deleted(replaced: bool) -> None:
    """One that somebody else created under its name stays."""
    world = World(declared(deletionPolicy="Delete")).settle()
    if replaced:
        world.kafka.ids["in"] = "another"
    assert is_gone(delete(world)), "nothing is waited for: a topic's id never changes"
    assert ("in" in world.kafka.existing) is replaced
    left = dict(world.kubernetes.recorded).get("TopicsNotDeleted", "")
    assert ("in: the topic's id is not the one that the pipeline has recorded" in left) is replaced


def test_another_owners_topic_does_not_end_the_wait_for_the_pipelines_own() -> None:
    spec = declared(deletionPolicy="Delete")
    world = World({**spec, "topics": [{**topic, "deletionPolicy": "Delete"} for topic in spec["topics"]]}).settle()
    world.kafka.ids["in"] = "another"
    world.kafka.denied.add(("delete", "out"))
    assert not is_gone(delete(world)), "the brokers do not delete out yet"
    late = world.copy()
    late.seconds += late.settings.settle
    assert is_gone(late)
    messages = [message for reason, message in late.kubernetes.recorded if reason == "TopicsNotDeleted"]
    assert messages[0] == "topics not deleted within 300 s: out: delete out is denied"
    assert messages[1].startswith("topics not deleted, because they may be another owner's: in: ")
    world.kafka.denied.clear()
    assert is_gone(world)
    assert ("in" in world.kafka.existing, "out" in world.kafka.existing) == (True, False)


def test_a_pipeline_with_no_topic_of_its_own_left_does_not_wait_for_the_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(declared(deletionPolicy="Delete")).settle()
    world.kafka.ids["in"] = "another"
    topics = world.kafka.topics

    def only_of_names(names: tuple[str, ...]) -> object:
        if not names:
            raise AckwrightError(Reason.BROKERS_UNREACHABLE, "no answer")
        return topics(names)

    monkeypatch.setattr(world.kafka, "topics", only_of_names)
    assert is_gone(delete(world))
    assert "in" in world.kafka.existing


def test_topics_whose_ids_no_reconcile_has_recorded_go_with_the_pipeline() -> None:
    """The reconcile that created them was the last one before the deletion."""
    world = World(declared(deletionPolicy="Delete"))
    world.reconcile_alone()
    assert world.resource["status"]["topics"] == []
    assert is_gone(delete(world))
    assert ("in" in world.kafka.existing, "out" in world.kafka.existing) == (False, True)


def test_topics_of_an_operator_that_died_after_creating_them_go_with_the_pipeline() -> None:
    world = World(declared(deletionPolicy="Delete"))
    world.kubernetes.die, world.kubernetes.die_after = 4, True  # status, finalizer, three topics
    with pytest.raises(Killed):
        world.reconcile_alone()
    world.kubernetes.die = None
    assert "in" in world.kafka.existing
    world.start_operator()
    assert is_gone(delete(world))
    assert "in" not in world.kafka.existing


def test_a_topic_that_the_operator_neither_recorded_nor_was_about_to_create_stays() -> None:
    world = World(declared(deletionPolicy="Delete")).settle()
    world.resource["status"]["topics"] = []
    assert is_gone(delete(world))
    assert "in" in world.kafka.existing


def _with(spec: dict[str, Any], policy: str, *names: str) -> dict[str, Any]:
    """The spec with this deletionPolicy of these topics."""
    return spec | {"topics": [t | ({"deletionPolicy": policy} if t["name"] in names else {}) for t in spec["topics"]]}


@pytest.mark.parametrize("edit", ["invalid", "refused"])
def test_an_edit_without_effect_deletes_no_other_topic(edit: str) -> None:
    """Neither one that it adds, nor one on the brokers that it names. What it retains stays."""
    spec = _with(SPEC, "Delete", "in", "out")
    world = World(spec).settle()
    world.resource["spec"] = _with(_with(spec, "Retain", "out"), "Delete", "in", "other") | {
        "transform": {"sql": "SELECT nothing FROM source"} if edit == "invalid" else {"sql": "SELECT key FROM source"}
    }
    world.resource["spec"]["topics"].append({"name": "other", "partitions": 1, "deletionPolicy": "Delete"})
    world.resource["spec"]["kafka"] = {"bootstrapServers": "elsewhere:9092"}
    world.resource["metadata"]["generation"] += 1
    world.reconcile()
    assert world.resource["status"]["accepted"]["spec"] == spec
    connect, servers = world.connections.kafka, set()

    def connecting(pipeline: Any, *role: Any) -> Any:
        servers.add(pipeline.spec.kafka.bootstrap_servers)
        return connect(pipeline, *role)

    world.connections.kafka = connecting  # type: ignore[assignment, method-assign]
    assert is_gone(delete(world), reconciles=9)
    assert servers == {"k:9092"}
    assert ("in" in world.kafka.existing, "out" in world.kafka.existing) == (False, True)


def test_the_events_of_a_deletion_without_a_valid_spec_name_what_stays() -> None:
    """As after an upgrade to a release that refuses what the earlier one accepted."""
    spec = declared(deletionPolicy="Delete")
    world = World(spec)
    world.kafka.existing["in"] = {"min.insync.replicas": "1"}
    world.kafka.shape("in", 2, 1)
    world.settle()
    invalid = {**spec, "guarantee": "twice"}
    world.resource["spec"] = world.resource["status"]["accepted"]["spec"] = invalid
    assert is_gone(delete(world))
    assert throttles(world) != []
    messages = dict(world.kubernetes.recorded)
    why = "neither the present spec nor the last accepted one is valid, so the operator does not connect to the brokers"
    assert messages["MovesLeft"] == (
        "the throttle of topic in stays on brokers 0, 1, 2 (kafka-configs --alter --delete-config "
        f"follower.replication.throttled.rate,leader.replication.throttled.rate): {why}"
    )
    assert messages["TopicsNotDeleted"] == f"topics not deleted (kafka-topics --delete --topic TOPIC): in: {why}"


@pytest.mark.parametrize("after", [False, True])
def test_an_operator_that_dies_while_a_throttled_pipeline_is_deleted_leaves_no_throttle(after: bool) -> None:
    for number in itertools.count():
        world = delete(weak().settle())
        world.kafka.arrive()
        world.kubernetes.die, world.kubernetes.die_after = len(world.kubernetes.writes) + number, after
        try:
            assert is_gone(world)
            break  # there were not so many writes
        except Killed:
            world.kubernetes.die = None
            world.start_operator()
            assert is_gone(world), f"write {number}"
            assert throttles(world) == [], f"write {number}"
    assert number > 5
