"""From a declared pipeline to a plan: every setting that the guarantee needs, each with its reason. Pure.

A plan exists only of a pipeline that keeps the rules, so whatever takes a plan need not ask again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ackwright.api import document
from ackwright.api.spec import DeliveryPipeline, Kafka, Spark, examine
from ackwright.errors import InvalidSpec
from ackwright.planning import validation
from ackwright.planning.guarantees import (
    BROKER_MESSAGE_MAX_BYTES,
    CONSUMER,
    POSITIONS_CONSUMER,
    TERMS,
    Setting,
    Settings,
    replaced,
)
from ackwright.planning.topics import TopicPlan, topic_plans
from ackwright_stream.jobspec import Guarantee


@dataclass(frozen=True)
class ClientSettings:
    """Settings for an application that the pipeline does not run, in the names of either client. Without credentials."""

    java: Settings
    librdkafka: Settings


@dataclass(frozen=True)
class DeliveryPlan:
    """What a pipeline compiles to. group: the consumer group whose offsets are the positions; broker_failures: f.

    producer, positions_consumer: librdkafka names. sink_options, consumer: Java names. source_options: options of Spark's Kafka
    source. commit: how positions move. upstream, downstream: for whoever writes the source and whoever reads the sink.
    """

    name: str
    namespace: str
    guarantee: Guarantee
    broker_failures: int
    group: str
    topics: tuple[TopicPlan, ...]
    producer: Settings
    sink_options: Settings
    source_options: Settings
    consumer: Settings
    positions_consumer: Settings
    spark: Settings
    commit: Settings
    upstream: ClientSettings
    downstream: ClientSettings


def plan(pipeline: DeliveryPipeline) -> DeliveryPlan:
    """The plan of a pipeline. Raises InvalidSpec with every rule that its fields break together."""
    violations = validation.check(pipeline)
    if violations:
        raise InvalidSpec(violations)
    spec, terms = pipeline.spec, TERMS[pipeline.spec.guarantee]
    security = connection(spec.kafka)
    return DeliveryPlan(
        name=pipeline.metadata.name,
        namespace=pipeline.metadata.namespace,
        guarantee=spec.guarantee,
        broker_failures=spec.broker_failures,
        group=pipeline.group,
        topics=topic_plans(pipeline),
        producer=_producer(pipeline),
        sink_options=_sink_options(pipeline),
        source_options=_source_options(pipeline),
        consumer=CONSUMER,
        positions_consumer=POSITIONS_CONSUMER,
        spark=_spark(terms.spark, spec.spark),
        commit=(
            Setting("group.id", pipeline.group, "positions are consumer-group offsets: every lag tool works"),
            *terms.commit,
        ),
        upstream=_clients((*security, *terms.upstream), producer=True),
        downstream=_clients((*security, *terms.downstream), producer=False),
    )


def load(path: Path) -> tuple[DeliveryPipeline, DeliveryPlan]:
    """The pipeline that a file declares, and its plan. Raises InvalidSpec with every violation, of shape and of rules, at once."""
    pipeline, violations = examine(document.read(path))
    if pipeline is None:
        raise InvalidSpec(violations)
    if violations:
        raise InvalidSpec((*violations, *validation.check(pipeline, violations)))
    return pipeline, plan(pipeline)


def connection(kafka: Kafka) -> Settings:
    """How to reach the brokers, in names that Java clients and librdkafka share. Without paths and credentials."""
    protocol = ("SASL_" if kafka.auth else "") + ("SSL" if kafka.tls else "PLAINTEXT")
    servers = ",".join(
        server.strip() for server in kafka.bootstrap_servers.split(",")
    )  # YAML may have folded it into several lines
    settings: Settings = (
        Setting("bootstrap.servers", servers, "spec.kafka.bootstrapServers"),
        Setting("security.protocol", protocol, "spec.kafka.auth and spec.kafka.tls"),
    )
    if kafka.tls:
        verified = Setting(
            "ssl.endpoint.identification.algorithm", "https", "the certificate has to be of the host that was asked for"
        )
        settings = (*settings, verified)
    return (*settings, Setting("sasl.mechanism", kafka.auth.mechanism, "spec.kafka.auth")) if kafka.auth else settings


def _producer(pipeline: DeliveryPipeline) -> Settings:
    terms, sink = TERMS[pipeline.spec.guarantee], pipeline.spec.sink.kafka
    if not terms.producer:
        return ()
    settings = (*terms.producer, _largest("message.max.bytes", pipeline))
    return (
        replaced(settings, "acks", sink.acks, "as chosen in spec.sink.kafka.acks")
        if sink and _chosen(pipeline) and sink.acks
        else settings
    )


def _sink_options(pipeline: DeliveryPipeline) -> Settings:
    terms = TERMS[pipeline.spec.guarantee]
    if not terms.sink:
        return ()
    settings = (*terms.sink, _largest("max.request.size", pipeline))
    if _chosen(pipeline):  # only "1" is left to choose
        settings = replaced(
            settings, "acks", "1", "as chosen: what the leader alone has acknowledged is lost with the leader"
        )
        settings = replaced(settings, "enable.idempotence", "false", "needs acks=all")
        settings = replaced(
            settings,
            "max.in.flight.requests.per.connection",
            "1",
            "without idempotence a request that is sent again would overtake",
        )
    return settings


def _chosen(pipeline: DeliveryPipeline) -> bool:
    sink = pipeline.spec.sink.kafka
    return sink is not None and sink.acks not in (None, TERMS[pipeline.spec.guarantee].acks)


def _largest(name: str, pipeline: DeliveryPipeline) -> Setting:
    declared = [
        int(v)
        for t in pipeline.spec.topics
        if (v := t.config.get("max.message.bytes", "")).isascii() and v.isdigit() and len(v) < 10
    ]
    largest = max([BROKER_MESSAGE_MAX_BYTES, *declared])
    return Setting(
        name, str(largest), "a record that the brokers take must not fail in the client, whose own limit is lower"
    )


def _source_options(pipeline: DeliveryPipeline) -> Settings:
    source = pipeline.spec.source
    settings = (
        *TERMS[pipeline.spec.guarantee].source,
        Setting(
            "startingOffsets",
            source.starting_offsets,
            "for lanes that never had a position; later ones start at their position",
        ),
    )
    if source.max_offsets_per_trigger is None:
        return settings
    limit = Setting(
        "maxOffsetsPerTrigger",
        str(source.max_offsets_per_trigger),
        "bounds a batch, and so what a crash repeats or abandons",
    )
    return (*settings, limit)


def _spark(derived: Settings, spark: Spark) -> Settings:
    settings = (
        *derived,
        Setting("spark.driver.cores", str(spark.driver.cores), "spec.spark.driver"),
        Setting("spark.driver.memory", spark.driver.memory, "spec.spark.driver"),
        Setting("spark.executor.instances", str(spark.executor.instances), "spec.spark.executor"),
        Setting("spark.executor.cores", str(spark.executor.cores), "spec.spark.executor"),
        Setting("spark.executor.memory", spark.executor.memory, "spec.spark.executor"),
    )
    for name, value in sorted(spark.conf.items()):
        settings = replaced(settings, name, value, "as set in spec.spark.conf")
    return settings


def _clients(shared: Settings, *, producer: bool) -> ClientSettings:
    if not producer:
        return ClientSettings(shared, shared)
    partitioner = Setting(
        "partitioner",
        "murmur2_random",
        "a key goes to the partition to which Java clients send it, so its order is kept",
    )
    return ClientSettings(shared, (*shared, partitioner))
