"""The contract between whoever starts a job and the job: one frozen value, carried as JSON.

Standard library only: the operator writes it without Spark, the job reads it without the operator. It never holds a secret, only the
paths of the files in which a secret is mounted. The two packages meet here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ackwright_stream.reasons import ExitCode, Reason

__all__ = [
    "VERSION",
    "Cluster",
    "ExitCode",
    "Format",
    "Guarantee",
    "JobSpec",
    "KafkaSink",
    "Reason",
    "Restart",
    "Source",
    "Transform",
    "from_json",
    "to_json",
]

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
    """Where the output goes. topic may be None if the transform yields a column `topic`."""

    topic: str | None
    format: Format = Format.BINARY
    preserve_partition: bool = False


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
    sink: KafkaSink
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
        return JobSpec(
            **{
                **data,
                "guarantee": Guarantee(data["guarantee"]),
                "cluster": Cluster(**data["cluster"]),
                "source": Source(**{**source, "topics": tuple(source["topics"]), "format": Format(source["format"])}),
                "transform": Transform(**data["transform"]),
                "sink": KafkaSink(**{**sink, "format": Format(sink["format"])}),
                "restart": Restart(**data["restart"]),
            }
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"not a jobspec: {e!r}") from e
