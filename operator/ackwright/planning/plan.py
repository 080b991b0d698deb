"""From a declared pipeline to its delivery plan: every value that the job will use, each setting with its reason. Pure.

A plan exists only for a valid pipeline, so code that takes a plan does not validate again. `ackwright plan` prints
the plan, and render/jobspec.py puts the same values into the jobspec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ackwright.api import document
from ackwright.api.job_fields import EventLog
from ackwright.api.quantities import duration_ms
from ackwright.api.spec import (
    ACCEPTED_POSITIONS_ANNOTATION,
    ACCEPTED_STATE_LOSS_ANNOTATION,
    DeliveryPipeline,
    Spark,
    examine,
)
from ackwright.errors import InvalidSpec, Violation
from ackwright.formats import needs_registry, subject_of
from ackwright.planning import autoscaling, state, validation
from ackwright.planning.connection import Connection, RegistryConnection, connection, registry_connection
from ackwright.planning.declared import accepted_losses
from ackwright.planning.guarantees import (
    BROKER_MESSAGE_MAX_BYTES,
    CONSUMER,
    EVERY_CLIENT,
    OFFSETS_PER_TRANSACTION,
    OPERATION_TIMEOUT_MS,
    PARTITIONER,
    RESTART,
    SMALLEST_BATCH,
    STREAM_OPTIONS,
    TERMS,
    TRIGGER_INTERVAL_MS,
    GuaranteeTerms,
    Setting,
    Settings,
    positions_consumer,
    replaced,
    topic_consumer,
)
from ackwright.planning.judgement import judge
from ackwright.planning.promises import Promise
from ackwright.planning.schedule import Schedule, schedule_of
from ackwright.planning.topics import TopicPlan, topic_plans
from ackwright.sinks.base import DeadLetters, SinkPlan
from ackwright_stream.jobspec import Autoscaling, Guarantee, Restart, Source, StandbyTimes, StateSettings, Transform


@dataclass(frozen=True)
class ClientSettings:
    """Settings for an application that the pipeline does not run, in either client's names; without credentials."""

    java: Settings
    librdkafka: Settings


@dataclass(frozen=True)
class DeliveryPlan:
    """What a pipeline compiles to: its topics, and everything that the job uses except what depends on the machine it
    runs on."""

    name: str
    namespace: str
    guarantee: Guarantee
    broker_failures: int  # f: how many brokers may be lost
    group: str  # the name under which positions are stored
    topics: tuple[TopicPlan, ...]
    connection: Connection  # to the source's cluster
    sink_connection: Connection | None  # to the sink's cluster, if it is not the source's
    schema_registry: RegistryConnection | None  # None: no format needs it
    source: Source
    transform: Transform
    sink: SinkPlan
    state: StateSettings | None  # without its directory; None: the transform is stateless
    state_secret: str | None  # the name of the Secret of the state's bucket; None: there is none
    slots: int  # tasks of a batch, at most; each of a stateless pipeline has a separate transaction
    autoscaling: Autoscaling | None  # None: the number of executors is fixed
    every_client: Settings  # of all of the job's librdkafka clients
    producer: Settings  # of the tasks' producers of rows (librdkafka)
    positions_consumer: Settings  # librdkafka; also for the ends of the source
    topic_consumer: Settings  # of the consumer that reads a topic to its end (librdkafka)
    sink_options: Settings  # of the producer of Spark's Kafka sink (Java)
    consumer: Settings  # of Spark's Kafka source (Java); a name without a dot is an option of the source itself
    spark: Settings
    stream_options: Settings  # of Spark's query
    trigger_interval_ms: int | None  # None: a bounded run
    available_now: bool
    schedule: Schedule | None  # of the runs; None: without one
    standby: StandbyTimes | None  # None: no standby
    checkpoint: str | None  # directory; None: a temporary one, or a volume
    operation_timeout_ms: int
    restart: Restart
    accepted_losses: Mapping[str, str]  # by source topic, the id of the deleted topic
    accepted_positions: str | None  # fingerprint of offsets that another program has set and a person has accepted
    accepted_state_loss: str | None  # fingerprint of state whose loss a person has accepted
    upstream: ClientSettings  # for the application that writes the source
    downstream: ClientSettings  # for the application that reads the sink

    @property
    def promise(self) -> Promise:
        """What follows from the guarantee with this sink and this state."""
        promise, output = TERMS[self.guarantee].promise, self.sink.summary
        if self.state:
            promise = state.promised(promise, self.guarantee, self.sink.guarantee)
        if output:
            promise = replace(promise, reader=output.reader, cost=output.cost)
        return replace(promise, position=promise.position.format(commit=output.commit if output else "transaction"))

    @property
    def needs_registry(self) -> bool:
        """Whether a format has its schemas in the registry."""
        return self.source.subject is not None or self.sink.has_subject

    @property
    def on_malformed(self) -> str:
        """What a malformed record does, as the spec has it."""
        if self.source.dead_letter_fraction is not None:
            return "deadLetter"
        return "skip" if self.source.skip_malformed else "fail"

    @property
    def data(self) -> Settings:
        """Source, transform and sink, as they are printed."""
        source, function = self.source, self.transform.function
        return (
            Setting("source.topics", ", ".join(source.topics), "spec.source.topics"),
            Setting("source.format", source.format.value, "spec.source.format"),
            *((Setting("source.schema", source.schema, "spec.source.schema"),) if source.schema else ()),
            *(
                (
                    Setting("source.subject", source.subject, "spec.source.subject"),
                    Setting(
                        "source.schemaVersion", str(source.schema_version or "latest"), "spec.source.schemaVersion"
                    ),
                )
                if source.subject
                else ()
            ),
            Setting("source.onMalformed", self.on_malformed, "spec.source.onMalformed"),
            Setting("transform.python", f"{self.transform.module}:{function}", "spec.transform.python")
            if function
            else Setting("transform.sql", self.transform.sql or "", "spec.transform.sql"),
            *state.printed(self.state, self.state_secret),
            *self.sink.data,
            *_dead_letters(self.sink.dead_letters),
            *(
                (Setting("schemaRegistry", self.schema_registry.url, "spec.schemaRegistry"),)
                if self.schema_registry
                else ()
            ),
        )

    @property
    def source_options(self) -> Settings:
        """Where lanes start and how many offsets a batch may have, as they are printed."""
        source = self.source
        start = Setting(
            "startingOffsets",
            source.starting_offsets,
            "for lanes that never had a position; any other lane starts at its position",
        )
        limits = (
            (
                "maxOffsetsPerTrigger",
                source.max_offsets_per_trigger,
                "limits a batch, and so what a crash repeats or abandons",
            ),
            (
                "offsets per transaction",
                source.offsets_per_transaction,
                "offsets of one batch: a task's rows must be written before its transaction times out",
            ),
            (
                "smallest limit",
                source.smallest_batch,
                "offsets of a batch; a transaction that times out reduces the limit to a quarter, not below this",
            ),
        )
        return (start, *(Setting(name, str(limit), reason) for name, limit, reason in limits if limit is not None))

    @property
    def commit(self) -> Settings:
        """How positions move, as it is printed."""
        terms = TERMS[self.guarantee]
        return (
            Setting("group.id", self.group, "the name under which positions are stored"),
            state.order(self.guarantee, self.sink.guarantee)
            if self.state
            else Setting("advance", terms.order, terms.order_reason),
            Setting("slots", str(self.slots), state.slots_reason(self.state)),
            *self.sink.commit,
            Setting("operation.timeout.ms", str(self.operation_timeout_ms), "limit of one call to Kafka"),
        )

    @property
    def batches(self) -> Settings:
        """When batches start, and when a failed query starts again, as it is printed."""
        restart = self.restart
        trigger = (
            Setting(
                "trigger.availableNow", "true", "a bounded run: it ends when what was there at the start is delivered"
            )
            if self.trigger_interval_ms is None
            else Setting(
                "trigger.interval.ms",
                str(self.trigger_interval_ms),
                "from the start of one batch to the start of the next",
            )
        )
        return (
            trigger,
            *(
                (Setting("trigger.schedule", schedule.expression, f"when runs start: {schedule.in_words()}"),)
                if (schedule := self.schedule)
                else ()
            ),
            *(_standby(self.standby) if self.standby else ()),
            *(autoscaling.printed(self.autoscaling) if self.autoscaling else ()),
            *((Setting("checkpoint", self.checkpoint, "spec.checkpoint.uri"),) if self.checkpoint else ()),
            Setting(
                "restart.initial.ms",
                str(restart.initial_ms),
                "wait before the first restart; doubled after each failure",
            ),
            Setting("restart.max.ms", str(restart.max_ms), "longest wait before a restart"),
            Setting(
                "restart.forgive.after.ms", str(restart.forgive_after_ms), "a run without failures resets the wait"
            ),
            Setting("restart.max.attempts", str(restart.max_attempts), "failures in a row before the job exits"),
        )


def plan(pipeline: DeliveryPipeline) -> DeliveryPlan:
    """The plan of a pipeline. Raises InvalidSpec with every violation of its validations."""
    violations = validation.check(pipeline)
    if violations:
        raise InvalidSpec(violations)
    spec, declared = pipeline.spec, connection(pipeline.spec.kafka)
    uri = spec.checkpoint.uri if spec.checkpoint and not state.state_uri(pipeline) else None
    losses = accepted_losses(pipeline.metadata.annotations)
    sink = _sink(pipeline)
    at_sink = connection(sink.cluster, sink.cluster_path) if sink.cluster else None
    registry, stored = spec.schema_registry, state.state_settings(pipeline)
    terms = state.with_state(TERMS[spec.guarantee]) if stored else TERMS[spec.guarantee]
    state_secret = state.state_secret(pipeline)
    return DeliveryPlan(
        name=pipeline.metadata.name,
        namespace=pipeline.metadata.namespace,
        guarantee=spec.guarantee,
        broker_failures=spec.broker_failures,
        group=pipeline.group,
        topics=topic_plans(pipeline),
        connection=declared,
        sink_connection=at_sink,
        schema_registry=registry_connection(registry, OPERATION_TIMEOUT_MS) if registry else None,
        source=_source(pipeline, terms, sink),
        transform=_transform(pipeline),
        sink=sink,
        state=stored,
        state_secret=state_secret,
        slots=autoscaling.processors(spec.spark.executor) if state.has_executors(pipeline) else spec.spark.driver.cores,
        autoscaling=autoscaling.autoscaling(spec.spark.executor),
        every_client=EVERY_CLIENT,
        producer=sink.settings.producer,
        positions_consumer=positions_consumer(pipeline.group),
        topic_consumer=topic_consumer(pipeline.group),
        sink_options=sink.settings.options,
        consumer=(*CONSUMER, *terms.source),
        spark=_spark(terms.spark, spec.spark, state.spark_settings(stored, state_secret)),
        stream_options=() if spec.trigger.available_now or stored else STREAM_OPTIONS,
        trigger_interval_ms=_trigger_interval_ms(pipeline),
        available_now=spec.trigger.available_now,
        schedule=schedule_of(pipeline),
        standby=sink.standby if spec.standby else None,
        checkpoint=uri.removeprefix("file://") if uri else None,
        operation_timeout_ms=OPERATION_TIMEOUT_MS,
        restart=RESTART,
        accepted_positions=pipeline.metadata.annotations.get(ACCEPTED_POSITIONS_ANNOTATION),
        accepted_state_loss=pipeline.metadata.annotations.get(ACCEPTED_STATE_LOSS_ANNOTATION),
        accepted_losses={topic: old for topic, old in losses.items() if topic in spec.source.topics},
        upstream=_clients((*declared.settings, *terms.upstream), producer=True),
        downstream=_clients((*(at_sink or declared).settings, *terms.downstream), producer=False),
    )


def load(path: Path) -> tuple[DeliveryPipeline, DeliveryPlan]:
    """The pipeline that a file declares, and its plan.

    Raises InvalidSpec with every violation at once, of its shape and of its validations, each with its place.
    """
    read = document.load(path)
    pipeline, violations = _validated(read)
    if pipeline is None or violations:
        raise InvalidSpec(read.located(violations))
    return pipeline, plan(pipeline)


def load_judged(path: Path) -> tuple[DeliveryPipeline, DeliveryPlan, tuple[Violation, ...]]:
    """As load(), and the warnings. What Spark or the brokers will certainly refuse is a violation, too."""
    return judged(document.load(path))


def judged(read: document.Document) -> tuple[DeliveryPipeline, DeliveryPlan, tuple[Violation, ...]]:
    """As load_judged(), of a document that was read."""
    pipeline, violations = _validated(read)
    if pipeline is None:
        raise InvalidSpec(read.located(violations))
    findings = judge(pipeline)
    # A placeholder stands for a field that is wrong.
    certain = [v for v in findings.errors if not violations or not _depends(v, violations)]
    if violations or certain:
        raise InvalidSpec(read.located((*violations, *certain)))
    return pipeline, plan(pipeline), read.located(findings.warnings)


def _validated(read: document.Document) -> tuple[DeliveryPipeline | None, tuple[Violation, ...]]:
    pipeline, violations = examine(read.value)
    if pipeline is None:
        return None, violations
    return pipeline, (*violations, *validation.check(pipeline, violations))


def _depends(finding: Violation, violations: Iterable[Violation]) -> bool:
    """Whether a finding may be due to a field that is wrong: one of the part of the spec that it was judged from."""
    parts = ("spec.source", "spec.transform", "spec.sink") if "topics" not in finding.field else ("spec",)
    return any(v.field.startswith(part) or part.startswith(v.field) for v in violations for part in parts)


def _dead_letters(declared: DeadLetters | None) -> Settings:
    if declared is None:
        return ()
    return (
        Setting(f"sink.deadLetter.{declared.kind}", declared.name, f"{declared.path}.{declared.kind}"),
        Setting("sink.deadLetter.maxFraction", str(declared.max_fraction), f"{declared.path}.maxFraction"),
    )


def _source(pipeline: DeliveryPipeline, terms: GuaranteeTerms, sink: SinkPlan) -> Source:
    source, letters = pipeline.spec.source, sink.dead_letters
    ends_transactions = pipeline.spec.sink.declared.LIMITS_TRANSACTIONS
    each = OFFSETS_PER_TRANSACTION if ends_transactions else terms.offsets_per_transaction
    chosen = source.max_offsets_per_trigger
    return Source(
        topics=source.topics,
        starting_offsets=source.starting_offsets,
        max_offsets_per_trigger=chosen,
        offsets_per_transaction=each if chosen is None else None,
        smallest_batch=None if chosen is None and each is None else SMALLEST_BATCH,
        format=source.format,
        schema=source.schema_ddl,
        subject=(source.subject or subject_of(source.topics[0])) if needs_registry(source.format) else None,
        schema_version=source.schema_version,
        writer_schemas={},
        skip_malformed=source.on_malformed == "skip",
        dead_letter_fraction=letters.max_fraction if letters else None,
    )


def _transform(pipeline: DeliveryPipeline) -> Transform:
    transform = pipeline.spec.transform
    if python := transform.python:
        return Transform(module=python.module, function=python.function)
    return Transform(sql=transform.sql)


def _sink(pipeline: DeliveryPipeline) -> SinkPlan:
    stateful = pipeline.spec.state is not None
    sink = pipeline.spec.sink.declared
    return sink.plan(pipeline.spec.guarantee, pipeline.group, _largest_message(pipeline), stateful=stateful)


def _trigger_interval_ms(pipeline: DeliveryPipeline) -> int | None:
    trigger = pipeline.spec.trigger
    if trigger.available_now:
        return None
    return TRIGGER_INTERVAL_MS if trigger.interval is None else duration_ms(trigger.interval)


def _largest_message(pipeline: DeliveryPipeline) -> int:
    """Bytes of the largest record that the brokers accept in a declared topic."""
    declared = [
        int(v)
        for t in pipeline.spec.topics
        if (v := t.config.get("max.message.bytes", "")).isascii() and v.isdigit() and len(v) < 10
    ]
    return max([BROKER_MESSAGE_MAX_BYTES, *declared])


def _spark(derived: Settings, spark: Spark, required: Settings) -> Settings:
    """required: settings that spec.spark.conf cannot change."""
    settings = (
        *derived,
        Setting("spark.driver.cores", str(spark.driver.cores), "spec.spark.driver"),
        Setting("spark.driver.memory", spark.driver.memory, "spec.spark.driver"),
        Setting("spark.executor.instances", str(spark.executor.instances), "spec.spark.executor"),
        Setting("spark.executor.cores", str(spark.executor.cores), "spec.spark.executor"),
        Setting("spark.executor.memory", spark.executor.memory, "spec.spark.executor"),
        *autoscaling.spark_settings(spark.executor),
        *(_event_log(spark.event_log) if spark.event_log else ()),
    )
    for name, value in sorted(spark.conf.items()):
        settings = replaced(settings, name, value, "as set in spec.spark.conf")
    for setting in required:
        settings = replaced(settings, setting.name, setting.value, setting.reason)
    return settings


def _event_log(declared: EventLog) -> Settings:
    return (
        Setting("spark.eventLog.enabled", "true", "Spark's history server reads the event log"),
        Setting("spark.eventLog.dir", declared.directory, "spec.spark.eventLog.directory"),
        Setting(
            "spark.eventLog.rolling.enabled",
            "true",
            "a stream has no end: the history server can compact all files but the last",
        ),
        Setting("spark.eventLog.compress", "true", "the events of a stream are much alike"),
    )


def _standby(times: StandbyTimes) -> Settings:
    return (
        Setting("standby", "true", "a second driver with Spark started takes over when the first is gone"),
        Setting(
            "standby.silent.ms",
            str(times.silent_ms),
            "without a sign of life, a driver that does not end its connection counts as gone",
        ),
        Setting(
            "standby.silent.max.ms",
            str(times.silent_max_ms),
            "doubled to this after a takeover by mistake: then the group's coordinator decides (session.timeout.ms)",
        ),
    )


def _clients(shared: Settings, *, producer: bool) -> ClientSettings:
    if not producer:
        return ClientSettings(shared, shared)
    return ClientSettings(shared, (*shared, PARTITIONER))
