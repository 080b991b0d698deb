"""The contract between the operator or command line, which write a jobspec, and the job, which runs it, as JSON.

The operator's plan decides every value; the job reads its settings from nowhere else, so nearly every field is
required. Standard library only. It contains the paths of mounted secrets and never a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Protocol, Self, TypeVar

from ackwright_stream.reasons import ExitCode, Reason

__all__ = [
    "INSTANCE_ID",
    "VERSION",
    "Cluster",
    "DeadLetterTopic",
    "DeltaSink",
    "ExitCode",
    "FilesSink",
    "Format",
    "Guarantee",
    "IcebergSink",
    "JobSpec",
    "KafkaPositions",
    "KafkaSink",
    "OutputSchema",
    "PostgresSink",
    "Reason",
    "Restart",
    "SchemaRegistry",
    "SinkSpec",
    "Source",
    "StandbyTimes",
    "Transform",
    "from_json",
    "register_sink",
    "to_json",
]

VERSION = 5  # of this format; the operator and the job image must agree


class Guarantee(StrEnum):
    """How often a record of the source reaches the sink."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Format(StrEnum):
    """How the bytes of a record's value are read or written."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"  # with the id of its schema in a registry


# Settings that the protocol requires: the value by name, with the rule.
Required = Mapping[str, tuple[str, str]]

# The same for every driver of a pipeline: the group's coordinator fences the member that had it before (KIP-345).
INSTANCE_ID = "ackwright"
_RULE_1, _RULE_8, _RULE_9 = "docs/protocol.md#rule-1", "docs/protocol.md#rule-8", "docs/protocol.md#rule-9"
# What the protocol's rules require of the clients that read positions, and of those that commit them.
_READER: Required = {"isolation.level": ("read_committed", _RULE_9), "enable.auto.commit": ("false", _RULE_1)}
_MEMBER: Required = {"group.instance.id": (INSTANCE_ID, _RULE_1), "enable.auto.commit": ("false", _RULE_1)}
_WRITER: Required = {"acks": ("all", _RULE_1), "enable.idempotence": ("true", _RULE_1)}
# A topic that a client creates has the brokers' default settings, for which no guarantee is computed.
_CREATES_NO_TOPICS: Required = {"allow.auto.create.topics": ("false", "a misspelt topic would get them")}


@dataclass(frozen=True)
class Cluster:
    """How a client connects to the brokers."""

    bootstrap_servers: str
    # The connection (security.protocol, sasl.mechanism, CA file …) in the names of either client. The Java settings
    # refer to the files of the credentials by Kafka's DirectoryConfigProvider (KIP-421), so no password is ever part of
    # a setting.
    librdkafka: Mapping[str, str] = field(default_factory=dict)
    java: Mapping[str, str] = field(default_factory=dict)
    # Directory with the files `username` and `password`, as a mounted Secret; None: no SASL.
    credentials: str | None = None
    every_client: Mapping[str, str] = field(default_factory=dict)  # further settings of the job's librdkafka clients


@dataclass(frozen=True)
class SchemaRegistry:
    """How a client connects to a Confluent-compatible schema registry."""

    url: str
    credentials: str | None  # directory with the files `username` and `password`, as a mounted Secret; None: no login
    ca: str | None  # file of the CA certificate; None: the CAs that the image trusts
    timeout_ms: int  # of one operation with its repetitions


@dataclass(frozen=True)
class Source:
    """What is read."""

    topics: tuple[str, ...]
    starting_offsets: str  # earliest | latest, for lanes that never had a position
    max_offsets_per_trigger: int | None  # limit of a batch, as declared; None: offsets_per_transaction decides
    offsets_per_transaction: int | None  # limit of a batch for each of its transactions; None: no limit
    smallest_batch: int | None  # offsets; transaction time-outs do not reduce the limit further; None: there is none
    format: Format
    # Of json: Spark DDL. Of avro: the reader's schema, which the driver reads from the registry; None until then.
    schema: str | None
    subject: str | None  # in the registry, of the reader's schema; only for avro
    schema_version: int | None  # of the subject; None: the latest when the driver starts
    # Schemas of the subject's latest versions by id, which workers need not ask the registry for. The driver's, too.
    writer_schemas: Mapping[str, str]
    skip_malformed: bool  # False: a malformed record fails the query, or is a dead letter
    # Malformed records are dead letters, if they are at most this fraction of the records; None: they are none.
    dead_letter_fraction: float | None


@dataclass(frozen=True)
class Transform:
    """What computes the output: exactly one of sql and module with function."""

    sql: str | None = None
    module: str | None = None
    function: str | None = None


class SinkSpec(Protocol):
    """What a jobspec says of its sink: a frozen dataclass such as KafkaSink, PostgresSink or DeltaSink.

    A kind that is not in this module is made known by register_sink().
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def kind(self) -> str:
        """Its name on the wire: a field with a default, which is not a parameter."""
        ...

    @property
    def transaction_timeout_ms(self) -> int:
        """After this time the store ends a transaction that is still open."""
        ...

    def required(self, group: str) -> Iterable[tuple[str, Mapping[str, str], Required]]:
        """Sections of its settings by name, each with the values that the protocol requires.

        group: JobSpec.group.
        """
        ...

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """What dataclasses.asdict() returned. Raises KeyError, TypeError or ValueError for anything else."""
        ...


Spec = TypeVar("Spec", bound=SinkSpec)


@dataclass(frozen=True)
class KafkaPositions:
    """Positions as committed offsets of the pipeline's consumer group. Settings have librdkafka's names."""

    lanes_topic: str  # the compacted topic that records which lanes were initialised
    driver_transactional_id: str  # of the driver's own transactions
    slot_transactional_id_prefix: str  # a task's transactional.id is this and its number
    # Of earlier releases, whose drivers this release fences: a lane's was this and "<topic>-<partition>".
    lane_transactional_id_prefix: str
    producer: Mapping[str, str]  # of transactional producers that commit positions and no rows
    member: Mapping[str, str]  # of the driver's membership in the group, which fences older drivers
    # Replaces settings of JobSpec's two consumers where open transactions count, too.
    uncommitted_reads: Mapping[str, str]
    # For a sink with its own brokers, where offsets of empty topics, the markers, are the positions:
    marker_prefix: str  # of the markers' names
    lag_consumer: Mapping[str, str]  # of the consumer that copies the positions to the source's brokers, for lag tools

    def markers(self, source: str) -> str:
        """What precedes a source topic's name in its marker's. source: the id of the source's cluster."""
        return f"{self.marker_prefix}{source}."

    @property
    def instance_id(self) -> str:
        """The group.instance.id of the pipeline's drivers."""
        return self.member["group.instance.id"]


@dataclass(frozen=True)
class OutputSchema:
    """The schema of a sink's records, in the schema registry."""

    subject: str
    text: str | None  # as declared; None: the driver derives it from the columns of the output
    id: int | None  # None until the driver has resolved it


@dataclass(frozen=True)
class DeadLetterTopic:
    """Where a Kafka sink writes dead letters, on the brokers of its rows."""

    topic: str
    # Of a producer that writes them before the positions move (at-least-once). Otherwise that of the rows writes them.
    producer: Mapping[str, str]


@dataclass(frozen=True)
class KafkaSink:
    """Topics as the sink."""

    topic: str | None  # None only if the transform yields a column `topic`
    format: Format
    output_schema: OutputSchema | None  # None: the format needs none
    preserve_partition: bool
    positions: KafkaPositions
    cluster: Cluster | None  # the brokers of rows and positions; None: those of the source
    dead_letters: DeadLetterTopic | None  # None: there are none
    kind: str = field(default="kafka", init=False)

    def brokers(self, source: Cluster) -> Cluster:
        """The brokers of rows and positions. source: those of the source."""
        return self.cluster or source

    @property
    def transaction_timeout_ms(self) -> int:
        """As in SinkSpec. The same for every transactional producer."""
        return int(self.positions.producer["transaction.timeout.ms"])

    def required(self, group: str) -> Iterable[tuple[str, Mapping[str, str], Required]]:
        """As in SinkSpec."""
        yield "sink.positions.member", self.positions.member, {"group.id": (group, _RULE_1), **_MEMBER}
        yield "sink.positions.producer", self.positions.producer, _WRITER
        if self.cluster:
            yield "sink.cluster.every_client", self.cluster.every_client, _CREATES_NO_TOPICS
            of_lag: Required = {"group.id": (f"{group}.lag", _RULE_1), "enable.auto.commit": ("false", _RULE_1)}
            yield "sink.positions.lag_consumer", self.positions.lag_consumer, of_lag

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """As in SinkSpec."""
        positions = KafkaPositions(**_checked(KafkaPositions, value, "positions", "sink."))
        cluster = Cluster(**_checked(Cluster, value, "cluster", "sink.")) if value["cluster"] else None
        schema = value["output_schema"] and OutputSchema(**_checked(OutputSchema, value, "output_schema", "sink."))
        letters = value["dead_letters"] and DeadLetterTopic(**_checked(DeadLetterTopic, value, "dead_letters", "sink."))
        keep, format = value["preserve_partition"], Format(value["format"])
        return cls(value["topic"], format, schema, keep, positions, cluster, letters)


@dataclass(frozen=True)
class PostgresSink:
    """A table of a PostgreSQL database as the sink. Positions are in the same database."""

    host: str
    port: int
    database: str
    credentials: str  # directory with the files `username` and `password`, as a mounted Secret
    tls: bool  # whether the connection is encrypted and the server's certificate verified
    ca: str | None  # file of the CA certificate; None: the CAs that the image trusts
    schema: str
    table: str
    upsert: bool  # False: rows are appended
    key: tuple[str, ...]  # columns that identify a row; only for upsert
    version_column: str | None  # a row replaces only one with a lower version
    deleted_column: str | None  # a column of the output that is true for a row to delete; not in the table
    create_table: bool
    dead_letter_table: str | None  # in the same schema; None: there are no dead letters
    # libpq's names, and isolation_level, prepare_threshold and response_timeout of the job's connections.
    connection: Mapping[str, str]
    session: Mapping[str, str]  # of each transaction, in PostgreSQL's names
    kind: str = field(default="postgres", init=False)

    @property
    def of_dead_letters(self) -> PostgresSink | None:
        """The same with the table of the dead letters, to which rows are added; None: there is none."""
        if self.dead_letter_table is None:
            return None
        added = replace(self, upsert=False, key=(), version_column=None, deleted_column=None)
        return replace(added, table=self.dead_letter_table, dead_letter_table=None)

    @property
    def transaction_timeout_ms(self) -> int:
        """As in SinkSpec: the time without a statement."""
        return int(self.session["idle_in_transaction_session_timeout"])

    def required(self, group: str) -> Iterable[tuple[str, Mapping[str, str], Required]]:
        """As in SinkSpec: nothing, because row locks and the generation protect the positions."""
        return ()

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """As in SinkSpec."""
        return cls(**{**{k: v for k, v in value.items() if k != "kind"}, "key": tuple(value["key"])})


@dataclass(frozen=True)
class DeltaSink:
    """A Delta Lake table as the sink. Positions are in the table's log."""

    path: str  # an absolute directory, or s3://<bucket>/<prefix>
    partition_columns: tuple[str, ...]
    create_table: bool
    endpoint: str | None  # of S3; None: AWS
    region: str | None  # of S3
    # Directory with the files `username` and `password`, as a mounted Secret: the key's id and the secret of S3. None:
    # the identity of the pod.
    credentials: str | None
    commit: Mapping[str, str]  # settings of commits: timeout.ms, checkpoint.interval
    kind: str = field(default="delta", init=False)

    @property
    def transaction_timeout_ms(self) -> int:
        """As in SinkSpec: of one commit. Nothing is open before it."""
        return int(self.commit["timeout.ms"])

    def required(self, group: str) -> Iterable[tuple[str, Mapping[str, str], Required]]:
        """As in SinkSpec: nothing, because each commit compares the table's version."""
        return ()

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """As in SinkSpec."""
        fields = {k: v for k, v in value.items() if k != "kind"}
        return cls(**{**fields, "partition_columns": tuple(value["partition_columns"])})


@dataclass(frozen=True)
class IcebergSink:
    """An Apache Iceberg table as the sink. Positions are properties of the table."""

    catalog: str  # rest | sql
    uri: str  # of the catalog: http(s)://…, or sqlite:///<absolute path>
    warehouse: str | None  # rest: the catalog's name of it; sql: an absolute directory, or s3://<bucket>/<prefix>
    # Directory with the files `username` and `password`, as a mounted Secret: the client's id and secret of OAuth 2.
    # None: no login.
    catalog_credentials: str | None
    token_uri: str | None  # where the client gets its tokens; None: of the catalog itself
    scope: str | None  # of the tokens
    ca: str | None  # file of the CA certificate of the catalog; None: the CAs that the image trusts
    table: str  # with its namespace, separated by dots
    partition_columns: tuple[str, ...]
    create_table: bool
    endpoint: str | None  # of S3; None: AWS, or what the catalog says
    region: str | None  # of S3
    # As catalog_credentials: the key's id and the secret of S3. None: what the catalog hands out, else the identity of
    # the pod.
    credentials: str | None
    commit: Mapping[str, str]  # settings of commits: timeout.ms
    kind: str = field(default="iceberg", init=False)

    @property
    def transaction_timeout_ms(self) -> int:
        """As in SinkSpec: of one commit. Nothing is open before it."""
        return int(self.commit["timeout.ms"])

    def required(self, group: str) -> Iterable[tuple[str, Mapping[str, str], Required]]:
        """As in SinkSpec: nothing, because each commit compares the table's latest snapshot."""
        return ()

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """As in SinkSpec."""
        fields = {k: v for k, v in value.items() if k != "kind"}
        return cls(**{**fields, "partition_columns": tuple(value["partition_columns"])})


@dataclass(frozen=True)
class FilesSink:
    """Parquet files as the sink. The files are also the positions."""

    path: str  # an absolute directory, or s3://<bucket>/<prefix>
    endpoint: str | None  # of S3; None: AWS
    region: str | None  # of S3
    credentials: str | None  # as in DeltaSink
    commit: Mapping[str, str]  # settings of the requests that create files: timeout.ms
    kind: str = field(default="files", init=False)

    @property
    def transaction_timeout_ms(self) -> int:
        """As in SinkSpec: of the creation of one file. Nothing is open before it."""
        return int(self.commit["timeout.ms"])

    def required(self, group: str) -> Iterable[tuple[str, Mapping[str, str], Required]]:
        """As in SinkSpec: nothing, because a file is created only if there is none of its name."""
        return ()

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """As in SinkSpec."""
        return cls(**{k: v for k, v in value.items() if k != "kind"})


_SINKS: dict[str, type[SinkSpec]] = {
    KafkaSink.kind: KafkaSink,
    PostgresSink.kind: PostgresSink,
    DeltaSink.kind: DeltaSink,
    IcebergSink.kind: IcebergSink,
    FilesSink.kind: FilesSink,
}


def register_sink(spec: type[SinkSpec]) -> None:
    """Makes a kind of sink known to from_json()."""
    (kind,) = (f.default for f in fields(spec) if f.name == "kind")
    _SINKS[str(kind)] = spec


@dataclass(frozen=True)
class StandbyTimes:
    """When a standby driver takes a silent owner for gone."""

    silent_ms: int  # without a sign of life
    silent_max_ms: int  # the longest that a standby waits: then the group's coordinator decides


@dataclass(frozen=True)
class Restart:
    """Back-off between restarts of the query: initial_ms * 2^(n-1) after n failures, at most max_ms, often less."""

    initial_ms: int
    max_ms: int
    forgive_after_ms: int  # a query that ran this long without a failure sets n back to 0
    max_attempts: int  # after this many failures in a row the job exits, and its supervisor decides


@dataclass(frozen=True)
class JobSpec:
    """Everything that the job needs to know."""

    name: str
    namespace: str
    guarantee: Guarantee
    group: str  # the consumer group whose committed offsets are the positions
    # Of this pipeline among those with the same group, without spaces and semicolons: the resource's uid in a cluster.
    identity: str
    cluster: Cluster
    schema_registry: SchemaRegistry | None  # None: no format needs it
    source: Source
    transform: Transform
    sink: SinkSpec
    slots: int  # tasks of a batch, at most; each has a separate transaction

    # Settings of clients. librdkafka's names:
    producer: Mapping[str, str]  # of the producers of rows (exactly-once, at-most-once)
    positions_consumer: Mapping[str, str]  # of the consumer that reads positions in Kafka, and the source's ends
    topic_consumer: Mapping[str, str]  # of the consumer that reads a topic to its end: lanes topic; source, in an audit
    # Java's names:
    sink_options: Mapping[str, str]  # of the producer of Spark's Kafka sink (at-least-once)
    # Of the consumer of Spark's Kafka source; a name without a dot is an option of the source itself.
    consumer: Mapping[str, str]
    # Spark's names, spark.master included:
    spark: Mapping[str, str]
    stream_options: Mapping[str, str]  # of the query's writer

    accepted_losses: Mapping[str, str]  # by source topic, the id of a deleted topic whose loss a person has accepted
    # positions.fingerprint() of offsets that another program has set and a person has accepted; None: of none
    accepted_positions: str | None
    trigger_interval_ms: int | None  # 0: a batch starts as soon as the last one has ended; None: a bounded run
    available_now: bool  # a bounded run: the job ends when it has delivered what was in the source at the start
    # The driver waits, with Spark started, as long as another driver owns the pipeline; None: it takes it at once.
    standby: StandbyTimes | None
    checkpoint: str | None  # directory under which each query creates its own; None: a temporary one
    progress_host: str
    progress_port: int  # 0: any free port
    operation_timeout_ms: int  # of one call to Kafka
    restart: Restart
    version: int = VERSION

    def __post_init__(self) -> None:
        """Raises ValueError for settings that break the protocol."""
        reader = {"group.id": (self.group, _RULE_1), **_READER}
        sections = [
            ("positions_consumer", self.positions_consumer, reader),
            ("topic_consumer", self.topic_consumer, reader),
            ("cluster.every_client", self.cluster.every_client, _CREATES_NO_TOPICS),
            *self.sink.required(self.group),
        ]
        if self.guarantee is Guarantee.EXACTLY_ONCE and self.producer:  # empty: the sink's rows go through no producer
            sections.append(("producer", self.producer, _WRITER))
        problems = [
            f"{section}: {name} is {settings.get(name)!r} and must be {value!r} ({why})"
            for section, settings, required in sections
            for name, (value, why) in required.items()
            if settings.get(name) != value
        ]
        if not re.fullmatch(r"[^\s;]*", self.identity):  # own positions would look like those of another program
            problems.append(f"identity: {self.identity!r} must have neither spaces nor semicolons ({_RULE_8})")
        if problems:
            raise ValueError(f"jobspec breaks the protocol: {'; '.join(problems)}")

    @property
    def transaction_timeout_ms(self) -> int:
        """After this time the sink's store ends a transaction that is still open."""
        return self.sink.transaction_timeout_ms

    def sink_of(self, kind: type[Spec]) -> Spec:
        """The sink, which is of this kind. Raises TypeError for another."""
        if not isinstance(self.sink, kind):
            raise TypeError(f"the sink is no {kind.__name__}: {self.sink}")
        return self.sink


def to_json(job: JobSpec) -> str:
    """The jobspec as JSON text, keys sorted, so that equal jobs are equal texts."""
    return json.dumps(asdict(job), sort_keys=True, indent=2) + "\n"


def from_json(text: str) -> JobSpec:
    """The jobspec that to_json wrote. Raises ValueError for another version, for unknown or missing fields by their
    names, and for anything else that is not a jobspec."""
    try:
        data: dict[str, Any] = json.loads(text)
        version = data["version"]
        if version != VERSION:
            raise ValueError(f"jobspec version {version} is not {VERSION}; {_SAME_RELEASE}")
        source = _checked(Source, data, "source")
        return JobSpec(
            **{
                **_checked(JobSpec, data),
                "guarantee": Guarantee(data["guarantee"]),
                "cluster": Cluster(**_checked(Cluster, data, "cluster")),
                "schema_registry": (
                    SchemaRegistry(**_checked(SchemaRegistry, data, "schema_registry"))
                    if data["schema_registry"]
                    else None
                ),
                "source": Source(**{**source, "topics": tuple(source["topics"]), "format": Format(source["format"])}),
                "transform": Transform(**_checked(Transform, data, "transform")),
                "sink": _sink(data),
                "restart": Restart(**_checked(Restart, data, "restart")),
                "standby": StandbyTimes(**_checked(StandbyTimes, data, "standby")) if data["standby"] else None,
            }
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"not a jobspec: {e!r}") from e


def _sink(data: Mapping[str, Any]) -> SinkSpec:
    kind = data["sink"].get("kind")
    if kind not in _SINKS:
        known = ", ".join(sorted(_SINKS))
        raise ValueError(f"jobspec has a sink of kind {kind!r}, and this job knows {known}; {_SAME_RELEASE}")
    return _SINKS[kind].of_json(_checked(_SINKS[kind], data, "sink"))


_SAME_RELEASE = "the operator and the job image must be of the same release"


def _checked(kind: Any, data: Mapping[str, Any], name: str | None = None, path: str = "") -> Mapping[str, Any]:
    """The JSON object of a dataclass, which is data itself or its field `name`. Raises ValueError unless its keys are
    the fields. path: of data in the jobspec."""
    value: Mapping[str, Any] = data if name is None else data[name]
    prefix = path if name is None else f"{path}{name}."
    known = {f.name for f in fields(kind)}
    for problem, names in (("unknown", value.keys() - known), ("missing", known - value.keys())):
        if names:
            listed = ", ".join(f"{prefix}{n}" for n in sorted(names))
            raise ValueError(f"jobspec has {problem} fields: {listed}; {_SAME_RELEASE}")
    return value
