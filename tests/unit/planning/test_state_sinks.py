"""Stateful pipelines: what the plan has for their sinks, and what summary and chain say about them."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.errors import InvalidSpec
from ackwright.planning.chain import chain
from ackwright.planning.clusters import ClusterRole, parts
from ackwright.planning.guarantees import values
from ackwright.planning.permissions import Role, needs
from ackwright.planning.plan import plan
from ackwright.planning.summary import summary
from ackwright.planning.topics import DECISIONS_TOPIC, LANES_TOPIC
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import Guarantee, KafkaSink, from_json, to_json
from ackwright_stream.sinks.kafka import sink
from unit.planning.stateful_pipelines import DELTA, FILES, ICEBERG, SINKS, pipeline, table


def test_the_topic_of_decisions_is_created_and_may_be_used() -> None:
    compiled = plan(pipeline())
    [decisions] = [topic for topic in compiled.topics if topic.name == DECISIONS_TOPIC]
    assert decisions.internal
    assert values(decisions.config)["cleanup.policy"] == "compact"
    for role in Role:
        assert DECISIONS_TOPIC in {need.resource.name for need in needs(compiled)[role]}


def test_control_a_stateless_pipeline_has_no_decisions() -> None:
    source = {"topics": ["in"]}
    sql = {"sql": "SELECT key, value FROM source"}
    compiled = plan(pipeline(state=None, checkpoint=None, source=source, transform=sql))
    assert compiled.state is None
    assert DECISIONS_TOPIC not in {topic.name for topic in compiled.topics}
    for role in (Role.JOB, Role.AUDIT):
        assert DECISIONS_TOPIC not in {need.resource.name for need in needs(compiled)[role]}


ELSEWHERE = {"kafka": {"topic": "out", "bootstrapServers": "other:9092"}}


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_positions_and_decisions_are_on_the_cluster_of_the_output(guarantee: Guarantee) -> None:
    """The job creates markers there; at the source it reads, and copies positions for lag tools."""
    topics = [{"name": "in", "partitions": 3}, {"name": "out", "partitions": 3}]
    compiled = plan(pipeline(guarantee=guarantee, sink=ELSEWHERE, topics=topics))
    at = parts(compiled)
    source, sink = at[ClusterRole.SOURCE], at[ClusterRole.SINK]
    assert [(t.name, t.feeds_state) for t in source.topics] == [("in", True)]
    assert [t.name for t in sink.topics] == ["out", LANES_TOPIC, DECISIONS_TOPIC]
    for role in Role:
        assert DECISIONS_TOPIC not in {need.resource.name for need in needs(source)[role]}
        assert DECISIONS_TOPIC in {need.resource.name for need in needs(sink)[role]}
    assert "ackwright." in {need.resource.name for need in needs(sink)[Role.JOB]}
    [where] = [s.reason for s in compiled.commit if s.name == "decisions topic"]
    assert where == "in the transaction of the positions, on the sink's cluster"
    job = jobspec(compiled, master="local[2]", secrets=None, checkpoint="/volume")
    to = from_json(to_json(job)).sink_of(KafkaSink)
    assert to.cluster is not None
    assert to.cluster.bootstrap_servers == "other:9092"
    assert (to.positions.decisions_topic, to.positions.marker_prefix) == (DECISIONS_TOPIC, "ackwright.")


def test_control_with_one_cluster_there_are_no_markers() -> None:
    compiled = plan(pipeline())
    assert "ackwright." not in {need.resource.name for need in needs(compiled)[Role.JOB]}
    [where] = [s.reason for s in compiled.commit if s.name == "decisions topic"]
    assert where == "in the transaction of the positions"


def test_summary_and_chain_say_that_a_micro_batch_is_one_transaction_of_the_driver() -> None:
    stateful = plan(pipeline())
    assert stateful.promise.after_a_crash.startswith("the micro-batch that was not committed runs again")
    costs = summary(stateful).costs
    assert costs[0].startswith("one transaction of the driver per micro-batch")
    assert not any("at a time" in cost for cost in costs)
    links = {link.name: link for link in chain(stateful).links}
    assert links["sink producer"].subject == "producer of the driver"
    assert "if it is lost, the pipeline halts" in str(links["state"].caveat)
    source = {"topics": ["in"]}
    stateless = plan(pipeline(source=source, state=None, transform={"sql": "SELECT value FROM source"}))
    assert "state" not in {link.name for link in chain(stateless).links}


@pytest.mark.parametrize(
    ("sink", "cost", "commit"),
    [
        (table(), "one transaction of the database per micro-batch; its rows become visible together", "transaction"),
        (DELTA, "one commit to the table and one file beside the state per micro-batch; its rows", "commit"),
        (ICEBERG, "one snapshot of the table and one file beside the state per micro-batch; its rows", "snapshot"),
        (FILES, "one file per micro-batch, also without rows; its rows become visible together", "file"),
    ],
    ids=["postgres", "delta", "iceberg", "files"],
)
@pytest.mark.parametrize("guarantee", Guarantee)
def test_the_cost_is_that_of_the_commit_of_the_sink(
    sink: dict[str, Any], cost: str, commit: str, guarantee: Guarantee
) -> None:
    compiled = plan(pipeline(sink=sink, guarantee=guarantee.value))
    assert summary(compiled).costs[0].startswith(cost)
    position = f"in the same {commit} as the output and the decision of the micro-batch"
    assert compiled.promise.position == position
    stateless = plan(
        pipeline(sink=sink, state=None, source={"topics": ["in"]}, transform={"sql": "SELECT value FROM source"})
    )
    assert stateless.promise.position == f"in the same {commit} as the output"


def test_a_declared_source_feeds_the_state() -> None:
    topics = [{"name": "in", "partitions": 3}, {"name": "out", "partitions": 3}]
    feeding = {t.name for t in plan(pipeline(topics=topics)).topics if t.feeds_state}
    assert feeding == {"in"}
    stateless = {"topics": ["in"], "format": "binary"}
    copy_ = pipeline(topics=topics, state=None, source=stateless, transform={"sql": "SELECT value FROM source"})
    assert not any(t.feeds_state for t in plan(copy_).topics)


@pytest.mark.parametrize(
    ("sink", "mode"),
    [
        (table(), "append"),
        (table(mode="upsert", key=["k"]), "append"),
        (table(mode="upsert", key=["k"], versionColumn="v"), "append"),
        (table(mode="upsert", key=["k"]), "update"),
    ],
)
def test_output_in_postgresql_needs_no_topic_of_decisions(sink: dict[str, Any], mode: str) -> None:
    topics = [{"name": "in", "partitions": 3}]
    compiled = plan(pipeline(sink=sink, state={"outputMode": mode}, topics=topics))
    assert [(topic.name, topic.feeds_state) for topic in compiled.topics] == [("in", True)]
    for role in Role:
        assert DECISIONS_TOPIC not in {need.resource.name for need in needs(compiled)[role]}
    assert values(compiled.commit)["decisions"] == "ackwright.decisions"


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_output_in_kafka_is_written_before_or_behind_the_decision(guarantee: str) -> None:
    compiled = plan(pipeline(guarantee=guarantee))
    order = {"at-least-once": "after", "at-most-once": "before"}[guarantee]
    assert values(compiled.commit)["advance"] == order
    assert "the state counts each record once" in compiled.promise.after_a_crash
    producer = values(compiled.producer)
    assert "transaction.timeout.ms" not in producer
    acks = {"at-least-once": ("all", "true", "2147483647"), "at-most-once": ("0", "false", "0")}[guarantee]
    assert (producer["acks"], producer["enable.idempotence"], producer["retries"]) == acks
    assert compiled.sink_options == ()
    links = {link.name: link for link in chain(compiled).links}
    assert links["sink producer"].subject == "producer of the driver"
    assert "an older row behind a newer one" in str(links["downstream consumer"].caveat)


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("sink", SINKS)
def test_the_state_counts_each_record_under_every_guarantee(guarantee: str, sink: str) -> None:
    strict, weaker = (plan(pipeline(guarantee=g, sink=SINKS[sink])) for g in ("exactly-once", guarantee))
    assert values(weaker.consumer)["failOnDataLoss"] == "true"
    assert values(weaker.spark)["spark.task.maxFailures"] == "4"
    assert weaker.promise.expiry is None
    assert weaker.source == strict.source  # its limits too: a batch is one transaction


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("sink", [name for name in SINKS if name != "kafka"])
def test_a_table_keeps_more_than_is_declared_and_says_so(guarantee: str, sink: str) -> None:
    strict, weaker = (plan(pipeline(guarantee=g, sink=SINKS[sink])) for g in ("exactly-once", guarantee))
    [order] = [setting for setting in weaker.commit if setting.name == "advance"]
    assert order.value == "together"
    assert "two commits would be more work" in order.reason
    assert "nothing is lost or repeated" in summary(weaker).guarantee
    assert summary(weaker).guarantee.startswith(guarantee)
    assert (weaker.sink.link, weaker.sink.reader, weaker.promise.reader) == (
        strict.sink.link,
        strict.sink.reader,
        strict.promise.reader,
    )


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_transactions_of_the_driver_have_settings_for_rows_if_they_carry_rows(guarantee: Guarantee) -> None:
    job = jobspec(plan(pipeline(guarantee=guarantee)), master="local[2]", secrets=None, checkpoint="/volume")
    assert sink.for_driver(job, None).transactions_carry_rows is (guarantee is Guarantee.EXACTLY_ONCE)


@pytest.mark.parametrize("guarantee", list(Guarantee))
@pytest.mark.parametrize(("largest", "kbytes"), [(1_000_000, 65_536), (100_000_000, 195_312)])
def test_the_producer_of_the_driver_has_little_memory_and_room_for_a_record(
    guarantee: Guarantee, largest: int, kbytes: int
) -> None:
    topic = {"name": "out", "partitions": 1, "replicationFactor": 3, "config": {"max.message.bytes": str(largest)}}
    compiled = plan(pipeline(guarantee=guarantee, topics=[topic]))
    assert values(compiled.producer)["queue.buffering.max.kbytes"] == str(kbytes)


def test_fewer_acknowledgements_are_without_idempotence() -> None:
    sink = {"kafka": {"topic": "out", "acks": "1"}}
    producer = values(plan(pipeline(guarantee="at-least-once", sink=sink)).producer)
    assert (producer["acks"], producer["enable.idempotence"], producer["max.in.flight"]) == ("1", "false", "1")


def test_control_a_stateless_upsert_needs_a_version_under_a_weaker_guarantee() -> None:
    sql = {"sql": "SELECT key AS k, value FROM source"}
    stateless = pipeline(
        guarantee="at-least-once",
        state=None,
        checkpoint=None,
        source={"topics": ["in"]},
        transform=sql,
        sink=SINKS["postgres"],
    )
    with pytest.raises(InvalidSpec) as caught:
        plan(stateless)
    assert "spec.sink.postgres.versionColumn" in caught.value.message


def test_a_key_of_several_rows_is_the_caveat_of_a_table_with_state() -> None:
    upserting = plan(pipeline(sink=table(mode="upsert", key=["k"]), state={"outputMode": "update"}))
    links = {link.name: link for link in chain(upserting).links}
    assert str(links["sink table"].caveat).startswith("the key must identify a row")
    appending = {link.name: link for link in chain(plan(pipeline(sink=table()))).links}
    assert appending["sink table"].caveat is None


def test_control_a_stateless_pipeline_into_postgresql_has_no_decisions() -> None:
    sql = {"sql": "SELECT key, value FROM source"}
    compiled = plan(pipeline(state=None, checkpoint=None, source={"topics": ["in"]}, transform=sql, sink=table()))
    assert "decisions" not in values(compiled.commit)
