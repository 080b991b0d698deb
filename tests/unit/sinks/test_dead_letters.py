"""Dead letters in a spec: what is refused, what the job gets, and what plan, explain and check show."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from ackwright.api.spec import examine, parse
from ackwright.planning.acls import Kind, Operation, Resource
from ackwright.planning.chain import chain
from ackwright.planning.clusters import needed_topics, parts
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.durability import remarks
from ackwright.planning.guarantees import DEAD_LETTER_PRODUCER, values
from ackwright.planning.judgement import judge
from ackwright.planning.permissions import Role, needs
from ackwright.planning.plan import DeliveryPlan, plan
from ackwright.planning.readiness import Observed, checks
from ackwright.planning.replicas import Partition
from ackwright.planning.summary import summary
from ackwright.planning.topics import MIN_INSYNC
from ackwright.planning.validation import check
from ackwright.render.jobspec import jobspec
from ackwright.sinks.base import Sink
from ackwright.sinks.registry import SinkSpec
from ackwright_stream.jobspec import DeadLetterTopic, KafkaSink, PostgresSink, from_json, to_json
from ackwright_stream.source import malformed_remedy

TOPIC = {"topic": "bad"}
JSON = {"topics": ["in"], "format": "json", "schema": "id INT", "onMalformed": "deadLetter"}
OUTSIDE: dict[str, dict[str, Any]] = {
    "delta": {"path": "s3://lake/orders"},
    "iceberg": {"catalog": {"uri": "https://catalog", "warehouse": "lake"}, "table": "shop.orders"},
    "files": {"path": "s3://lake/orders"},
}
POSTGRES = {"host": "db", "database": "shop", "credentialsSecret": {"name": "login"}, "table": "orders"}


def document(source: dict[str, Any] | None = None, **sink: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "p"},
        "spec": {
            "guarantee": "exactly-once",
            "kafka": {"bootstrapServers": "k:9092"},
            "source": JSON | (source or {}),
            "transform": {"sql": "SELECT CAST(id AS STRING) AS value FROM source"},
            "sink": sink or {"kafka": {"topic": "out", "deadLetter": TOPIC}},
            "topics": [{"name": name, "partitions": 2} for name in ("in", "out", "bad")],
        },
    }


def plan_of(**more: Any) -> DeliveryPlan:
    return plan(parse(document(**more)))


def problems(described: dict[str, Any]) -> list[tuple[str, str]]:
    pipeline, violations = examine(described)
    every = violations if pipeline is None else (*violations, *check(pipeline, violations))
    return [(v.field, v.problem) for v in every]


def to(topic: str, **more: Any) -> dict[str, Any]:
    return {"kafka": {"topic": "out", "deadLetter": {"topic": topic, **more}}}


@pytest.mark.parametrize(
    ("source", "sink", "field", "problem"),
    [
        ({}, {"kafka": {"topic": "out"}}, "spec.source.onMalformed", "needs the deadLetter of the sink"),
        ({}, {"delta": {"path": "/x"}}, "spec.source.onMalformed", "needs the deadLetter of the sink"),
        ({}, {"postgres": POSTGRES}, "spec.source.onMalformed", "needs the deadLetter of the sink"),
        ({"onMalformed": "skip"}, to("bad"), "spec.source.onMalformed", "must be deadLetter"),
        (
            {"format": "string", "schema": None},
            to("bad"),
            "spec.source.onMalformed",
            "is for the formats json, avro, jsonSchema and protobuf",
        ),
        ({}, to("in"), "spec.sink.kafka.deadLetter.topic", "is also a source"),
        ({}, to("out"), "spec.sink.kafka.deadLetter.topic", "is also the topic of the output"),
        ({}, to("ackwright-lanes"), "spec.sink.kafka.deadLetter.topic", "is a topic of Ackwright's own"),
        ({}, to("__transaction_state"), "spec.sink.kafka.deadLetter.topic", "is a topic of Kafka's own"),
        ({}, to("bad", maxFraction=0), "spec.sink.kafka.deadLetter.maxFraction", "at least 0.0001"),
        ({}, to("bad", maxFraction=1.1), "spec.sink.kafka.deadLetter.maxFraction", "at most 1"),
        (
            {},
            {"postgres": POSTGRES | {"deadLetter": {"table": "orders"}}},
            "spec.sink.postgres.deadLetter",
            "is also the table of the output",
        ),
    ],
)
def test_refused(source: dict[str, Any], sink: dict[str, Any], field: str, problem: str) -> None:
    described = document(source, **sink)
    described["spec"]["source"] = {name: v for name, v in described["spec"]["source"].items() if v is not None}
    assert [(f, problem in text) for f, text in problems(described)] == [(field, True)]


@pytest.mark.parametrize(
    ("sink", "field"),
    [
        ({"postgres": POSTGRES}, "sink.postgres.deadLetter.table"),
        (
            {"kafka": {"topic": "out"}},
            "sink.kafka.deadLetter.topic (a topic must exist or be listed under spec.topics)",
        ),
        (
            {"delta": {"path": "/x"}},
            "sink.delta.deadLetter.topic (a topic must exist or be listed under spec.topics)",
        ),
    ],
)
def test_the_remedy_names_the_field_of_the_sink_that_is_declared(sink: dict[str, Any], field: str) -> None:
    pipeline, _ = examine(document({}, **sink))
    assert pipeline is not None
    (violation,) = check(pipeline)
    assert violation.remedy == f"declare {field}, or use skip"


@pytest.mark.parametrize(("kind", "sink"), SinkSpec.kinds().items())
def test_the_job_names_the_same_field_as_the_spec(kind: str, sink: type[Sink]) -> None:
    field = sink.model_fields["dead_letter"].annotation
    model = next(m for m in get_args(field) if m is not type(None))
    assert sink.DEAD_LETTERS_IN in model.model_fields
    assert f"deadLetter and sink.{kind}.deadLetter.{sink.DEAD_LETTERS_IN}" in malformed_remedy(kind)
    assert ("spec.topics" in malformed_remedy(kind)) == (sink.DEAD_LETTERS_IN == "topic")


def test_a_sink_without_dead_letters_leaves_the_producer_and_skip() -> None:
    assert malformed_remedy("mine") == "correct its producer, or set source.onMalformed: skip"


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        ("in", "is also a source"),
        ("ackwright-lanes", "is a topic of Ackwright's own"),
        ("__consumer_offsets", "is a topic of Kafka's own"),
    ],
)
def test_topics_that_are_refused_of_a_sink_outside_kafka(name: str, topic: str, problem: str) -> None:
    described = document(**outside(name, topic))
    assert [(f, problem in text) for f, text in problems(described)] == [(f"spec.sink.{name}.deadLetter.topic", True)]


def outside(name: str, topic: str = "bad", **more: Any) -> dict[str, Any]:
    return {name: {**OUTSIDE[name], "deadLetter": {"topic": topic, **more}}}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_job_outside_kafka_gets_topic_and_limit(name: str) -> None:
    job = jobspec(plan_of(**outside(name, maxFraction=0.5)), master="local[2]", secrets=None)
    assert job.source.dead_letter_fraction == 0.5
    letters: Any = job.sink
    assert letters.dead_letters == DeadLetterTopic("bad", values(DEAD_LETTER_PRODUCER))
    assert from_json(to_json(job)) == job
    without = jobspec(
        plan(parse(document({"onMalformed": "skip"}, **{name: OUTSIDE[name]}))), master="local[2]", secrets=None
    )
    assert from_json(to_json(without)) == without


@pytest.mark.parametrize("name", OUTSIDE)
def test_plan_explain_and_permissions_have_a_topic_beside_a_sink_outside_kafka(name: str) -> None:
    delivery_plan = plan_of(**outside(name))
    assert values(delivery_plan.data)["sink.deadLetter.topic"] == "bad"
    links = [(link.name, link.subject) for link in chain(delivery_plan).links]
    assert ("dead-letter topic", "bad") in links
    assert "sink topic" not in dict(links)
    assert summary(delivery_plan).flow.endswith(", malformed records → bad")
    assert needed_topics(delivery_plan) == ("in", "bad")
    required = needs(delivery_plan)
    job = {n.resource.name: set(n.operations) for n in required[Role.JOB] if n.resource.kind is Kind.TOPIC}
    assert job["bad"] == {Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
    assert Operation.READ in {o for n in required[Role.AUDIT] if n.resource.name == "bad" for o in n.operations}
    assert judge(parse(document(**outside(name)))).warnings == ()


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize(
    ("config", "policy"),
    [({}, "compact"), ({"cleanup.policy": "compact,delete"}, "compact,delete"), ({"cleanup.policy": "delete"}, None)],
)
def test_the_topic_of_keyed_dead_letters_is_compacted(name: str, config: dict[str, str], policy: str | None) -> None:
    described = document(**outside(name))
    described["spec"]["topics"] = [{"name": topic, "partitions": 2, "config": config} for topic in ("other", "bad")]
    if policy is None:
        assert [f for f, _ in problems(described)] == ["spec.topics[1].config['cleanup.policy']"]
        return
    topics = plan(parse(described)).topics
    policies = {t.name: values(t.config).get("cleanup.policy") for t in topics}
    (reason,) = (s.reason for t in topics for s in t.config if t.name == "bad" and s.name == "cleanup.policy")
    assert reason.startswith("as declared" if config else "a dead letter that is written again")
    assert policies == {"other": config.get("cleanup.policy"), "bad": policy}


@pytest.mark.parametrize(("policy", "is_refused"), [("delete", False), ("compact", True), ("compact,delete", True)])
def test_a_topic_that_keeps_one_record_of_each_key_is_no_dead_letter_topic_of_kafka(
    policy: str, is_refused: bool
) -> None:
    described = document()
    config = {"cleanup.policy": policy}
    described["spec"]["topics"] = [{"name": topic, "partitions": 2, "config": config} for topic in ("other", "bad")]
    assert [f for f, _ in problems(described)] == ["spec.topics[1].config['cleanup.policy']"] * is_refused


def observed(config: dict[str, str]) -> ObservedTopic:
    return ObservedTopic("bad", "id", (Partition(0, (1, 2, 3), frozenset((1, 2, 3)), 1),), {MIN_INSYNC: "2", **config})


@pytest.mark.parametrize(("policy", "is_unfit"), [("delete", True), ("compact", False), ("compact,delete", False)])
def test_a_topic_that_is_not_declared_is_remarked_unless_it_is_compacted(policy: str, is_unfit: bool) -> None:
    topics = {"bad": observed({"cleanup.policy": policy})}
    described = document(**outside("files"))
    described["spec"]["topics"].pop()
    keyed = plan(parse(described))
    racks = {1: "a", 2: "b", 3: "c"}
    assert [c.reason for c in remarks(keyed, topics, racks)] == ["NotCompacted"] * is_unfit
    (check_,) = (
        c for c in checks(Observed(racks, topics=topics), keyed, needed_topics(keyed)) if c.name == "topic bad"
    )
    assert check_.verdict == ("warning" if is_unfit else "ok")
    of_kafka = document()
    of_kafka["spec"]["topics"].pop()
    assert remarks(plan(parse(of_kafka)), topics, racks) == ()


def test_avro_and_json_are_accepted() -> None:
    assert problems(document()) == []
    avro = document({"format": "avro", "schema": None})
    avro["spec"]["source"].pop("schema")
    avro["spec"]["schemaRegistry"] = {"url": "http://r"}
    assert problems(avro) == []


def test_the_job_gets_topic_and_limit() -> None:
    job = jobspec(plan_of(), master="local[2]", secrets=None)
    assert job.source.dead_letter_fraction == 0.05
    assert not job.source.skip_malformed
    assert job.sink_of(KafkaSink).dead_letters == DeadLetterTopic("bad", values(DEAD_LETTER_PRODUCER))
    assert from_json(to_json(job)) == job


def test_the_job_gets_the_table() -> None:
    sink = POSTGRES | {"deadLetter": {"table": "bad_orders", "maxFraction": 1}, "mode": "upsert", "key": ["id"]}
    job = jobspec(plan_of(postgres=sink), master="local[2]", secrets="/secrets")
    assert from_json(to_json(job)) == job
    declared = job.sink_of(PostgresSink)
    letters = declared.of_dead_letters
    assert letters is not None
    assert (declared.table, letters.table, letters.upsert, letters.key) == ("orders", "bad_orders", False, ())


def test_plan_and_explain_show_them() -> None:
    delivery_plan = plan_of()
    shown = values(delivery_plan.data)
    assert shown["source.onMalformed"] == "deadLetter"
    assert (shown["sink.deadLetter.topic"], shown["sink.deadLetter.maxFraction"]) == ("bad", "0.05")
    links = {link.name: link for link in chain(delivery_plan).links}
    assert links["sink topic"].subject == "out"
    assert links["dead-letter topic"].subject == "bad"
    assert links["dead-letter topic"].caveat is None
    assert links["transform"].caveat == (
        "malformed records go to the topic bad; with more than 0.05 of the records the pipeline halts"
    )
    assert summary(delivery_plan).flow == "in → out, malformed records → bad"


def test_an_undeclared_topic_has_to_exist_and_may_be_unsafe() -> None:
    described = document()
    described["spec"]["topics"].pop()
    delivery_plan = plan(parse(described))
    assert "bad" in needed_topics(delivery_plan)
    (link,) = (link for link in chain(delivery_plan).links if link.name == "dead-letter topic")
    assert "not declared under spec.topics" in (link.caveat or "")


def test_a_declared_topic_is_no_unused_one() -> None:
    assert judge(parse(document())).warnings == ()


def test_permissions_include_the_topic() -> None:
    required = needs(plan_of())
    of_topic = {
        role: {o for need in required[role] if need.resource == Resource(Kind.TOPIC, "bad") for o in need.operations}
        for role in Role
    }
    assert of_topic[Role.JOB] == {Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
    assert {Operation.CREATE, Operation.ALTER_CONFIGS} <= of_topic[Role.OPERATOR]
    assert Operation.READ in of_topic[Role.AUDIT]


def test_on_two_clusters_the_topic_is_with_the_output() -> None:
    sink = {"kafka": {"topic": "out", "bootstrapServers": "other:9092", "deadLetter": TOPIC}}
    source, at_sink = parts(plan_of(**sink)).values()
    assert [t.name for t in source.topics if not t.internal] == ["in"]
    assert {"out", "bad"} <= set(needed_topics(at_sink))
