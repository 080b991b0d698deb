"""Why a pipeline does not run: every reason in one table, with its exit code, what it means for a retry, and its
remedy.

Standard library only: the job and the operator share this module. docs/conditions.md and docs/exit-codes.md repeat
the exit codes and the remedies for people; a test compares them with the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """The exit codes of the job and of the command line (docs/exit-codes.md)."""

    OK = 0  # complete or drained; the declared guarantee held
    FAILED = 1  # an unexpected failure, or (audit, demo) the guarantee did not hold
    INVALID = 2  # the file, the settings or the transform are wrong: nothing was written
    HALTED = 3  # continuing would break the guarantee: a person has to decide
    UNAVAILABLE = 4  # Kafka cannot be reached, refuses the credentials, or lacks what the pipeline needs
    SUPERSEDED = 5  # a newer driver owns this pipeline
    UNPROVEN = 6  # audit, demo: no fault is certain, and not everything could be judged


class Reason(StrEnum):
    """Why a pipeline does not run. The values are also reasons of the operator's conditions."""

    FILE_UNREADABLE = "FileUnreadable"
    INVALID_SPEC = "InvalidSpec"
    INVALID_TRANSFORM = "InvalidTransform"
    NOT_STATELESS = "NotStateless"
    MALFORMED_RECORD = "MalformedRecord"
    TOO_MANY_DEAD_LETTERS = "TooManyDeadLetters"
    BATCH_FAILED = "BatchFailed"
    DATA_EXPIRED = "DataExpired"
    POSITION_LOST = "PositionLost"
    POSITION_CONFLICT = "PositionConflict"
    TRANSACTION_TIMED_OUT = "TransactionTimedOut"
    POSITIONS_MOVED = "PositionsMoved"
    STATE_LOST = "StateLost"
    STATE_UNREACHABLE = "StateUnreachable"
    TOPIC_REPLACED = "TopicReplaced"
    CLUSTER_REPLACED = "ClusterReplaced"
    TOPIC_MISSING = "TopicMissing"
    GROUP_IN_USE = "GroupInUse"
    BROKERS_UNREACHABLE = "BrokersUnreachable"
    BROKERS_TOO_FEW = "BrokersTooFew"
    BROKERS_UNSUPPORTED = "BrokersUnsupported"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    AUTHORIZATION_FAILED = "AuthorizationFailed"
    SINK_UNREACHABLE = "SinkUnreachable"
    SINK_LOGIN_REFUSED = "SinkLoginRefused"
    TABLE_UNSUITABLE = "TableUnsuitable"
    ROW_REFUSED = "RowRefused"
    REGISTRY_UNREACHABLE = "RegistryUnreachable"
    REGISTRY_LOGIN_REFUSED = "RegistryLoginRefused"
    SCHEMA_NOT_FOUND = "SchemaNotFound"
    SCHEMA_INCOMPATIBLE = "SchemaIncompatible"
    SUPERSEDED = "Superseded"
    NAME_TAKEN = "NameTaken"
    KUBERNETES_REFUSED = "KubernetesRefused"
    KUBERNETES_UNREACHABLE = "KubernetesUnreachable"
    UNEXPECTED = "Unexpected"


@dataclass(frozen=True)
class Consequences:
    """What follows from a failure with this reason."""

    exit_code: ExitCode
    remedy: str  # what a person should do; docs/conditions.md has the same words
    permanent: bool = False  # a retry cannot help: a person has to change something first
    # A task does not run again: the lane may have a new owner, so the driver has to take it again.
    driver_decides: bool = False
    blames_batch: bool = False  # the batch itself is at fault: at-most-once abandons it
    # The lane's owner or Kafka is at fault: at-most-once does not abandon offsets because of it.
    excuses_batch: bool = False
    breaks_guarantee: bool = False  # records are lost, or may be delivered twice, until a person has decided
    of_schemas: bool = False  # the schema registry, or a schema in it, is at fault
    of_connection: bool = False  # every pipeline with the same brokers and credentials has the same failure


REASONS: Mapping[Reason, Consequences] = {
    Reason.FILE_UNREADABLE: Consequences(ExitCode.INVALID, "check the path and its permissions", permanent=True),
    Reason.INVALID_SPEC: Consequences(ExitCode.INVALID, "correct the file", permanent=True),
    Reason.INVALID_TRANSFORM: Consequences(ExitCode.INVALID, "correct the query or the function", permanent=True),
    Reason.NOT_STATELESS: Consequences(
        ExitCode.INVALID,
        "rewrite the transform so that it uses one record at a time, or declare spec.state",
        permanent=True,
    ),
    Reason.MALFORMED_RECORD: Consequences(
        ExitCode.HALTED,
        "fix the producer of the record, or set source.onMalformed: deadLetter with the deadLetter of the sink, or "
        "skip",
        permanent=True,
        blames_batch=True,
    ),
    Reason.TOO_MANY_DEAD_LETTERS: Consequences(
        ExitCode.HALTED,
        "correct source.schema or the producer of the records; if they are to be dead letters, raise maxFraction",
        permanent=True,
        driver_decides=True,
    ),
    Reason.BATCH_FAILED: Consequences(
        ExitCode.FAILED, "fix what the message names; the job retries by itself", blames_batch=True
    ),
    Reason.DATA_EXPIRED: Consequences(
        ExitCode.HALTED,
        "raise retention.ms of the source; if the loss is accepted, set the positions to the earliest offsets, and "
        "accept those with ackwright accept-positions NAME",
        permanent=True,
        breaks_guarantee=True,
    ),
    Reason.POSITION_LOST: Consequences(
        ExitCode.HALTED,
        "set the positions by hand, start the pipeline again, and accept them with ackwright accept-positions NAME",
        permanent=True,
        driver_decides=True,
        excuses_batch=True,
        breaks_guarantee=True,
    ),
    Reason.POSITION_CONFLICT: Consequences(
        ExitCode.FAILED, "nothing: the driver resumes from the positions", driver_decides=True, excuses_batch=True
    ),
    Reason.TRANSACTION_TIMED_OUT: Consequences(
        ExitCode.FAILED,
        "nothing, if it stops: the driver continues with smaller batches; otherwise lower source.maxOffsetsPerTrigger",
        driver_decides=True,
        excuses_batch=True,
    ),
    Reason.POSITIONS_MOVED: Consequences(
        ExitCode.HALTED,
        "find out what moved the positions; to continue from them, accept them with ackwright accept-positions NAME",
        permanent=True,
        driver_decides=True,
        excuses_batch=True,
        breaks_guarantee=True,
    ),
    Reason.STATE_LOST: Consequences(
        ExitCode.HALTED,
        "restore the directory of the state from a copy, complete or older; without one, accept with ackwright "
        "accept-state-loss NAME that the state starts empty",
        permanent=True,
        driver_decides=True,
        excuses_batch=True,
        breaks_guarantee=True,
    ),
    Reason.STATE_UNREACHABLE: Consequences(
        ExitCode.UNAVAILABLE,
        "check checkpoint.uri, the Secret and the permissions of its s3, the network and the server; the pipeline "
        "resumes by itself",
        excuses_batch=True,
    ),
    Reason.TOPIC_REPLACED: Consequences(
        ExitCode.HALTED,
        "accept the loss with ackwright accept-topic NAME TOPIC, or set the positions for the new topic by hand",
        permanent=True,
        driver_decides=True,
        excuses_batch=True,
        breaks_guarantee=True,
    ),
    Reason.CLUSTER_REPLACED: Consequences(
        ExitCode.HALTED,
        "correct spec.kafka.bootstrapServers, or accept the loss of each topic with ackwright accept-topic NAME TOPIC",
        permanent=True,
        driver_decides=True,
        excuses_batch=True,
        breaks_guarantee=True,
    ),
    Reason.TOPIC_MISSING: Consequences(
        ExitCode.UNAVAILABLE,
        "create or restore the topic, list it under spec.topics, or accept its loss with ackwright accept-topic NAME "
        "TOPIC",
    ),
    Reason.GROUP_IN_USE: Consequences(
        ExitCode.HALTED,
        "stop the other consumers of the group, or recreate the pipeline with another source.groupId",
        permanent=True,
    ),
    Reason.BROKERS_UNREACHABLE: Consequences(
        ExitCode.UNAVAILABLE,
        "check bootstrapServers, the network and the brokers; the pipeline resumes by itself",
        excuses_batch=True,
        of_connection=True,
    ),
    Reason.BROKERS_TOO_FEW: Consequences(
        ExitCode.UNAVAILABLE, "add brokers, bring the missing ones back, or lower tolerate.brokerFailures"
    ),
    Reason.BROKERS_UNSUPPORTED: Consequences(
        ExitCode.UNAVAILABLE, "upgrade the brokers, or change the setting that the message names", permanent=True
    ),
    Reason.AUTHENTICATION_FAILED: Consequences(
        ExitCode.UNAVAILABLE,
        "correct the Secret or the CA certificate; the pipeline resumes by itself",
        driver_decides=True,
        excuses_batch=True,
        of_connection=True,
    ),
    Reason.AUTHORIZATION_FAILED: Consequences(
        ExitCode.UNAVAILABLE,
        "grant the permission that the message names",
        driver_decides=True,
        excuses_batch=True,
    ),
    Reason.SINK_UNREACHABLE: Consequences(
        ExitCode.UNAVAILABLE,
        "check the sink's address, the network and the server; the pipeline resumes by itself",
        excuses_batch=True,
    ),
    Reason.SINK_LOGIN_REFUSED: Consequences(
        ExitCode.UNAVAILABLE,
        "correct the Secret or the CA certificate of the sink; the pipeline resumes by itself",
        driver_decides=True,
        excuses_batch=True,
    ),
    Reason.TABLE_UNSUITABLE: Consequences(
        ExitCode.UNAVAILABLE,
        "change the table or the transform's columns as the message says; the pipeline resumes by itself",
        driver_decides=True,
        excuses_batch=True,
    ),
    Reason.ROW_REFUSED: Consequences(
        ExitCode.HALTED,
        "change the transform, the table or topic, or the producer of the record, so that the sink takes the row",
        permanent=True,
        driver_decides=True,
        blames_batch=True,
    ),
    Reason.REGISTRY_UNREACHABLE: Consequences(
        ExitCode.UNAVAILABLE,
        "check schemaRegistry.url, the network and the registry; the pipeline resumes by itself",
        excuses_batch=True,
        of_schemas=True,
    ),
    Reason.REGISTRY_LOGIN_REFUSED: Consequences(
        ExitCode.UNAVAILABLE,
        "correct the Secret or the CA certificate of the registry, or grant its user the right; the pipeline resumes "
        "by itself",
        excuses_batch=True,
        of_schemas=True,
    ),
    Reason.SCHEMA_NOT_FOUND: Consequences(
        ExitCode.UNAVAILABLE,
        "register the schema, or correct source.subject and source.schemaVersion; the pipeline resumes by itself",
        of_schemas=True,
    ),
    Reason.SCHEMA_INCOMPATIBLE: Consequences(
        ExitCode.UNAVAILABLE,
        "change the schema, the transform or the subject's compatibility level; the pipeline resumes by itself",
        excuses_batch=True,
        of_schemas=True,
    ),
    Reason.SUPERSEDED: Consequences(
        ExitCode.SUPERSEDED,
        "nothing, if the newer driver is intended; otherwise stop it",
        permanent=True,
        driver_decides=True,
        excuses_batch=True,
    ),
    Reason.NAME_TAKEN: Consequences(
        ExitCode.UNAVAILABLE, "remove the other object, or recreate the pipeline with another name"
    ),
    Reason.KUBERNETES_REFUSED: Consequences(
        ExitCode.UNAVAILABLE, "grant the missing permissions (the chart grants them), or raise the quota"
    ),
    Reason.KUBERNETES_UNREACHABLE: Consequences(
        ExitCode.UNAVAILABLE, "check the kubeconfig and the network; the operator retries by itself"
    ),
    Reason.UNEXPECTED: Consequences(
        ExitCode.FAILED, "read the log; if the failure persists, collect a support bundle", blames_batch=True
    ),
}
