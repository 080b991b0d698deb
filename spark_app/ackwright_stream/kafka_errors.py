"""What librdkafka's error codes mean: one table, which the job and the operator share.

The job adds the codes that fence a producer or a member (connection.py), the operator those that refuse a change of a
topic (clients/kafka.py): a job changes no topic, and there these codes would make a failure of a batch permanent.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError

from ackwright_stream.reasons import Reason


@dataclass(frozen=True)
class Meaning:
    """What some error codes mean."""

    codes: frozenset[int]
    reason: Reason
    remedy: str  # {principal} lacks {permission}


UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._PARTIAL,  # one broker of several
        KafkaError._DESTROY_BROKER,  # the one that was asked has left the cluster
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_LEADER_FOR_PARTITION,  # the partition is new, or its leader has just moved
        KafkaError.LEADER_NOT_AVAILABLE,
        # Brokers and clients learn of a new leader one after the other.
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
    }
)
# What they have been asked is not possible yet.
BUSY = frozenset(
    {
        KafkaError.CONCURRENT_TRANSACTIONS,  # an earlier transaction has not completed: its partitions lack a leader
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)
_CERTIFICATE = frozenset({KafkaError._SSL})
UNAUTHENTICATED = _CERTIFICATE | {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
# The job does not know whether spec.topics lists the topic, or whether a recreated one loses records.
CREATE_TOPIC = "create the topic, or restore it if it was deleted"

_MEANINGS = (
    Meaning(
        _CERTIFICATE,
        Reason.AUTHENTICATION_FAILED,
        "check tls, the CA certificate, and that the brokers' certificates match their host names",
    ),
    Meaning(UNAUTHENTICATED - _CERTIFICATE, Reason.AUTHENTICATION_FAILED, "check the user name and the password"),
    Meaning(
        frozenset(
            {
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.GROUP_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            }
        ),
        Reason.AUTHORIZATION_FAILED,
        "grant {principal} {permission}",
    ),
    Meaning(
        UNREACHABLE,
        Reason.BROKERS_UNREACHABLE,
        "check the address (bootstrapServers), the network, and that the brokers are up",
    ),
    Meaning(
        BUSY,
        Reason.BROKERS_UNREACHABLE,
        "check that all brokers are up, and that each partition has a leader and min.insync.replicas in-sync replicas",
    ),
    Meaning(MISSING, Reason.TOPIC_MISSING, CREATE_TOPIC),
)


def meaning(code: int) -> Meaning | None:
    """What the code means; None: it is not in the table."""
    return next((m for m in _MEANINGS if code in m.codes), None)
