"""The sink kafka: topics of the cluster that the source is on, or of another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field

from ackwright.api.checks import Broken, Cel, Check, Validation, literal, unchangeable_presence
from ackwright.api.fields import About
from ackwright.api.quantities import BootstrapServers, RecordSchema, Subject, Switch, TopicName
from ackwright.api.secret_fields import Auth, Kafka, Tls
from ackwright.api.topic_names import not_reserved
from ackwright.formats import WITH_REGISTRY, needs_registry, schema_is_json, subject_of, writes_columns
from ackwright.planning.acls import Kind, Need, Operation, Resource
from ackwright.planning.guarantees import STATE_PRODUCER, STATE_QUEUE_KBYTES, TERMS, Acks, Setting, Settings, replaced
from ackwright.sinks import kafka_dead_letters, kafka_positions, kafka_state
from ackwright.sinks.base import (
    DeadLetters,
    Link,
    OutputColumn,
    OutputProblem,
    Section,
    Sink,
    SinkContext,
    SinkSettings,
)
from ackwright.sinks.kafka_dead_letters import KafkaDeadLetter
from ackwright.wording import listed
from ackwright_stream import jobspec
from ackwright_stream.jobspec import Format, Guarantee, StandbyTimes

_PATH = "spec.sink.kafka"
_REGISTERED = listed(WITH_REGISTRY, "or")
_CHOSEN = f"as chosen in {_PATH}.acks"


class KafkaSink(Sink):
    """spec.sink.kafka."""

    OPTIONS_TITLE = "Spark's Kafka sink (Java)"
    IN_KAFKA = True
    TAKES_DECISIONS = True
    WRITES_APART = True
    CLUSTER_PATH = _PATH

    topic: Annotated[
        TopicName | None, About("The topic for records whose column topic is null, or if there is no such column.")
    ] = None
    format: Annotated[Format, About("How values are written.")] = Format.BINARY
    subject: Annotated[
        Subject | None,
        About(f"The subject in which the schema of {_REGISTERED} values is registered. Default: <topic>-value."),
    ] = None
    schema_text: Annotated[
        RecordSchema | None,
        Field(alias="schema"),
        About(
            f"The schema of {_REGISTERED} values: JSON, or for protobuf the text of a .proto file. Default: derived "
            "from the columns of the output."
        ),
    ] = None
    acks: Annotated[
        Literal["0", "1", "all"] | None,
        About("Which acknowledgement of the brokers to wait for, where the guarantee leaves a choice."),
    ] = None
    preserve_partition: Annotated[
        Switch, About("Write each record to the partition whose number is that of its source partition.")
    ] = False
    bootstrap_servers: Annotated[
        BootstrapServers | None,
        About(
            "The brokers of the sink, if it is on another cluster than the source: host:port, several separated by "
            "commas. That cluster has the output, the committed offsets and the topics ackwright-lanes and "
            "ackwright-decisions."
        ),
        unchangeable_presence(
            "cannot be added or removed: the committed offsets are on the sink's cluster, and another one has none",
            "write the old value, or create another pipeline",
        ),
    ] = None
    auth: Annotated[Auth | None, About("SASL authentication at these brokers. Default: none.")] = None
    tls: Annotated[
        Tls | None,
        About("Encrypted connections to these brokers. Without caSecret the CAs that the image trusts are trusted."),
    ] = None

    dead_letter: Annotated[
        KafkaDeadLetter | None, About("Where malformed records go, with source.onMalformed: deadLetter.")
    ] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return _CHECKS

    @classmethod
    def validations(cls) -> tuple[Validation[SinkContext[KafkaSink]], ...]:
        return _VALIDATIONS

    def data(self) -> Settings:
        servers = self.bootstrap_servers
        return (
            *((Setting("sink.bootstrapServers", servers, f"{_PATH}.bootstrapServers"),) if servers else ()),
            Setting("sink.topic", self.topic or "from the column topic", f"{_PATH}.topic"),
            Setting("sink.format", self.format.value, f"{_PATH}.format"),
            *self._schema_data(),
            Setting("sink.preservePartition", str(self.preserve_partition).lower(), f"{_PATH}.preservePartition"),
        )

    @classmethod
    def has_subject_cel(cls, path: str) -> str:
        return f"({' || '.join(f'{path}.format == {literal(format)}' for format in WITH_REGISTRY)})"

    @property
    def has_subject(self) -> bool:
        return needs_registry(self.format)

    def topics(self) -> tuple[str, ...]:
        return tuple(topic for topic in (self.topic, self.dead_letter and self.dead_letter.topic) if topic)

    def dead_letters(self) -> DeadLetters | None:
        return self.dead_letter.declared if self.dead_letter else None

    @property
    def routed(self) -> bool:
        return self.topic is None

    def settings(self, guarantee: Guarantee, largest_message: int) -> SinkSettings:
        terms = TERMS[guarantee]
        return SinkSettings(
            producer=self._producer(guarantee, largest_message) if terms.producer else (),
            options=self._options(guarantee, largest_message) if terms.sink else (),
        )

    def settings_with_state(self, guarantee: Guarantee, largest_message: int) -> SinkSettings:
        if guarantee is Guarantee.AT_LEAST_ONCE:
            settings = (*STATE_PRODUCER, _largest("message.max.bytes", largest_message))
            if acks := self._chosen_acks(guarantee):
                settings = _without_idempotence(settings, acks, "max.in.flight")
        else:
            settings = self.settings(guarantee, largest_message).producer
        # A record that is larger than the queue would never be in it.
        kbytes = str(max(STATE_QUEUE_KBYTES, 2 * largest_message // 1024))
        why = "limits the memory of the driver's producer; the output of a batch waits in files"
        return SinkSettings(producer=replaced(settings, "queue.buffering.max.kbytes", kbytes, why))

    def link(self, guarantee: Guarantee, settings: SinkSettings) -> Link:
        caveat, weakness = _caveat(guarantee, self.acks or TERMS[guarantee].acks)
        if settings.options:
            return Link("sink producer", "Kafka sink of Spark", settings.options, caveat, weakness)
        return Link("sink producer", "producer of each task", settings.producer, caveat, weakness)

    def needs(self, group: str) -> tuple[Need, ...]:
        operations = (Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
        why = "writes the output, and reads the largest batch that it takes"
        rows = (Need(Resource(Kind.TOPIC, topic), operations, why) for topic in self.topics())
        markers = kafka_positions.marker_needs() if self.bootstrap_servers else ()
        return (*rows, *markers, *kafka_positions.needs(group))

    def source_needs(self, group: str) -> tuple[Need, ...]:
        return kafka_positions.lag_needs(group) if self.bootstrap_servers else ()

    def sections(self, group: str) -> tuple[Section, ...]:
        letters = (self.dead_letter.section,) if self.dead_letter else ()
        return (*kafka_positions.sections(group, own_cluster=self.bootstrap_servers is not None), *letters)

    def commit(self, group: str) -> Settings:
        return kafka_positions.commit(group, own_cluster=self.bootstrap_servers is not None)

    def decisions(self) -> Settings:
        return kafka_positions.decisions(own_cluster=self.bootstrap_servers is not None)

    def standby(self) -> StandbyTimes:
        return kafka_positions.STANDBY

    def to_job(self, group: str) -> jobspec.KafkaSink:
        return jobspec.KafkaSink(
            topic=self.topic,
            format=self.format,
            output_schema=jobspec.OutputSchema(subject, self.schema_text, None) if (subject := self._subject) else None,
            preserve_partition=self.preserve_partition,
            positions=kafka_positions.to_job(group, own_cluster=self.bootstrap_servers is not None),
            cluster=None,  # its connection depends on the place; see cluster()
            dead_letters=self.dead_letter.to_job() if self.dead_letter else None,
        )

    def with_decisions(self, job: jobspec.SinkSpec) -> jobspec.KafkaSink:
        if not isinstance(job, jobspec.KafkaSink):
            raise TypeError(f"no part of a jobspec of this sink: {job}")
        return replace(job, positions=kafka_positions.with_decisions(job.positions))

    def decision_needs(self) -> tuple[Need, ...]:
        return kafka_positions.decision_needs()

    def link_with_state(self, link: Link) -> Link:
        return replace(link, subject="producer of the driver")

    def output_problems(self, columns: Sequence[OutputColumn]) -> Iterator[OutputProblem]:
        return _output_problems(columns, self.format, has_topic=self.topic is not None)

    def cluster(self) -> Kafka | None:
        if self.bootstrap_servers is None:
            return None
        return Kafka.model_construct(bootstrap_servers=self.bootstrap_servers, auth=self.auth, tls=self.tls)

    def with_cluster(self, kafka: Kafka | None) -> Self:
        of_cluster = ("bootstrap_servers", "auth", "tls")
        return self.model_copy(update={name: getattr(kafka, name, None) for name in of_cluster})

    @property
    def _subject(self) -> str | None:
        """The subject of the output's schema; None for a format without one."""
        if not needs_registry(self.format):
            return None
        return self.subject or (subject_of(self.topic) if self.topic else None)

    def _schema_data(self) -> Settings:
        if self._subject is None:
            return ()
        path = f"{_PATH}.schema"
        schema = self.schema_text or "derived from the columns of the output, each nullable"
        return (Setting("sink.subject", self._subject, f"{_PATH}.subject"), Setting("sink.schema", schema, path))

    def _chosen_acks(self, guarantee: Guarantee) -> Acks | None:
        """spec.sink.kafka.acks, if it differs from what the guarantee takes."""
        return None if self.acks == TERMS[guarantee].acks else self.acks

    def _producer(self, guarantee: Guarantee, largest_message: int) -> Settings:
        settings = (*TERMS[guarantee].producer, _largest("message.max.bytes", largest_message))
        acks = self._chosen_acks(guarantee)
        return replaced(settings, "acks", acks, _CHOSEN) if acks else settings

    def _options(self, guarantee: Guarantee, largest_message: int) -> Settings:
        settings = (*TERMS[guarantee].sink, _largest("max.request.size", largest_message))
        acks = self._chosen_acks(guarantee)
        return _without_idempotence(settings, acks, "max.in.flight.requests.per.connection") if acks else settings


_IN_REGISTRY = " || ".join(f"self.format == '{format}'" for format in WITH_REGISTRY)
_IS_JSON = " || ".join(f"self.format == '{format}'" for format in WITH_REGISTRY if schema_is_json(format))
_IN_JSON = listed([format for format in WITH_REGISTRY if schema_is_json(format)], "or")
_CHECKS: tuple[Check[Any], ...] = (
    Check[KafkaSink](
        lambda sink: needs_registry(sink.format) or (sink.subject is None and sink.schema_text is None),
        f"subject and schema belong to the format {listed(WITH_REGISTRY, 'or')} only",
        f"write format: {listed(WITH_REGISTRY, 'or')}, or remove them",
        cel=f"{_IN_REGISTRY} || !(has(self.subject) || has(self.schema))",
        field="subject",
    ),
    Check[KafkaSink](
        lambda sink: (
            not schema_is_json(sink.format) or sink.schema_text is None or sink.schema_text.lstrip().startswith("{")
        ),
        f"the schema must be JSON with the format {_IN_JSON}",
        "begin with {, or correct the format",
        cel=f"!({_IS_JSON}) || !has(self.schema) || self.schema.matches('^\\\\s*[{{]')",
        field="schema",
    ),
    Check[KafkaSink](
        lambda sink: not needs_registry(sink.format) or sink.subject is not None or sink.topic is not None,
        "a sink with schemas and without a topic needs a subject",
        "name the subject in which the schema of the output is registered",
        cel=f"!({_IN_REGISTRY}) || has(self.subject) || has(self.topic)",
        field="subject",
    ),
    Check[KafkaSink](
        lambda sink: sink.bootstrap_servers is not None or (sink.auth is None and sink.tls is None),
        "auth and tls are of a cluster of the sink's own, which bootstrapServers names",
        "add bootstrapServers, or remove them: spec.kafka is the connection to the source's cluster",
        cel="has(self.bootstrapServers) || !(has(self.auth) || has(self.tls))",
        field="bootstrapServers",
    ),
)


def _without_idempotence(settings: Settings, acks: Acks, requests: str) -> Settings:
    """The settings of a producer that repeats requests, with other acknowledgements than all.

    requests: the name of the number of requests in flight.
    """
    for name, value, reason in (
        ("acks", acks, f"{_CHOSEN}: a record that only the leader has acknowledged is lost with the leader"),
        ("enable.idempotence", "false", "requires acks=all"),
        (requests, "1", "without idempotence a request that is sent again would overtake the next one"),
    ):
        settings = replaced(settings, name, value, reason)
    return settings


def _largest(name: str, size: int) -> Setting:
    return Setting(name, str(size), "the client must accept every record that the brokers accept; its default is lower")


def _caveat(guarantee: Guarantee, acks: Acks) -> tuple[str | None, int]:
    """What the sink leaves open under a guarantee, and how much that matters."""
    if guarantee is Guarantee.AT_LEAST_ONCE and acks == "1":
        return (
            'acks is "1": a record that only the leader has acknowledged is lost with the leader and not sent again',
            9,
        )
    if guarantee is Guarantee.AT_MOST_ONCE and acks == "0":
        return "acks is 0: a record is sent once, and its loss goes unnoticed; at-most-once allows it", 8
    if guarantee is Guarantee.AT_MOST_ONCE:
        return "retries is 0: a record whose request fails is lost, which at-most-once allows", 8
    return None, 0


_NOT_IN_VALUE = ("key", "topic", "headers")  # columns of the output that are not part of the value
_BYTES = ("", "STRING", "BINARY", "VOID")  # types of a key and of a column that is the value; "": not known


def _output_problems(columns: Sequence[OutputColumn], format: Format, *, has_topic: bool) -> Iterator[OutputProblem]:
    """What the job refuses (ackwright_stream/sinks/kafka/columns.py)."""
    names = [column.name for column in columns]
    of_columns = writes_columns(format)
    if of_columns and set(names) <= set(_NOT_IN_VALUE):
        yield OutputProblem(None, "returns no column for the value", "select one besides key, topic, headers")
    if not of_columns and "value" not in names:
        problem = f"returns no column value, which sink format {format} writes"
        yield OutputProblem(None, problem, "select one: … AS value")
    for i, column in enumerate(columns):
        if column.name is None:
            if not of_columns and "value" in names:
                problem = f"returns a column without a name, and sink format {format} writes value alone"
                yield OutputProblem(i, problem, "leave it out, or choose format: json")
            continue
        if column.name in names[:i]:
            yield OutputProblem(i, f"returns the column {column.name} twice", "rename one")
        if not of_columns and column.name not in ("value", *_NOT_IN_VALUE):
            problem = f"returns the column {column.name}, and sink format {format} writes value alone"
            yield OutputProblem(i, problem, "leave it out, or choose format: json")
        in_bytes = column.name == "key" or (column.name == "value" and not of_columns)
        if in_bytes and column.type not in _BYTES:
            problem = f"returns the column {column.name} as {column.type}, and it must be STRING or BINARY"
            yield OutputProblem(i, problem, f"write CAST(… AS STRING) AS {column.name}")
    if not has_topic and "topic" not in names:
        yield OutputProblem(None, "returns no column topic, and there is no sink.kafka.topic", "add one of them")


# Why a guarantee does not allow other acks, and what to do instead.
_WHY_NOT: Mapping[Guarantee, tuple[str, str]] = {
    Guarantee.EXACTLY_ONCE: (
        "a transaction needs the acknowledgement of every replica in sync",
        "remove it, or declare a weaker guarantee",
    ),
    Guarantee.AT_LEAST_ONCE: (
        "a record that no broker acknowledges may be lost",
        "remove it, or declare a weaker guarantee",
    ),
    Guarantee.AT_MOST_ONCE: (
        "a request that a leader abandons while it waits for its replicas is sent again, and may be written twice",
        'remove it, or set it to "1"',
    ),
}


def _allowed_acks(guarantee: Guarantee) -> Validation[SinkContext[KafkaSink]]:
    allowed = TERMS[guarantee].allowed_acks
    why, remedy = _WHY_NOT[guarantee]
    only = f"self.sink.kafka.acks == '{allowed[0]}'" if len(allowed) == 1 else ""
    none_of = " && ".join(f"self.sink.kafka.acks != '{acks}'" for acks in get_args(Acks) if acks not in allowed)

    def find(context: SinkContext[KafkaSink]) -> Iterator[Broken]:
        acks = context.sink.acks
        if context.guarantee is guarantee and acks is not None and acks not in allowed:
            yield Broken(f"{_PATH}.acks", acks)

    expression = (
        f"self.guarantee != '{guarantee}' || !has(self.sink.kafka) || !has(self.sink.kafka.acks) || {only or none_of}"
    )
    return Validation(
        f"contradicts guarantee: {guarantee}, which allows {' or '.join(allowed)}: {why}",
        remedy,
        ("spec.guarantee", f"{_PATH}.acks"),
        find,
        cel=(Cel(expression, on="spec", at=".sink.kafka.acks"),),
    )


def _loop(context: SinkContext[KafkaSink]) -> Iterator[Broken]:
    if context.sink.topic in context.source_topics:
        yield Broken(f"{_PATH}.topic", context.sink.topic)


def _long_names(context: SinkContext[KafkaSink]) -> Iterator[Broken]:
    if context.sink.bootstrap_servers is None:
        return
    for i, topic in enumerate(context.source_topics):
        if len(topic) > kafka_positions.LONGEST_TOPIC:
            yield Broken(f"spec.source.topics[{i}]", topic, f": {len(topic)} > {kafka_positions.LONGEST_TOPIC}")


def _too_few_partitions(context: SinkContext[KafkaSink]) -> Iterator[Broken]:
    sink, declared = context.sink, context.declared_partitions
    if not sink.preserve_partition or sink.topic is None or sink.topic not in declared:
        return
    available = declared[sink.topic]
    for source in context.source_topics:
        if declared.get(source, 0) > available:
            yield Broken(
                f"{_PATH}.preservePartition",
                True,
                f": {available} < {declared[source]} ({sink.topic}, {source})",
                f"give {sink.topic} at least {declared[source]} partitions",
            )


def _same_cluster(context: SinkContext[KafkaSink]) -> Iterator[Broken]:
    own = context.sink.bootstrap_servers
    if own is not None and _addresses(own) & _addresses(context.source_servers):
        yield Broken(f"{_PATH}.bootstrapServers", own)


def _addresses(servers: str) -> set[str]:
    return {server.strip() for server in servers.split(",")}


def _topic_names(context: SinkContext[KafkaSink]) -> Iterator[tuple[str, str]]:
    if context.sink.topic is not None:
        yield f"{_PATH}.topic", context.sink.topic


_VALIDATIONS: tuple[Validation[SinkContext[KafkaSink]], ...] = (
    *(_allowed_acks(guarantee) for guarantee in reversed(Guarantee)),
    Validation(
        "is also a source: the pipeline would read its own output forever",
        "choose another topic",
        ("spec.source.topics", f"{_PATH}.topic"),
        _loop,
        cel=(
            Cel(
                "!has(self.sink.kafka) || !has(self.sink.kafka.topic) || "
                "!(self.sink.kafka.topic in self.source.topics)",
                on="spec",
                at=".sink.kafka.topic",
            ),
        ),
    ),
    *not_reserved((f"{_PATH}.topic",), (f"{_PATH}.topic",), _topic_names),
    *kafka_dead_letters.VALIDATIONS,
    *kafka_state.VALIDATIONS,
    Validation(
        "needs partitions of the sink's topic ≥ partitions of each source topic",
        "give the sink's topic more",
        ("spec.source.topics", _PATH, "spec.topics"),
        _too_few_partitions,
        cel=(
            Cel(
                "!has(self.sink.kafka) || !self.sink.kafka.preservePartition || !has(self.sink.kafka.topic) || "
                "!has(self.topics) || self.topics.all(t, !(t.name in self.source.topics) || "
                "self.topics.all(there, there.name != self.sink.kafka.topic || there.partitions >= t.partitions))",
                on="spec",
                at=".sink.kafka.preservePartition",
            ),
        ),
    ),
    Validation(
        "names brokers of spec.kafka: the sink is on the source's cluster",
        "remove it, with auth and tls below it",
        ("spec.kafka.bootstrapServers", f"{_PATH}.bootstrapServers"),
        _same_cluster,
        not_in_cel="comparing two lists of brokers would cost the API server more than it allows",
    ),
    Validation(
        f"must have at most {kafka_positions.LONGEST_TOPIC} characters if the sink has its own cluster, where a topic "
        "has this name and the id of the source's cluster in front of it",
        "read a topic with a shorter name",
        ("spec.source.topics", f"{_PATH}.bootstrapServers"),
        _long_names,
        cel=(
            Cel(
                "!has(self.sink.kafka) || !has(self.sink.kafka.bootstrapServers) || "
                f"self.source.topics.all(t, size(t) <= {kafka_positions.LONGEST_TOPIC})",
                on="spec",
                at=".source.topics",
            ),
        ),
    ),
)
