"""Reconciles a pipeline whose sink has its own Kafka cluster: topics, conditions and deletion on both."""

from __future__ import annotations

from typing import Any

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason
from ackwright_stream.reports import Ending
from unit.fake_kafka import FakeKafka
from unit.topic_worlds import delete, is_gone, throttles
from unit.world import SPEC, STATEFUL, World

TOPICS = [{"name": "in", "partitions": 2}, {"name": "out", "partitions": 2}]


def two_clusters(**topic: Any) -> tuple[World, FakeKafka]:
    """A pipeline and the brokers of its sink. topic: further fields of each declared topic."""
    sink = FakeKafka()
    own = {"kafka": {"topic": "out", "bootstrapServers": "s:9092"}}
    world = World({**SPEC, "sink": own, "topics": [{**t, **topic} for t in TOPICS]}, sink=sink)
    sink.recorder = world.kubernetes
    return world, sink


def test_each_cluster_gets_its_topics_and_the_driver_starts() -> None:
    world, sink = two_clusters()
    world.settle()
    assert (set(world.kafka.existing), set(sink.existing)) == ({"in"}, {"out", "ackwright-lanes"})
    assert world.conditions("TopicsReady", "GuaranteeMet", "Ready") == ["True/AsPlanned", "True/Met", "True/Delivering"]
    status = world.resource["status"]
    assert [t["name"] for t in status["topics"]] == ["in", "out", "ackwright-lanes"]
    assert status["topicsReady"] == "3/3"


def test_the_topic_of_decisions_is_on_the_sinks_cluster() -> None:
    sink = FakeKafka()
    own = {"kafka": {"topic": "out", "bootstrapServers": "s:9092"}}
    world = World({**STATEFUL, "sink": own, "topics": TOPICS}, sink=sink)
    sink.recorder = world.kubernetes
    world.settle()
    at_sink = {"out", "ackwright-lanes", "ackwright-decisions"}
    assert (set(world.kafka.existing), set(sink.existing)) == ({"in"}, at_sink)
    assert world.condition("Ready") == "True/Delivering"
    world.kafka.ids["in"] = "another"
    assert world.settle().condition("Stalled") == "True/TopicReplaced"


def test_drift_of_the_sinks_topic_is_repaired_there() -> None:
    world, sink = two_clusters(config={"retention.ms": "1000"})
    world.settle()
    sink.existing["out"]["retention.ms"] = "2000"
    world.settle()
    assert sink.existing["out"]["retention.ms"] == "1000"
    assert world.condition("Ready") == "True/Delivering"


def test_without_the_sinks_brokers_no_driver_starts_and_the_sources_topics_are_created() -> None:
    world, sink = two_clusters()
    sink.down = AckwrightError(Reason.BROKERS_UNREACHABLE, "s:9092 does not answer")
    world.settle()
    assert set(world.kafka.existing) == {"in"}
    assert "Pod" not in world.kinds()
    assert world.conditions("TopicsReady", "GuaranteeMet") == ["Unknown/BrokersUnreachable"] * 2
    assert "s:9092" in str(world.resource["status"]["conditions"])
    sink.down = None
    assert world.settle().condition("Ready") == "True/Delivering"


def test_brokers_that_go_away_do_not_stop_a_driver() -> None:
    world, sink = two_clusters()
    world.settle()
    sink.down = AckwrightError(Reason.BROKERS_UNREACHABLE, "s:9092 does not answer")
    world.settle()
    assert "Pod" in world.kinds()
    assert world.condition("TopicsReady") == "Unknown/BrokersUnreachable"
    assert [t["name"] for t in world.resource["status"]["topics"]] == ["in", "out", "ackwright-lanes"]


def test_a_recreated_source_topic_pauses_the_pipeline() -> None:
    world, _ = two_clusters()
    world.settle()
    world.kafka.ids["in"] = "another"
    world.settle()
    assert world.condition("Stalled") == "True/TopicReplaced"


def test_a_deleted_pipeline_deletes_its_topics_on_both_clusters() -> None:
    world, sink = two_clusters(deletionPolicy="Delete")
    world.settle()
    assert is_gone(delete(world))
    assert (set(world.kafka.existing), set(sink.existing)) == (set(), {"ackwright-lanes"})


def moving() -> tuple[World, FakeKafka, dict[str, Any]]:
    """A pipeline that copies replicas of a source topic, the brokers of its sink, and its spec without that topic."""
    sink = FakeKafka()
    edited = {**SPEC, "sink": {"kafka": {"topic": "out", "bootstrapServers": "s:9092"}}, "topics": TOPICS}
    moved = {"name": "in2", "partitions": 2}
    world = World({**edited, "source": {"topics": ["in", "in2"]}, "topics": [*TOPICS, moved]}, sink=sink)
    sink.recorder = world.kubernetes
    world.kafka.existing["in2"] = {"min.insync.replicas": "1"}
    world.kafka.shape("in2", 2, 1)
    world.settle()
    assert throttles(world) == ["0", "1", "2", "in2"]
    return world, sink, edited


def test_the_throttle_of_a_topic_that_is_no_longer_read_ends_on_the_sources_cluster() -> None:
    world, sink, edited = moving()
    world.kubernetes.declare("p", edited)
    world.kafka.arrive()
    world.settle()
    assert throttles(world) == []
    assert sink.brokers_settings == {}
    assert world.condition("Ready") == "True/Delivering"
    assert [(t["name"], t["cluster"]) for t in world.resource["status"]["topics"]] == [
        *(("in", "source"), ("out", "sink"), ("ackwright-lanes", "sink"))
    ]


def onto_the_sink(edited: dict[str, Any]) -> dict[str, Any]:
    """The spec of moving() with the moved topic as that of the sink."""
    kafka = {**edited["sink"]["kafka"], "topic": "in2"}
    return {**edited, "sink": {"kafka": kafka}, "topics": [*TOPICS, {"name": "in2", "partitions": 2}]}


def test_an_edit_that_moves_a_throttled_topic_to_the_other_cluster_waits_for_its_replicas() -> None:
    world, sink, edited = moving()
    world.kubernetes.check_ending = Ending(0)
    world.kubernetes.declare("p", onto_the_sink(edited))
    world.settle()
    assert throttles(world) == ["0", "1", "2", "in2"]
    assert "in2" not in sink.existing
    assert world.conditions("Stalled", "JobRunning") == ["True/Repairing", "True/Running"]
    assert "topic in2 cannot move to the other Kafka cluster" in str(world.resource["status"]["conditions"])
    world.kafka.arrive()
    world.settle()
    assert (throttles(world), sink.brokers_settings) == ([], {})
    assert "edit" not in world.resource["status"]
    assert world.condition("TopicsReady") == "False/TopicMissing", "records on the other cluster are to be accepted"


def test_a_deletion_ends_a_throttle_on_its_cluster_though_an_edit_moves_the_topic() -> None:
    world, sink, edited = moving()
    sink.count = 2  # without one of the ids that the source's brokers have
    world.kubernetes.declare("p", onto_the_sink(edited))
    world.settle()
    delete(world).kafka.arrive()
    assert is_gone(world)
    assert throttles(world) == []


def test_a_deletion_ends_the_throttle_of_a_topic_that_is_no_longer_read() -> None:
    world, sink, edited = moving()
    sink.count = 2  # without one of the ids that the source's brokers have
    world.kubernetes.declare("p", edited)
    world.settle()
    delete(world).kafka.arrive()
    assert is_gone(world), "it does not wait for a broker of the sink that does not exist"
    assert throttles(world) == []
