"""The contract between whoever starts a job and the job: one frozen value, carried as JSON.

Standard library only: the operator writes it without Spark, the job reads it without the operator. It never holds a secret, only the
paths of the files in which a secret is mounted. The two packages meet here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Self

VERSION = 1


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


class ExitCode(IntEnum):
    """Exit codes of the job and of the command line, documented in docs/exit-codes.md."""

    OK = 0  # done or drained; the declared guarantee held
    FAILED = 1  # an unexpected failure, or (audit, demo) the guarantee did not hold
    INVALID = 2  # the file, the settings or the transform are wrong: nothing was written
    HALTED = 3  # going on would break the guarantee: a person has to decide
    UNAVAILABLE = 4  # Kafka cannot be reached, refuses the credentials, or lacks what the pipeline needs
    SUPERSEDED = 5  # a newer driver owns this pipeline


class Reason(StrEnum):
    """Why a pipeline does not run; the same names are reasons of the operator's conditions."""

    INVALID_SPEC = "InvalidSpec"
    INVALID_TRANSFORM = "InvalidTransform"
    NOT_STATELESS = "NotStateless"
    MALFORMED_RECORD = "MalformedRecord"
    BATCH_FAILED = "BatchFailed"
    DATA_EXPIRED = "DataExpired"
    POSITION_LOST = "PositionLost"
    POSITION_CONFLICT = "PositionConflict"
    TOPIC_REPLACED = "TopicReplaced"
    TOPIC_MISSING = "TopicMissing"
    GROUP_IN_USE = "GroupInUse"
    BROKERS_UNREACHABLE = "BrokersUnreachable"
    BROKERS_TOO_FEW = "BrokersTooFew"
    BROKERS_UNSUPPORTED = "BrokersUnsupported"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    AUTHORIZATION_FAILED = "AuthorizationFailed"
    SUPERSEDED = "Superseded"
    NAME_TAKEN = "NameTaken"
    KUBERNETES_REFUSED = "KubernetesRefused"
    KUBERNETES_UNREACHABLE = "KubernetesUnreachable"
    UNEXPECTED = "Unexpected"


EXIT_CODES: Mapping[Reason, ExitCode] = {
    Reason.INVALID_SPEC: ExitCode.INVALID,
    Reason.INVALID_TRANSFORM: ExitCode.INVALID,
    Reason.NOT_STATELESS: ExitCode.INVALID,
    Reason.MALFORMED_RECORD: ExitCode.HALTED,
    Reason.BATCH_FAILED: ExitCode.FAILED,
    Reason.DATA_EXPIRED: ExitCode.HALTED,
    Reason.POSITION_LOST: ExitCode.HALTED,
    Reason.POSITION_CONFLICT: ExitCode.FAILED,
    Reason.TOPIC_REPLACED: ExitCode.HALTED,
    Reason.TOPIC_MISSING: ExitCode.UNAVAILABLE,
    Reason.GROUP_IN_USE: ExitCode.HALTED,
    Reason.BROKERS_UNREACHABLE: ExitCode.UNAVAILABLE,
    Reason.BROKERS_TOO_FEW: ExitCode.UNAVAILABLE,
    Reason.BROKERS_UNSUPPORTED: ExitCode.UNAVAILABLE,
    Reason.AUTHENTICATION_FAILED: ExitCode.UNAVAILABLE,
    Reason.AUTHORIZATION_FAILED: ExitCode.UNAVAILABLE,
    Reason.SUPERSEDED: ExitCode.SUPERSEDED,
    Reason.NAME_TAKEN: ExitCode.UNAVAILABLE,
    Reason.KUBERNETES_REFUSED: ExitCode.UNAVAILABLE,
    Reason.KUBERNETES_UNREACHABLE: ExitCode.UNAVAILABLE,
    Reason.UNEXPECTED: ExitCode.FAILED,
}


@dataclass(frozen=True)
class Cluster:
    """How to reach the brokers.

    librdkafka and java hold the same connection (security.protocol, sasl.mechanism, CA file …) in the names of either client.
    credentials is a directory that holds the files `username` and `password`, as a mounted Secret does; None without SASL. The
    Java settings refer to those files by Kafka's DirectoryConfigProvider (KIP-421), so no password is ever part of a setting.
    """

    bootstrap_servers: str
    librdkafka: Mapping[str, str] = field(default_factory=dict)
    java: Mapping[str, str] = field(default_factory=dict)
    credentials: str | None = None


@dataclass(frozen=True)
class Source:
    """What is read. starting_offsets: earliest | latest, for lanes that never had a position; schema: Spark DDL, only for json."""

    topics: tuple[str, ...]
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = None
    format: Format = Format.BINARY
    schema: str | None = None
    skip_malformed: bool = False


@dataclass(frozen=True)
class Transform:
    """Exactly one of sql and module/function."""

    sql: str | None = None
    module: str | None = None
    function: str | None = None


@dataclass(frozen=True)
class KafkaSink:
    """Topics of the source's brokers as the sink."""

    topic: str | None  # None only if the transform yields a column `topic`
    format: Format = Format.BINARY
    preserve_partition: bool = False
    kind: str = field(default="kafka", init=False)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(value["topic"], Format(value["format"]), value["preserve_partition"])


# What a jobspec says of its sink: one class for each kind of sink.
SinkSpec = KafkaSink

_SINKS: dict[str, type[Any]] = {KafkaSink.kind: KafkaSink}


def register_sink(spec: type[Any]) -> None:
    """Makes a kind of sink known to from_json().

    spec: a frozen dataclass with a field `kind`, its name on the wire, and a class method of_json(), as KafkaSink has them.
    """
    _SINKS[spec.kind] = spec


@dataclass(frozen=True)
class Restart:
    """Back-off between in-process restarts: initial · 2^(n-1) after n failures, capped, less up to a half by chance; n is forgiven
    after forgive_after_ms of health.

    After max_attempts failures in a row the job exits non-zero, for whoever started it to decide.
    """

    initial_ms: int = 200
    max_ms: int = 30_000
    forgive_after_ms: int = 60_000
    max_attempts: int = 12


@dataclass(frozen=True)
class JobSpec:
    """Everything that the job needs to know.

    group: the consumer group whose offsets are the positions. lanes_topic: the compacted topic that records which lanes were
    initialised. producer: librdkafka settings of the lanes' producers (exactly-once, at-most-once). sink_options: Java producer
    settings for Spark's own sink (at-least-once). consumer: Java consumer settings for Spark's source. spark: Spark configuration,
    spark.master included. positions_consumer: librdkafka settings of the consumer that reads positions. given_up: by source topic, the
    id of the one whose loss a person has accepted (`ackwright accept-topic`): its positions and records of lanes count as none.
    """

    name: str
    namespace: str
    guarantee: Guarantee
    group: str
    cluster: Cluster
    source: Source
    transform: Transform
    sink: SinkSpec
    lanes_topic: str
    producer: Mapping[str, str] = field(default_factory=dict)
    positions_consumer: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)
    consumer: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    given_up: Mapping[str, str] = field(default_factory=dict)
    trigger_interval_ms: int = 1000  # 0: the next batch starts as soon as the last one has ended
    available_now: bool = False
    checkpoint: str | None = None  # directory under which each query puts its own; None: a temporary one
    progress_host: str = "127.0.0.1"
    progress_port: int = 0  # 0: any free port
    heartbeat_interval_ms: int = 3_600_000  # an idle lane's position is committed again this often
    operation_timeout_ms: int = 30_000  # of one call to Kafka
    restart: Restart = field(default_factory=Restart)
    version: int = VERSION


def to_json(job: JobSpec) -> str:
    """The jobspec as JSON text, keys sorted, so that equal jobs are equal texts."""
    return json.dumps(asdict(job), sort_keys=True, indent=2) + "\n"


def from_json(text: str) -> JobSpec:
    """Reads what to_json wrote. Raises ValueError for another version and for anything that is not a jobspec."""
    try:
        data: dict[str, Any] = json.loads(text)
        version = data["version"]
        if version != VERSION:
            raise ValueError(
                f"jobspec version {version} is not {VERSION}: operator and job image must be of the same release"
            )
        source, sink = data["source"], data["sink"]
        if sink["kind"] not in _SINKS:
            raise ValueError(
                f"jobspec has a sink of kind {sink['kind']!r}, and this job knows {', '.join(sorted(_SINKS))}"
            )
        return JobSpec(
            **{
                **data,
                "guarantee": Guarantee(data["guarantee"]),
                "cluster": Cluster(**data["cluster"]),
                "source": Source(**{**source, "topics": tuple(source["topics"]), "format": Format(source["format"])}),
                "transform": Transform(**data["transform"]),
                "sink": _SINKS[sink["kind"]].of_json(sink),
                "restart": Restart(**data["restart"]),
            }
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"not a jobspec: {e!r}") from e
