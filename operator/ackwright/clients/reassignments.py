"""Moves of replicas between brokers (KIP-455), by kafka-python, since confluent-kafka lacks these two admin calls.

Each call opens a separate connection. The broker answers for each partition; a partition without an answer counts as
refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import closing
from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient

from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.planning.replicas import Reassignment
from ackwright.wording import counted
from ackwright_stream.jobspec import Reason

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # failures are raised, and its retries are of no interest

_REFUSED_LOGIN = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)

MARGIN_S = 2.0  # beyond the time-outs of kafka-python, which name the cause


def under_way(settings: Mapping[str, Any], timeout: float) -> dict[tuple[str, int], Reassignment]:
    """Every move of the cluster that has not ended, by topic and partition. settings: librdkafka's; timeout: seconds.

    Raises AckwrightError.
    """
    moves = call_admin(
        "listing moves of replicas",
        settings,
        timeout,
        lambda admin: admin.list_partition_reassignments(timeout_ms=int(timeout * 1000)),
    )
    return {
        (tp.topic, tp.partition): Reassignment(tuple(move["adding_replicas"]), tuple(move["removing_replicas"]))
        for tp, move in moves.items()
    }


def begin(settings: Mapping[str, Any], timeout: float, topic: str, moves: Mapping[int, tuple[int, ...]]) -> Outcome:
    """Starts moves of the topic's partitions to these replicas.

    Raises AckwrightError with the moves that the brokers refuse.
    """
    action = f"moving replicas of topic {topic}"
    targets = {TopicPartition(topic, number): list(replicas) for number, replicas in moves.items()}
    try:
        answers = call_admin(
            action,
            settings,
            timeout,
            lambda admin: admin.alter_partition_reassignments(targets, timeout_ms=int(timeout * 1000)),
        )
    except AckwrightError as e:
        if e.reason is Reason.BROKERS_UNREACHABLE:
            return Outcome.UNKNOWN
        raise
    refused = {tp: error for tp in targets if (error := answers.get(tp, kafka_errors.UnknownError)) is not None}
    if refused:
        causes = sorted({_cause(error) for error in refused.values()})
        raise AckwrightError(
            _reason(next(iter(refused.values()))),
            f"{action} failed for {len(refused)} of {counted(len(targets), 'partition')}: {'; '.join(causes)}",
        )
    return Outcome.DONE


def call_admin(
    action: str, settings: Mapping[str, Any], timeout: float, call: Callable[[KafkaAdminClient], Any]
) -> Any:
    """The result of a call with a connection of kafka-python's. action: for messages; timeout: seconds.

    In a thread that is abandoned without an answer in time: kafka-python waits for a TLS handshake, and for the end of
    its own thread, without a limit. Raises AckwrightError.
    """
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            with closing(KafkaAdminClient(**_renamed(settings, int(timeout * 1000)))) as admin:
                answer.set_result(call(admin))
        except BaseException as e:
            if not answer.done():
                answer.set_exception(e)

    threading.Thread(target=run, name="kafka-python", daemon=True).start()
    limit = timeout + MARGIN_S
    if answer not in wait([answer], limit).done:
        raise AckwrightError(Reason.BROKERS_UNREACHABLE, f"{action} failed: no answer within {limit:g} s")
    try:
        return answer.result()
    except kafka_errors.KafkaError as e:
        raise AckwrightError(_reason(type(e)), f"{action} failed: {_cause(type(e))}") from e
    except (OSError, RuntimeError) as e:  # a certificate that cannot be read; no controller
        raise AckwrightError(Reason.BROKERS_UNREACHABLE, f"{action} failed: {e}") from e


def _renamed(settings: Mapping[str, Any], timeout_ms: int) -> dict[str, Any]:
    """The settings by kafka-python's names."""
    names = {
        "security_protocol": "security.protocol",
        "ssl_cafile": "ssl.ca.location",
        "sasl_mechanism": "sasl.mechanism",
        "sasl_plain_username": "sasl.username",
        "sasl_plain_password": "sasl.password",
        "receive_message_max_bytes": "receive.message.max.bytes",
    }
    present = {name: settings[theirs] for name, theirs in names.items() if theirs in settings}
    servers = settings["bootstrap.servers"].split(",")
    return {
        "bootstrap_servers": servers,
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
        **present,
    }


def _reason(error: type[Exception]) -> Reason:
    if issubclass(error, _REFUSED_LOGIN):
        return Reason.AUTHENTICATION_FAILED
    if issubclass(error, kafka_errors.AuthorizationError):
        return Reason.AUTHORIZATION_FAILED
    if issubclass(error, kafka_errors.UnknownTopicOrPartitionError):
        return Reason.TOPIC_MISSING
    return Reason.BROKERS_UNREACHABLE if issubclass(error, kafka_errors.RetriableError) else Reason.UNEXPECTED


def _cause(error: type[Exception]) -> str:
    description = getattr(error, "description", None) or error.__doc__ or ""
    remedy = "; grant the principal Alter on the cluster" if issubclass(error, kafka_errors.AuthorizationError) else ""
    return f"{error.__name__}: {' '.join(str(description).split())}{remedy}"
