"""What the parts of a jobspec have in common: values, settings that the protocol requires, and how JSON is read.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
    AVRO = "avro"  # this and the next ones: with the id of its schema in a registry
    JSON_SCHEMA = "jsonSchema"
    PROTOBUF = "protobuf"


# Settings that the protocol requires: the value by name, with the rule.
Required = Mapping[str, tuple[str, str]]

# The same for every driver of a pipeline: the group's coordinator fences the member that had it before (KIP-345).
INSTANCE_ID = "ackwright"
RULE_1, RULE_8, RULE_9 = "docs/protocol.md#rule-1", "docs/protocol.md#rule-8", "docs/protocol.md#rule-9"
# What the protocol's rules require of the clients that read positions, and of those that commit them.
READER: Required = {"isolation.level": ("read_committed", RULE_9), "enable.auto.commit": ("false", RULE_1)}
MEMBER: Required = {"group.instance.id": (INSTANCE_ID, RULE_1), "enable.auto.commit": ("false", RULE_1)}
WRITER: Required = {"acks": ("all", RULE_1), "enable.idempotence": ("true", RULE_1)}
# What stateful pipelines require of Spark: an evaluation never overwrites the state of another one, and every
# evaluation of a batch shows (docs/protocol.md#stateful-pipelines).
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STATE_FILES = "state files have unique names and are written before the batch is decided"
STATE: Required = {
    "spark.sql.streaming.stateStore.providerClass": (_ROCKSDB, _STATE_FILES),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": ("2", _STATE_FILES),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": ("true", _STATE_FILES),
    # A driver that was replaced deletes by number, and may be ahead of the last decision.
    "spark.sql.streaming.minBatchesToRetain": ("100", "the decided state is not deleted"),
    "spark.speculation": ("false", "two copies of a task store two states of a partition"),
    "spark.stage.maxConsecutiveAttempts": ("1", "a stage that runs again stores its state again"),
}
# Spark's setting for it, and its value unless a pipeline has another one.
TIME_ZONE, DEFAULT_TIME_ZONE = "spark.sql.session.timeZone", "UTC"
# A topic that a client creates has the brokers' default settings, for which no guarantee is computed.
CREATES_NO_TOPICS: Required = {"allow.auto.create.topics": ("false", "a misspelt topic would get them")}


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


S3A_SCHEME = "s3a://"  # of Hadoop's file system, by which Spark itself reads and writes


def s3_region(region: str | None, endpoint: str | None) -> str | None:
    """The region that requests to S3 are signed for; None: the client finds it out, for AWS.

    Other servers than AWS accept any, and clients require one.
    """
    return region or ("us-east-1" if endpoint else None)
