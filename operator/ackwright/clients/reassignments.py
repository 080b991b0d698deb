"""Moves of replicas between brokers: the two admin calls that confluent-kafka lacks (KIP-455), by kafka-python.

A connection is made for the few moments in which replicas are to be moved. The broker answers for each partition, and a partition that it
does not name is as little moved as one that it refuses.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient

from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.planning.replicas import Reassignment
from ackwright_stream.jobspec import Reason

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what fails is raised; what it tries again is its own business

_REFUSED_LOGIN = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)


def under_way(settings: Mapping[str, Any], timeout: float) -> dict[tuple[str, int], Reassignment]:
    """Every move of the cluster that has not ended, by topic and partition. settings: librdkafka's; timeout: seconds. Raises
    AckwrightError."""
    with connected("listing moves of replicas", settings, timeout) as admin:
        found = admin.list_partition_reassignments(timeout_ms=int(timeout * 1000))
    return {
        (tp.topic, tp.partition): Reassignment(tuple(told["adding_replicas"]), tuple(told["removing_replicas"]))
        for tp, told in found.items()
    }


def begin(settings: Mapping[str, Any], timeout: float, topic: str, moves: Mapping[int, tuple[int, ...]]) -> Outcome:
    """Asks for these replicas of the topic's partitions. Raises AckwrightError with what was refused."""
    what = f"moving replicas of topic {topic}"
    wanted = {TopicPartition(topic, number): list(replicas) for number, replicas in moves.items()}
    try:
        with connected(what, settings, timeout) as admin:
            answers = admin.alter_partition_reassignments(wanted, timeout_ms=int(timeout * 1000))
    except AckwrightError as e:
        if e.reason is Reason.BROKERS_UNREACHABLE:
            return Outcome.UNKNOWN
        raise
    refused = {tp: error for tp in wanted if (error := answers.get(tp, kafka_errors.UnknownError)) is not None}
    if refused:
        causes = sorted({_cause(error) for error in refused.values()})
        raise AckwrightError(
            _reason(next(iter(refused.values()))),
            f"{what} failed for {len(refused)} of {len(wanted)} partitions: {'; '.join(causes)}",
        )
    return Outcome.DONE


@contextmanager
def connected(what: str, settings: Mapping[str, Any], timeout: float) -> Iterator[KafkaAdminClient]:
    """A connection of kafka-python's, for one question; its errors as AckwrightError, with `what` in front."""
    admin = None
    try:
        admin = KafkaAdminClient(**_renamed(settings, int(timeout * 1000)))
        yield admin
    except kafka_errors.KafkaError as e:
        raise AckwrightError(_reason(type(e)), f"{what} failed: {_cause(type(e))}") from e
    except (OSError, RuntimeError) as e:  # a certificate that cannot be read; no controller
        raise AckwrightError(Reason.BROKERS_UNREACHABLE, f"{what} failed: {e}") from e
    finally:
        if admin is not None:
            admin.close()


def _renamed(settings: Mapping[str, Any], timeout_ms: int) -> dict[str, Any]:
    """The connection in kafka-python's names."""
    names = {
        "security_protocol": "security.protocol",
        "ssl_cafile": "ssl.ca.location",
        "sasl_mechanism": "sasl.mechanism",
        "sasl_plain_username": "sasl.username",
        "sasl_plain_password": "sasl.password",
    }
    given = {ours: settings[theirs] for ours, theirs in names.items() if theirs in settings}
    servers = settings["bootstrap.servers"].split(",")
    return {"bootstrap_servers": servers, "request_timeout_ms": timeout_ms, "bootstrap_timeout_ms": timeout_ms, **given}


def _reason(error: type[Exception]) -> Reason:
    if issubclass(error, _REFUSED_LOGIN):
        return Reason.AUTHENTICATION_FAILED
    if issubclass(error, kafka_errors.AuthorizationError):
        return Reason.AUTHORIZATION_FAILED
    if issubclass(error, kafka_errors.UnknownTopicOrPartitionError):
        return Reason.TOPIC_MISSING
    return Reason.BROKERS_UNREACHABLE if issubclass(error, kafka_errors.RetriableError) else Reason.UNEXPECTED


def _cause(error: type[Exception]) -> str:
    said = getattr(error, "description", None) or error.__doc__ or ""
    remedy = "; grant the principal Alter on the cluster" if issubclass(error, kafka_errors.AuthorizationError) else ""
    return f"{error.__name__}: {' '.join(str(said).split())}{remedy}"
