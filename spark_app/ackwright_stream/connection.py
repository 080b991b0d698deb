"""Settings of the job's own Kafka clients, and the meaning of their errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.credentials import Unusable, login
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Cluster, JobSpec, Reason
from ackwright_stream.kafka_errors import UNAUTHENTICATED, meaning

T = TypeVar("T")

_ONE_TRY_S = 5.0  # of a request that is repeated
_PAUSE_S = 0.05  # before it is repeated: some refusals come at once
_ONLY_ERRORS = "delivery.report.only.error"
# The group's coordinator refuses offsets of a membership that is not the current one.
NOT_A_MEMBER = frozenset({KafkaError.FENCED_INSTANCE_ID, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION})
FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)
# What the end of a transaction's time looks like to its producer, see timed_out().
_LATE = FENCED | {
    KafkaError._FATAL,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._INCONSISTENT,  # a commit after some rows have timed out
    KafkaError._QUEUE_FULL,
}


def settings(cluster: Cluster, *more: Mapping[str, str]) -> dict[str, Any]:
    """The librdkafka settings of a client; later ones win.

    The credentials are read from their files at this moment, so the next client uses a rotated Secret. Raises
    JobError(AUTHENTICATION_FAILED).
    """
    merged: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        **cluster.every_client,
        **cluster.librdkafka,
    }
    if cluster.credentials:
        try:
            merged |= login(cluster.credentials)
        except Unusable as e:
            raise JobError(Reason.AUTHENTICATION_FAILED, e.cause, e.remedy) from e
    for extra in more:
        merged.update(extra)
    if _ONLY_ERRORS in merged:  # the one setting that confluent-kafka refuses as text
        merged[_ONLY_ERRORS] = str(merged[_ONLY_ERRORS]).lower() == "true"
    return merged


def positions_consumer(job: JobSpec, cluster: Cluster | None = None) -> Consumer:
    """A consumer that reads the group's offsets and never joins the group. cluster: None for the source's.

    It reads committed transactions only: that sets require_stable (KIP-447), so that the consumer waits for a pending
    offset instead of overlooking it. (docs/protocol.md#rule-9)
    """
    return Consumer(settings(cluster or job.cluster, job.positions_consumer))


def administrator(cluster: Cluster, errors: list[KafkaError]) -> AdminClient:
    """An admin client that appends the errors of its connections to `errors`.

    Raises JobError(INVALID_SPEC) for settings that librdkafka refuses, such as a CA certificate that cannot be read.
    """
    try:
        return AdminClient({**settings(cluster), "error_cb": errors.append})
    except KafkaException as e:
        raise JobError(
            Reason.INVALID_SPEC,
            f"the connection to {cluster.bootstrap_servers} cannot be set up: {e.args[0].str()}",
            "check the CA certificate and the settings under kafka",
        ) from e


def require_reachable(admin: AdminClient, errors: list[KafkaError], address: str, timeout: float) -> ClusterMetadata:
    """The brokers' topics, as the first request of a connection.

    Raises JobError with the reason why the brokers cannot be reached. errors: the list that administrator() got.
    timeout: seconds."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return admin.list_topics(timeout=2)
        except KafkaException as e:
            # The call itself cannot tell wrong credentials from unreachable brokers; the connections' errors can.
            admin.poll(0)  # passes them to error_cb
            cause = next((x for x in errors if x.code() in UNAUTHENTICATED), e.args[0])
            if cause.code() in UNAUTHENTICATED or time.monotonic() >= deadline:
                raise translate(cause, f"connecting to {address}") from e


def translate(error: KafkaError, what: str) -> JobError:
    """The error in the user's terms. what: the action that failed, such as "reading the positions of ops.flights"."""
    code = error.code()
    failure = f"{what} failed: {error.str()} ({error.name()})"
    if code in FENCED:
        return JobError(
            Reason.POSITION_CONFLICT, failure, "another driver, or a later attempt of the same task, has taken over"
        )
    if code in NOT_A_MEMBER:
        return JobError(
            Reason.POSITION_CONFLICT,
            failure,
            "another driver has taken over this pipeline, or this one has sent no heartbeat for too long",
        )
    known = meaning(code)
    if known is None:
        return JobError(Reason.BATCH_FAILED, failure)
    remedy = known.remedy.format(principal="the job's principal", permission="this permission")
    return JobError(known.reason, failure, remedy)


def timed_out(
    error: JobError, seconds: float, timeout: float, then: str = "the driver continues with smaller batches"
) -> JobError | None:
    """TRANSACTION_TIMED_OUT, if an attempt that failed after so many seconds may have outlasted its transaction.

    The coordinator aborts a transaction that is open for longer than its timeout, and fences its producer. To the
    producer that looks like a new owner: its commit is fenced, or a row is refused with _FATAL if it comes after that.
    Or rows expire in the producer's queue, after delivery.timeout.ms, which is the same time: brokers accept them too
    slowly. The attempt's duration alone distinguishes that from another owner. None: the error is what it says. then:
    what follows, and what to do.
    """
    cause = error.__cause__
    code = cause.args[0].code() if isinstance(cause, KafkaException) else None
    if seconds < timeout or code not in _LATE:
        return None
    return JobError(
        Reason.TRANSACTION_TIMED_OUT,
        f"{error.cause}; the attempt took {seconds:.0f} s, so its transaction may have "
        f"exceeded transaction.timeout.ms ({timeout * 1000:.0f}); {then}",
    )


def calling(what: str, call: Callable[[], T]) -> T:
    """The result of one call to Kafka.

    Raises JobError; without an answer in time, the outcome of the call is unknown.
    """
    try:
        return call()
    except TimeoutError as e:
        raise JobError(
            Reason.BROKERS_UNREACHABLE,
            f"{what}: no answer in time, so its outcome is not known; check that the brokers are up",
        ) from e
    except KafkaException as e:
        raise translate(e.args[0], what) from e


@contextmanager
def metadata_may_lag() -> Iterator[None]:
    """Turns "unknown partition" into an error that repeated() retries, of a partition that a broker has just described.

    Brokers learn of new partitions one after the other, so another broker may not know it yet (observed).
    """
    try:
        yield
    except KafkaException as e:
        if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        raise JobError(
            Reason.BROKERS_UNREACHABLE,
            "a broker does not know a partition yet that another one described; if the topic still exists, try again",
        ) from e


def repeated(what: str, timeout: float, read: Callable[[float], T]) -> T:
    """The result of a request that changes nothing, repeated for up to `timeout` seconds in all.

    Any broker may answer, and the one with the request may hang. `read` takes the seconds for one try. Raises JobError.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        try:
            return calling(what, lambda: read(max(1.0, min(_ONE_TRY_S, left))))  # noqa: B023 (called at once)
        except JobError as e:
            if e.reason is not Reason.BROKERS_UNREACHABLE or left <= _ONE_TRY_S:
                raise
        time.sleep(_PAUSE_S)
