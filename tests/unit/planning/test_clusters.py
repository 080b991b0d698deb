"""A plan on two Kafka clusters: which topics, permissions and checks belong to which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ackwright.api.spec import examine, parse
from ackwright.errors import InvalidSpec
from ackwright.planning.acls import Kind, Operation, Resource
from ackwright.planning.changes import changes
from ackwright.planning.clusters import ClusterRole, needed_topics, parts, role_of
from ackwright.planning.permissions import Role, needs
from ackwright.planning.plan import DeliveryPlan, load, plan
from ackwright.render.jobspec import clusters, jobspec
from ackwright.render.pods import secret_names
from ackwright_stream.jobspec import KafkaSink, from_json, to_json

EXAMPLE = Path(__file__).parents[3] / "examples" / "two-clusters.yaml"
SOURCE, SINK = ClusterRole.SOURCE, ClusterRole.SINK


def document(**kafka: Any) -> dict[str, Any]:
    """A pipeline from the cluster a to the cluster b; kafka: further fields of the sink."""
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "p", "namespace": "ops"},
        "spec": {
            "guarantee": "exactly-once",
            "kafka": {"bootstrapServers": "a:9092"},
            "source": {"topics": ["in"]},
            "transform": {"sql": "SELECT key, value FROM source"},
            "sink": {"kafka": {"topic": "out", "bootstrapServers": "b:9092", **kafka}},
            "topics": [{"name": name, "partitions": 2} for name in ("in", "out")],
        },
    }


def plan_for(**kafka: Any) -> DeliveryPlan:
    return plan(parse(document(**kafka)))


def test_each_topic_is_on_one_cluster_and_that_of_the_lanes_on_the_sinks() -> None:
    of_plan = parts(plan_for())
    assert [t.name for t in of_plan[SOURCE].topics] == ["in"]
    assert [t.name for t in of_plan[SINK].topics] == ["out", "ackwright-lanes"]
    assert (needed_topics(of_plan[SOURCE]), needed_topics(of_plan[SINK])) == (("in",), ("out",))
    assert (of_plan[SOURCE].sink.in_kafka, of_plan[SINK].sink.in_kafka) == (False, True)


def test_a_topic_that_only_the_transform_names_is_on_the_sinks_cluster() -> None:
    assert role_of(plan_for(), "routed") is SINK


def test_a_plan_on_one_cluster_is_its_only_part() -> None:
    one = document()
    del one["spec"]["sink"]["kafka"]["bootstrapServers"]
    one_plan = plan(parse(one))
    assert parts(one_plan) == {SOURCE: one_plan}
    assert role_of(one_plan, "out") is SOURCE


def test_the_job_reads_at_the_source_and_commits_at_the_sink() -> None:
    def of_job(role: ClusterRole) -> dict[Resource, set[Operation]]:
        return {need.resource: set(need.operations) for need in needs(parts(plan_for())[role])[Role.JOB]}

    read, write = {Operation.READ, Operation.DESCRIBE}, {Operation.WRITE, Operation.DESCRIBE}
    markers = Resource(Kind.TOPIC, "ackwright.", prefixed=True)
    assert of_job(SOURCE) == {
        Resource(Kind.TOPIC, "in"): read,
        Resource(Kind.GROUP, "ops.p"): read,
        Resource(Kind.GROUP, "ops.p.lag"): read,
    }
    at_sink = of_job(SINK)
    assert at_sink[markers] == {*read, Operation.CREATE, Operation.ALTER}
    assert at_sink[Resource(Kind.TOPIC, "out")] == {*write, Operation.DESCRIBE_CONFIGS}
    assert at_sink[Resource(Kind.GROUP, "ops.p")] == read
    assert Resource(Kind.TOPIC, "in") not in at_sink


def test_the_audit_may_read_the_positions_of_the_markers() -> None:
    of_audit = needs(parts(plan_for())[SINK])[Role.AUDIT]
    assert Resource(Kind.TOPIC, "ackwright.", prefixed=True) in {need.resource for need in of_audit}


def test_the_jobspec_has_both_connections_and_no_secret() -> None:
    declared, delivery = load(EXAMPLE)
    job = jobspec(delivery, master="local[2]", secrets="/etc/secrets")
    assert from_json(to_json(job)) == job
    own = job.sink_of(KafkaSink).cluster
    assert own is not None
    assert own.bootstrap_servers == "eu-kafka.example.com:9093"
    assert own.credentials == "/etc/secrets/eu-kafka"
    assert own.librdkafka["ssl.ca.location"] == "/etc/secrets/eu-ca/ca.crt"
    assert own.every_client == job.cluster.every_client
    assert job.cluster.credentials == "/etc/secrets/us-kafka"
    assert secret_names(declared) == ("us-kafka", "eu-kafka", "eu-ca")
    assert set(clusters(delivery, "/etc/secrets")) == {SOURCE, SINK}


def test_the_reader_of_the_output_gets_the_sinks_address() -> None:
    delivery = plan_for()
    assert ("bootstrap.servers", "b:9092") in {(s.name, s.value) for s in delivery.downstream.java}
    assert ("bootstrap.servers", "a:9092") in {(s.name, s.value) for s in delivery.upstream.java}


def test_auth_and_tls_of_the_sink_need_its_address() -> None:
    one = document(tls={})
    del one["spec"]["sink"]["kafka"]["bootstrapServers"]
    _, violations = examine(one)
    assert [v.field for v in violations] == ["spec.sink.kafka.bootstrapServers"]


def test_a_source_topic_whose_marker_would_have_too_long_a_name_is_refused() -> None:
    long = document()
    long["spec"]["source"]["topics"] = ["x" * 217]
    long["spec"]["topics"] = []
    with pytest.raises(InvalidSpec, match=r"spec.source.topics\[0\].*217 > 216"):
        plan(parse(long))
    long["spec"]["source"]["topics"] = ["x" * 216]
    assert plan(parse(long))


@pytest.mark.parametrize("name", ["ackwright.x", "ackwright-lanes"])
def test_names_of_ackwrights_own_topics_are_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match="Ackwright's own"):
        plan_for(topic=name)


def test_a_cluster_of_the_sinks_own_is_neither_added_nor_removed() -> None:
    one = document()
    del one["spec"]["sink"]["kafka"]["bootstrapServers"]
    (change,) = changes(parse(one), parse(document()))
    assert (change.field, change.change) == ("spec.sink.kafka.bootstrapServers", "immutable")
    (moved,) = changes(parse(document()), parse(document(bootstrapServers="c:9092")))
    assert moved.change == "restart"
