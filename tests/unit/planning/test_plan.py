"""Validation and delivery plans: accepted specs satisfy the inequalities, and clients accept the settings."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from ackwright.api import spark_conf
from ackwright.api.spec import parse
from ackwright.errors import InvalidSpec
from ackwright.planning.chain import chain
from ackwright.planning.guarantees import TERMS, values
from ackwright.planning.plan import DeliveryPlan, load, plan
from ackwright.planning.topics import LANES_TOPIC
from ackwright_stream.jobspec import Guarantee

MINIMAL: dict[str, Any] = {
    "apiVersion": "ackwright.io/v1alpha1",
    "kind": "DeliveryPipeline",
    "metadata": {"name": "p", "namespace": "ops"},
    "spec": {
        "guarantee": "exactly-once",
        "kafka": {"bootstrapServers": "k:9092"},
        "source": {"topics": ["in"]},
        "transform": {"sql": "SELECT key, value FROM source"},
        "sink": {"kafka": {"topic": "out"}},
        "topics": [{"name": "in", "partitions": 3}, {"name": "out", "partitions": 3}],
    },
}


def document(guarantee: str = "exactly-once", **spec: Any) -> dict[str, Any]:
    resource = copy.deepcopy(MINIMAL)
    resource["spec"] |= {"guarantee": guarantee, **spec}
    return resource


def plan_for(guarantee: str = "exactly-once", **spec: Any) -> DeliveryPlan:
    return plan(parse(document(guarantee, **spec)))


def refused(guarantee: str = "exactly-once", **spec: Any) -> str:
    pipeline = parse(document(guarantee, **spec))
    with pytest.raises(InvalidSpec) as caught:
        plan(pipeline)
    return caught.value.message


def topic(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "in", "partitions": 3, **more}]


@pytest.mark.parametrize(("f", "least", "copies"), [(0, "1", 1), (1, "2", 3), (2, "3", 5)])
def test_topics_are_derived_from_the_tolerated_failures(f: int, least: str, copies: int) -> None:
    for t in plan_for(tolerate={"brokerFailures": f}).topics:
        assert (values(t.config)["min.insync.replicas"], t.replication_factor) == (least, copies)
        assert values(t.config)["unclean.leader.election.enable"] == "false"


def test_the_lanes_topic_is_compacted_and_replicated_like_the_others() -> None:
    lanes = plan_for().topics[-1]
    assert (lanes.name, lanes.partitions, lanes.replication_factor, lanes.internal) == (LANES_TOPIC, 1, 3, True)
    assert values(lanes.config)["cleanup.policy"] == "compact"


@settings(max_examples=200)
@given(st.integers(0, 4), st.none() | st.integers(0, 9), st.none() | st.integers(1, 9))
def test_topics_are_accepted_if_and_only_if_the_durability_inequalities_hold(
    f: int, least: int | None, copies: int | None
) -> None:
    config = {} if least is None else {"min.insync.replicas": str(least)}
    entry = {"name": "in", "partitions": 1, "config": config} | (
        {} if copies is None else {"replicationFactor": copies}
    )
    effective = f + 1 if least is None else least
    holds = effective >= f + 1 and (copies is None or copies >= effective + f)
    pipeline = parse(document(tolerate={"brokerFailures": f}, topics=[entry]))
    if not holds:
        with pytest.raises(InvalidSpec, match=r"≥|positive whole number"):
            plan(pipeline)
    else:
        topic_plan = plan(pipeline).topics[0]
        in_sync = int(values(topic_plan.config)["min.insync.replicas"])
        assert in_sync >= f + 1
        assert topic_plan.replication_factor >= in_sync + f


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"topics": topic(config={"min.insync.replicas": "1"})}, "min.insync.replicas ≥ f+1: 1 < 1+1"),
        ({"topics": topic(replicationFactor=2)}, "replication.factor ≥ min.insync.replicas + f: 2 < 2 + 1"),
        ({"topics": topic(config={"min.insync.replicas": "two"})}, "must be a positive whole number"),
        ({"topics": topic(config={"min.insync.replicas": "²"})}, "must be a positive whole number"),
        (
            {"topics": topic(config={"unclean.leader.election.enable": "TRUE"})},
            "an unclean leader lacks acknowledged records",
        ),
        ({"topics": topic(config={"cleanup.policy": "deleet"})}, "must be delete, compact or both"),
        ({"topics": [*topic(), *topic()]}, "is listed more than once"),
        ({"topics": [{"name": "a.b", "partitions": 1}, {"name": "a_b", "partitions": 1}]}, "in . and _ alone"),
        ({"source": {"topics": ["in", "in"]}}, "spec.source.topics[1]"),
        ({"sink": {"kafka": {"topic": "in"}}}, "read its own output"),
        ({"sink": {"kafka": {"topic": LANES_TOPIC}}}, "Ackwright's own"),
        ({"source": {"topics": ["__consumer_offsets"]}}, "Kafka's own"),
        ({"sink": {"kafka": {"topic": "out", "acks": "1"}}}, "contradicts guarantee: exactly-once"),
        ({"sink": {"kafka": {"topic": "out", "bootstrapServers": "k:9092"}}}, "names brokers of spec.kafka"),
        ({"checkpoint": {"uri": "s3a://bucket/x"}}, "spec.checkpoint.uri = 's3a://bucket/x': is for the state of"),
        ({"checkpoint": {"uri": "gs://bucket/x"}}, "is built for directories, and for buckets of s3a://"),
        ({"checkpoint": {"uri": "here"}}, "must be an absolute path"),
        ({"standby": True, "trigger": {"availableNow": True}}, "a bounded run has no standby"),
        (
            {"trigger": {"availableNow": True, "schedule": "61 3 * * *"}},
            "'61 3 * * *': is no cron expression with a time within fifty years: bad minute",
        ),
        (
            {"trigger": {"availableNow": True, "schedule": "0 3 * * *", "timeZone": "Europe/Atlantis"}},
            "spec.trigger.timeZone = 'Europe/Atlantis': must be the name of a time zone",
        ),
        ({"standby": True, "checkpoint": {"volume": {"size": "1Gi"}}}, "only one node at a time can mount"),
        ({"spark": {"conf": {"spark.dynamicAllocation.enabled": "true"}}}, "use spec.spark.executor.autoscaling"),
        ({"spark": {"conf": {"spark.executor.memory": "1g"}}}, "use spec.spark.executor.memory"),
        ({"spark": {"conf": {"spark.jars": "secret.jar"}}}, "spec.spark.conf['spark.jars']"),
    ],
)
def test_contradictions_and_unsupported_fields_are_refused(spec: dict[str, Any], reason: str) -> None:
    message = refused(**spec)
    assert reason in message
    assert len(message.splitlines()) == 1


def test_preserve_partition_requires_as_many_sink_partitions_as_source_partitions() -> None:
    sink = {"kafka": {"topic": "out", "preservePartition": True}}
    few = [{"name": "in", "partitions": 6}, {"name": "out", "partitions": 3}]
    assert "3 < 6" in refused(sink=sink, topics=few)
    assert plan_for(sink=sink)
    assert plan_for(sink=sink, topics=few[:1])


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_acks_are_allowed_where_they_do_not_contradict(guarantee: Guarantee, acks: str) -> None:
    contradiction = {("at-most-once", "all"), ("at-least-once", "0"), ("exactly-once", "0"), ("exactly-once", "1")}
    sink = {"kafka": {"topic": "out", "acks": acks}}
    if (guarantee.value, acks) in contradiction:
        assert "contradicts" in refused(guarantee, sink=sink)
        return
    delivery_plan = plan_for(guarantee, sink=sink)
    assert values(delivery_plan.sink_options or delivery_plan.producer)["acks"] == acks


def test_a_checkpoint_is_a_volume_or_a_local_path() -> None:
    for checkpoint in ({"volume": {"size": "1Gi"}}, {"uri": "/x"}, {"uri": "file:///x"}):
        assert plan_for(checkpoint=checkpoint)


def test_a_cluster_of_the_sinks_own_is_another_one_than_the_sources() -> None:
    sink = {"kafka": {"topic": "out", "bootstrapServers": "c:1, a:1"}}
    text = refused("exactly-once", kafka={"bootstrapServers": "a:1,b:1"}, sink=sink)
    assert "names brokers of spec.kafka" in text


def test_each_guarantee_derives_its_client_settings() -> None:
    most, least, exactly = plan_for("at-most-once"), plan_for("at-least-once"), plan_for("exactly-once")
    assert values(most.producer).items() >= {"acks": "0", "retries": "0", "enable.idempotence": "false"}.items()
    assert values(most.spark)["spark.task.maxFailures"] == "1"
    assert values(most.consumer)["failOnDataLoss"] == "false"
    assert least.producer == ()
    assert (
        values(least.sink_options).items()
        >= {"acks": "all", "enable.idempotence": "true", "retries": "2147483647"}.items()
    )
    assert (
        values(exactly.producer).items()
        >= {"acks": "all", "enable.idempotence": "true", "retry.backoff.ms": "5"}.items()
    )
    assert int(values(exactly.producer)["max.in.flight"]) <= 5
    assert exactly.sink_options == ()
    for delivery_plan in (most, least, exactly):
        assert delivery_plan.group == "ops.p"
        assert values(delivery_plan.consumer)["isolation.level"] == "read_committed"
        assert values(delivery_plan.positions_consumer)["isolation.level"] == "read_committed"
        assert values(delivery_plan.spark)["spark.speculation"] == "false"
        assert values(delivery_plan.spark)["spark.sql.adaptive.streaming.stateless.enabled"] == "false"


def test_every_setting_has_a_reason_and_a_unique_name() -> None:
    for guarantee in Guarantee:
        delivery_plan = plan_for(guarantee)
        groups = [
            getattr(delivery_plan, n)
            for n in ("producer", "sink_options", "source_options", "consumer", "positions_consumer", "spark", "commit")
        ]
        groups += [t.config for t in delivery_plan.topics] + [
            delivery_plan.upstream.java,
            delivery_plan.upstream.librdkafka,
            delivery_plan.downstream.java,
        ]
        for group in groups:
            assert len(values(group)) == len(group)
            assert all(s.reason and s.value for s in group)


def test_librdkafka_accepts_every_setting_derived_for_it() -> None:
    for guarantee in Guarantee:
        delivery_plan = plan_for(guarantee)
        for producer in (values(delivery_plan.producer), values(delivery_plan.upstream.librdkafka)):
            configuration = {k: (v == "true" if k == "delivery.report.only.error" else v) for k, v in producer.items()}
            Producer(configuration)
            if guarantee is Guarantee.EXACTLY_ONCE:
                # librdkafka refuses a delivery.timeout.ms above transaction.timeout.ms.
                Producer(configuration | {"transactional.id": "t"})
        Consumer(values(delivery_plan.downstream.librdkafka) | {"group.id": "g"}).close()
        Consumer(values(delivery_plan.positions_consumer) | {"group.id": "g"}).close()


def test_producers_accept_records_as_large_as_the_topic_does() -> None:
    large = [{"name": "in", "partitions": 1, "config": {"max.message.bytes": "5000000"}}]
    assert values(plan_for(topics=large).producer)["message.max.bytes"] == "5000000"
    assert values(plan_for("at-least-once", topics=large).sink_options)["max.request.size"] == "5000000"
    assert values(plan_for().producer)["message.max.bytes"] == "1048588"


def test_sparks_page_is_off_and_stops_nothing_if_it_is_on() -> None:
    """docs/operator.md#sparks-page"""
    assert values(plan_for().spark)["spark.ui.enabled"] == "false"
    settings = values(plan_for(spark={"conf": {"spark.ui.enabled": "true"}}).spark)
    assert (settings["spark.ui.enabled"], settings["spark.ui.killEnabled"]) == ("true", "false")
    assert "spec.spark.conf" in refused(spark={"conf": {"spark.ui.killEnabled": "true"}})


# Written independently of the allow-list: a key in both lists is a security hole.
_FORBIDDEN = re.compile(
    r"spark\.(kubernetes|jars|submit|plugins|python|speculation|master|files|archives|repl|security|ssl"
    r"|hadoop(?!\.fs\.s3a\.(endpoint|endpoint\.region|path\.style\.access)$)"  # where a store is, not its credentials
    r"|authenticate|yarn|task|extraListeners|serializer|closure|redaction"
    r"|dynamicAllocation|pyspark|executorEnv|driverEnv)\b.*"
    r"|.*(extraJavaOptions|extraClassPath|extraLibraryPath|ClassPathFirst|extensions|adaptive|Listeners|checkpoint\w*"
    r"|podTemplate.*|defaultJavaOptions|commitProtocolClass|catalog.*|userClass.*|env)$",
    re.IGNORECASE,
)
_KEYS = (
    st.sampled_from(sorted(spark_conf.ALLOWED))
    | st.from_regex(r"\Aspark(\.[a-zA-Z]{1,12}){1,4}\Z")
    | st.text(max_size=12)
)


@settings(max_examples=300)
@given(_KEYS)
def test_no_accepted_spark_setting_is_forbidden(key: str) -> None:
    if spark_conf.refuse(key) is None:
        assert not _FORBIDDEN.fullmatch(key)


@pytest.mark.parametrize(
    "key",
    [
        *(
            "spark.kubernetes.driver.pod.name",
            "spark.kubernetes.driver.podTemplateFile",
            "spark.driver.extraJavaOptions",
            "spark.executor.extraJavaOptions",
        ),
        *("spark.jars", "spark.jars.packages", "spark.submit.deployMode", "spark.master"),
        *("spark.python.worker.reuse", "spark.speculation", "spark.task.maxFailures", "spark.sql.adaptive.enabled"),
        *(
            "spark.sql.adaptive.streaming.stateless.enabled",
            "spark.plugins",
            "spark.extraListeners",
            "spark.redaction.regex",
        ),
        *(
            "spark.kubernetes.authenticate.driver.serviceAccountName",
            "spark.sql.extensions",
            "spark.executor.extraClassPath",
            "spark.hadoop.fs.s3a.secret.key",
        ),
        *("Spark.SQL.ANSI.enabled",),
    ],
)
def test_dangerous_spark_settings_are_refused(key: str) -> None:
    message = refused(spark={"conf": {key: "hunter2"}})
    assert key in message
    assert "hunter2" not in message


def test_an_allowed_spark_setting_replaces_the_derived_one() -> None:
    spark_settings = plan_for(spark={"conf": {"spark.sql.session.timeZone": "Europe/Berlin"}}).spark
    assert values(spark_settings)["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert len(values(spark_settings)) == len(spark_settings)


def violations_of(tmp_path: Path, content: dict[str, Any]) -> list[str]:
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(InvalidSpec) as caught:
        load(file)
    return [v.field for v in caught.value.violations]


def test_violations_of_schema_and_of_validations_are_reported_together(tmp_path: Path) -> None:
    bad = document(
        "exactly_once",
        suspned=True,
        spark={"conf": {"spark.jars": "x"}, "driver": {"memory": "1"}},
        topics=topic(replicationFactor=1),
    )
    bad["spec"]["sink"] = {"kafka": {"topic": "in", "acks": "0"}}
    # The validations of acks and replication depend on the guarantee, which is unknown here, so they do not run.
    assert violations_of(tmp_path, bad) == [
        "spec.guarantee",
        "spec.spark.driver.memory",
        "spec.suspned",
        "spec.sink.kafka.topic",
        "spec.spark.conf['spark.jars']",
    ]


def test_a_wrong_field_causes_no_further_violations(tmp_path: Path) -> None:
    bad = document(topics=topic(replicationFactor=1))
    bad["spec"]["tolerate"] = {"brokerFailure": 0}
    assert violations_of(tmp_path, bad) == ["spec.tolerate.brokerFailure"]


@pytest.mark.parametrize(
    ("guarantee", "spec", "weakest"),
    [
        ("at-most-once", {}, "sink producer"),
        ("at-least-once", {}, "upstream producer"),
        ("at-least-once", {"sink": {"kafka": {"topic": "out", "acks": "1"}}}, "sink producer"),
        ("at-least-once", {"tolerate": {"brokerFailures": 0}}, "source topic"),
        ("exactly-once", {}, "downstream consumer"),
        ("exactly-once", {"topics": [{"name": "in", "partitions": 1}]}, "sink topic"),
        ("exactly-once", {"topics": []}, "source topic"),
        (
            "exactly-once",
            {"source": {"topics": ["in"], "format": "json", "schema": "a INT", "onMalformed": "skip"}},
            "transform",
        ),
    ],
)
def test_the_weakest_link_of_the_chain_per_guarantee(guarantee: str, spec: dict[str, Any], weakest: str) -> None:
    pipeline = parse(document(guarantee, **spec))
    links = chain(plan(pipeline))
    assert links.weakest.name == weakest
    assert links.weakest.caveat


def test_the_chain_has_each_link_in_order() -> None:
    pipeline = parse(MINIMAL)
    assert [link.name for link in chain(plan(pipeline)).links] == [
        *("upstream producer", "source topic", "Spark source", "transform"),
        *("sink producer", "commit", "sink topic", "downstream consumer"),
    ]


def test_the_table_covers_each_guarantee() -> None:
    assert set(TERMS) == set(Guarantee)


def test_an_event_log_is_rolled_because_a_stream_has_no_end() -> None:
    spark = values(plan_for(spark={"eventLog": {"directory": "s3a://logs/spark"}}).spark)
    assert {name: value for name, value in spark.items() if "eventLog" in name} == {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": "s3a://logs/spark",
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.compress": "true",
    }
    assert not any("eventLog" in setting.name for setting in plan_for().spark)
