"""The sinks of a jobspec, one class for each kind. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

from ackwright_stream.jobspec_values import (
    CREATES_NO_TOPICS,
    MEMBER,
    RULE_1,
    WRITER,
    Cluster,
    Format,
    Required,
)
from ackwright_stream.jobspec_versions import checked, unknown_sink


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
        """What jobspec_versions.values_of() returned. Raises KeyError, TypeError or ValueError for anything else."""
        ...


Spec = TypeVar("Spec", bound=SinkSpec)


@dataclass(frozen=True)
class KafkaPositions:
    """Positions as committed offsets of the pipeline's consumer group. Settings have librdkafka's names."""

    lanes_topic: str  # the compacted topic that records which lanes were initialised
    decisions_topic: str | None  # the compacted topic of the decisions of stateful pipelines; None for stateless ones
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
    """The topic of dead letters: on the brokers of the rows, or those of the source if rows are not in Kafka."""

    topic: str
    # Of a producer that writes them outside of transactions: under at-least-once, and for rows that are not in Kafka.
    producer: Mapping[str, str]

    @classmethod
    def of_sink(cls, value: Mapping[str, Any]) -> Self | None:
        """The field `dead_letters` of what values_of() returned for a sink. Raises as SinkSpec.of_json()."""
        return cls(**checked(cls, value, "dead_letters", "sink.")) if value["dead_letters"] else None


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

    @property
    def named_topics(self) -> tuple[str, ...]:
        """The topics of rows and dead letters that the spec names; rows may name others."""
        letters = self.dead_letters.topic if self.dead_letters else None
        return tuple(topic for topic in (self.topic, letters) if topic)

    def brokers(self, source: Cluster) -> Cluster:
        """The brokers of rows and positions. source: those of the source."""
        return self.cluster or source

    @property
    def transaction_timeout_ms(self) -> int:
        """As in SinkSpec. The same for every transactional producer."""
        return int(self.positions.producer["transaction.timeout.ms"])

    def required(self, group: str) -> Iterable[tuple[str, Mapping[str, str], Required]]:
        """As in SinkSpec."""
        yield "sink.positions.member", self.positions.member, {"group.id": (group, RULE_1), **MEMBER}
        yield "sink.positions.producer", self.positions.producer, WRITER
        if self.cluster:
            yield "sink.cluster.every_client", self.cluster.every_client, CREATES_NO_TOPICS
            of_lag: Required = {"group.id": (f"{group}.lag", RULE_1), "enable.auto.commit": ("false", RULE_1)}
            yield "sink.positions.lag_consumer", self.positions.lag_consumer, of_lag

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """As in SinkSpec."""
        positions = KafkaPositions(**checked(KafkaPositions, value, "positions", "sink."))
        cluster = Cluster(**checked(Cluster, value, "cluster", "sink.")) if value["cluster"] else None
        schema = value["output_schema"] and OutputSchema(**checked(OutputSchema, value, "output_schema", "sink."))
        letters = DeadLetterTopic.of_sink(value)
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
    dead_letters: DeadLetterTopic | None  # None: there are none
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
        columns, letters = tuple(value["partition_columns"]), DeadLetterTopic.of_sink(value)
        fields = {k: v for k, v in value.items() if k != "kind"}
        return cls(**{**fields, "partition_columns": columns, "dead_letters": letters})


@dataclass(frozen=True)
class IcebergSink:
    """An Apache Iceberg table as the sink. Positions are properties of the table."""

    catalog: str  # rest | sql
    uri: str  # of the catalog: http(s)://…, or sqlite:///<absolute path>
    warehouse: str | None  # rest: the catalog's name of it; sql: an absolute directory, or s3://<bucket>/<prefix>
    # Directory with the files `username` and `password`, as a mounted Secret: the client's id and secret of OAuth 2, or
    # with signing_service the access key's id and its secret. None: no login, or the identity of the pod.
    catalog_credentials: str | None
    token_uri: str | None  # where the client gets its tokens; None: of the catalog itself
    scope: str | None  # of the tokens
    token: str | None  # file with a bearer token, in place of such tokens
    signing_service: str | None  # the service and the region of AWS's signatures (SigV4); None: requests are not signed
    signing_region: str | None
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
    dead_letters: DeadLetterTopic | None  # None: there are none
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
        columns, letters = tuple(value["partition_columns"]), DeadLetterTopic.of_sink(value)
        fields = {k: v for k, v in value.items() if k != "kind"}
        return cls(**{**fields, "partition_columns": columns, "dead_letters": letters})


@dataclass(frozen=True)
class FilesSink:
    """Parquet files as the sink. The files are also the positions."""

    path: str  # an absolute directory, or s3://<bucket>/<prefix>
    endpoint: str | None  # of S3; None: AWS
    region: str | None  # of S3
    credentials: str | None  # as in DeltaSink
    commit: Mapping[str, str]  # settings of the requests that create files: timeout.ms
    dead_letters: DeadLetterTopic | None  # None: there are none
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
        fields = {k: v for k, v in value.items() if k != "kind"}
        return cls(**{**fields, "dead_letters": DeadLetterTopic.of_sink(value)})


_SINKS: dict[str, type[SinkSpec]] = {
    KafkaSink.kind: KafkaSink,
    PostgresSink.kind: PostgresSink,
    DeltaSink.kind: DeltaSink,
    IcebergSink.kind: IcebergSink,
    FilesSink.kind: FilesSink,
}


def sink_from_json(data: Mapping[str, Any]) -> SinkSpec:
    kind = data["sink"].get("kind")
    if kind not in _SINKS:
        known = ", ".join(sorted(_SINKS))
        raise unknown_sink(kind, known)
    return _SINKS[kind].of_json(checked(_SINKS[kind], data, "sink"))


def register_sink(spec: type[SinkSpec]) -> None:
    """Makes a kind of sink known to from_json()."""
    (kind,) = (f.default for f in fields(spec) if f.name == "kind")
    _SINKS[str(kind)] = spec
