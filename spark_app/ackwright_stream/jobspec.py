"""The contract between the operator or the command line, which write a jobspec, and the job, which runs it: one frozen
value as JSON.

The operator's plan decides every value in it; the job reads its settings from here and from nowhere else, so nearly
every field is required. Standard library only: the operator writes it without Spark, the job reads it without the
operator. It contains the paths of mounted secrets and never a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from ackwright_stream.reasons import ExitCode, Reason

__all__ = [
    "INSTANCE_ID",
    "VERSION",
    "Cluster",
    "ExitCode",
    "Format",
    "Guarantee",
    "JobSpec",
    "KafkaSink",
    "PostgresSink",
    "Reason",
    "Restart",
    "SinkSpec",
    "Source",
    "Transform",
    "from_json",
    "register_sink",
    "to_json",
]

VERSION = 3  # of this format; the operator and the job image must agree


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
class Source:
    """What is read."""

    topics: tuple[str, ...]
    starting_offsets: str  # earliest | latest, for lanes that never had a position
    max_offsets_per_trigger: int | None  # limit of a batch, as declared; None: offsets_per_transaction decides
    offsets_per_transaction: int | None  # limit of a batch for each of its transactions; None: no limit
    format: Format
    schema: str | None  # Spark DDL; only for json
    skip_malformed: bool  # False: a malformed record fails the query


@dataclass(frozen=True)
class Transform:
    """What computes the output: exactly one of sql and module with function."""

    sql: str | None = None
    module: str | None = None
    function: str | None = None


@dataclass(frozen=True)
class KafkaSink:
    """Topics of the source's brokers as the sink."""

    topic: str | None  # None only if the transform yields a column `topic`
    format: Format = Format.BINARY
    preserve_partition: bool = False
    kind: str = field(default="kafka", init=False)  # its name on the wire

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """What dataclasses.asdict() returned. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(value["topic"], Format(value["format"]), value["preserve_partition"])


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
    upsert: bool = False  # False: rows are appended
    key: tuple[str, ...] = ()  # columns that identify a row; only for upsert
    version_column: str | None = None  # a row replaces only one with a lower version
    deleted_column: str | None = None  # a column of the output that is true for a row to delete; not in the table
    create_table: bool = False
    kind: str = field(default="postgres", init=False)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """What dataclasses.asdict() returned. Raises KeyError or TypeError for anything else."""
        return cls(**{**{k: v for k, v in value.items() if k != "kind"}, "key": tuple(value["key"])})


# What a jobspec says of its sink: KafkaSink, PostgresSink, or a class that register_sink() made known.
SinkSpec = Any

_SINKS: dict[str, type[Any]] = {KafkaSink.kind: KafkaSink, PostgresSink.kind: PostgresSink}


def register_sink(spec: type[Any]) -> None:
    """Makes a kind of sink known to from_json().

    spec: a frozen dataclass with a field `kind`, its name on the wire, and a class method of_json(), like KafkaSink.
    """
    _SINKS[spec.kind] = spec


@dataclass(frozen=True)
class Restart:
    """Back-off between restarts of the query inside one process: initial_ms * 2^(n-1) after n failures, at most max_ms,
    less a random part of up to a half."""

    initial_ms: int
    max_ms: int
    forgive_after_ms: int  # a query that ran this long without a failure sets n back to 0
    max_attempts: int  # after this many failures in a row the job exits, and its supervisor decides


# The same for every driver of a pipeline: the group's coordinator fences the member that had it before (KIP-345).
INSTANCE_ID = "ackwright"
_RULE_1, _RULE_8, _RULE_9 = "docs/protocol.md#rule-1", "docs/protocol.md#rule-8", "docs/protocol.md#rule-9"
# What the protocol's rules require of the clients that read positions, and of those that commit them.
_READER = {"isolation.level": ("read_committed", _RULE_9), "enable.auto.commit": ("false", _RULE_1)}
_MEMBER = {"group.instance.id": (INSTANCE_ID, _RULE_1), "enable.auto.commit": ("false", _RULE_1)}
_WRITER = {"acks": ("all", _RULE_1), "enable.idempotence": ("true", _RULE_1)}
# A topic that a client creates has the brokers' default settings, for which no guarantee is computed.
_CREATES_NO_TOPICS = {"allow.auto.create.topics": ("false", "a misspelt topic would get them")}


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
    source: Source
    transform: Transform
    sink: SinkSpec
    lanes_topic: str  # the compacted topic that records which lanes were initialised
    slots: int  # tasks of a batch, at most; each has a separate transaction
    driver_transactional_id: str  # of the driver's own transactions
    slot_transactional_id_prefix: str  # a task's transactional.id is this and its number
    # Of earlier releases, whose drivers this release fences: a lane's was this and "<topic>-<partition>".
    lane_transactional_id_prefix: str

    # Settings of clients. librdkafka's names:
    producer: Mapping[str, str]  # of the producers of rows (exactly-once, at-most-once)
    positions_producer: Mapping[str, str]  # of transactional producers that commit positions and no rows
    positions_consumer: Mapping[str, str]  # of the consumer that reads positions
    member: Mapping[str, str]  # of the driver's membership in the group, which fences older drivers
    lanes_consumer: Mapping[str, str]  # of the consumer that reads the lanes topic
    # Java's names:
    sink_options: Mapping[str, str]  # of the producer of Spark's Kafka sink (at-least-once)
    # Of the consumer of Spark's Kafka source; a name without a dot is an option of the source itself.
    consumer: Mapping[str, str]
    # Spark's names, spark.master included:
    spark: Mapping[str, str]

    accepted_losses: Mapping[str, str]  # by source topic, the id of a deleted topic whose loss a person has accepted
    # positions.fingerprint() of offsets that another program has set and a person has accepted; None: of none
    accepted_positions: str | None
    trigger_interval_ms: int | None  # 0: a batch starts as soon as the last one has ended; None: a bounded run
    available_now: bool  # a bounded run: the job ends when it has delivered what was in the source at the start
    standby: bool  # the driver waits, with Spark started, as long as another driver owns the pipeline
    checkpoint: str | None  # directory under which each query creates its own; None: a temporary one
    progress_host: str
    progress_port: int  # 0: any free port
    operation_timeout_ms: int  # of one call to Kafka
    restart: Restart
    version: int = VERSION

    def __post_init__(self) -> None:
        """Raises ValueError for settings that break the protocol."""
        transactional = {"positions_producer": self.positions_producer}
        if self.guarantee is Guarantee.EXACTLY_ONCE and self.producer:  # empty: the sink's rows go through no producer
            transactional["producer"] = self.producer
        readers = {"positions_consumer": self.positions_consumer, "lanes_consumer": self.lanes_consumer}
        member = {"member": self.member}
        problems = [
            f"{section}: {name} is {settings.get(name)!r} and must be {value!r} ({why})"
            for sections, required in (
                (readers, {"group.id": (self.group, _RULE_1), **_READER}),
                (member, {"group.id": (self.group, _RULE_1), **_MEMBER}),
                (transactional, _WRITER),
                ({"cluster.every_client": self.cluster.every_client}, _CREATES_NO_TOPICS),
            )
            for section, settings in sections.items()
            for name, (value, why) in required.items()
            if settings.get(name) != value
        ]
        if not re.fullmatch(r"[^\s;]*", self.identity):  # own positions would look like those of another program
            problems.append(f"identity: {self.identity!r} must have neither spaces nor semicolons ({_RULE_8})")
        if problems:
            raise ValueError(f"jobspec breaks the protocol: {'; '.join(problems)}")

    @property
    def instance_id(self) -> str:
        """The group.instance.id of the pipeline's drivers."""
        return self.member["group.instance.id"]

    @property
    def transaction_timeout_ms(self) -> int:
        """After this time the coordinator aborts a transaction that is still open. The same for every producer."""
        return int(self.positions_producer["transaction.timeout.ms"])


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
                "source": Source(**{**source, "topics": tuple(source["topics"]), "format": Format(source["format"])}),
                "transform": Transform(**_checked(Transform, data, "transform")),
                "sink": _sink(data),
                "restart": Restart(**_checked(Restart, data, "restart")),
            }
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"not a jobspec: {e!r}") from e


def _sink(data: Mapping[str, Any]) -> Any:
    kind = data["sink"].get("kind")
    if kind not in _SINKS:
        known = ", ".join(sorted(_SINKS))
        raise ValueError(f"jobspec has a sink of kind {kind!r}, and this job knows {known}; {_SAME_RELEASE}")
    return _SINKS[kind].of_json(_checked(_SINKS[kind], data, "sink"))


_SAME_RELEASE = "the operator and the job image must be of the same release"


def _checked(kind: Any, data: Mapping[str, Any], name: str | None = None) -> Mapping[str, Any]:
    """The JSON object of a dataclass, which is data itself or its field `name`. Raises ValueError unless its keys are
    the fields."""
    value: Mapping[str, Any] = data if name is None else data[name]
    prefix = "" if name is None else f"{name}."
    known = {f.name for f in fields(kind)}
    for problem, names in (("unknown", value.keys() - known), ("missing", known - value.keys())):
        if names:
            listed = ", ".join(f"{prefix}{n}" for n in sorted(names))
            raise ValueError(f"jobspec has {problem} fields: {listed}; {_SAME_RELEASE}")
    return value
