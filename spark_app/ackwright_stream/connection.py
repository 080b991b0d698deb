"""Settings of the Kafka clients that the job makes itself, and what their errors mean."""

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

T = TypeVar("T")

UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_LEADER_FOR_PARTITION,  # of one that is new, or has just moved
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
UNAUTHENTICATED = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})
UNAUTHORIZED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_ONE_TRY_S = 5.0  # of a question that is asked again
_PAUSE_S = 0.05  # before it is asked again: some refusals come at once
_ONLY_ERRORS = "delivery.report.only.error"
FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)


def settings(cluster: Cluster, *more: Mapping[str, str]) -> dict[str, Any]:
    """librdkafka settings of a client. The credentials are read from their files now, so a rotated Secret is seen by the next client."""
    found: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        **cluster.every_client,
        **cluster.librdkafka,
    }
    if cluster.credentials:
        try:
            found |= login(cluster.credentials)
        except Unusable as e:
            raise JobError(Reason.AUTHENTICATION_FAILED, str(e)) from e
    for extra in more:
        found.update(extra)
    if _ONLY_ERRORS in found:
        found[_ONLY_ERRORS] = (
            str(found[_ONLY_ERRORS]).lower() == "true"
        )  # the one setting that confluent-kafka refuses as text
    return found


def positions_consumer(job: JobSpec) -> Consumer:
    """A consumer that never joins the group and reads its offsets. (rule 9)"""
    return Consumer(settings(job.cluster, job.positions_consumer))


def administrator(cluster: Cluster, errors: list[KafkaError]) -> AdminClient:
    """An admin client that appends to errors what librdkafka says on the side. Raises JobError(INVALID_SPEC) for settings that librdkafka
    refuses, such as a CA certificate that cannot be read."""
    try:
        return AdminClient({**settings(cluster), "error_cb": errors.append})
    except KafkaException as e:
        said = f"the connection to {cluster.bootstrap_servers} cannot be set up: {e.args[0].str()}"
        raise JobError(Reason.INVALID_SPEC, f"{said}; check the CA certificate and the settings under kafka") from e


def reach(admin: AdminClient, errors: list[KafkaError], address: str, timeout: float) -> ClusterMetadata:
    """The brokers' topics. The first question of a connection: it finds out why brokers cannot be reached. timeout: seconds. Raises
    JobError."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return admin.list_topics(timeout=2)
        except KafkaException as e:
            # Wrong credentials show as unreachable brokers here; what librdkafka said on the side tells them apart.
            admin.poll(0)  # hands what it said to error_cb
            cause = next((x for x in errors if x.code() in UNAUTHENTICATED), e.args[0])
            if cause.code() in UNAUTHENTICATED or time.monotonic() >= deadline:
                raise translate(cause, f"connecting to {address}") from e


def translate(error: KafkaError, what: str) -> JobError:
    """The cause, in the user's terms. `what` says what was tried: "reading the positions of ops.flights"."""
    code = error.code()
    said = f"{what} failed: {error.str()} ({error.name()})"
    if code in FENCED:
        return JobError(Reason.POSITION_CONFLICT, f"{said}; another driver has taken over this lane")
    if code in UNAUTHENTICATED:
        return JobError(
            Reason.AUTHENTICATION_FAILED,
            f"{said}; check the user name, the password, the CA certificate and the host names",
        )
    if code in UNAUTHORIZED:
        return JobError(Reason.AUTHORIZATION_FAILED, f"{said}; grant the job's principal this permission")
    if code in UNREACHABLE:
        return JobError(
            Reason.BROKERS_UNREACHABLE, f"{said}; check bootstrapServers, the network and that the brokers are up"
        )
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return JobError(Reason.TOPIC_MISSING, f"{said}; create the topic or list it under spec.topics")
    return JobError(Reason.BATCH_FAILED, said)


def calling(what: str, call: Callable[[], T]) -> T:
    """Makes one call to Kafka; its error becomes a JobError that says what was tried. No answer in time is "unknown": look again."""
    try:
        return call()
    except TimeoutError as e:
        raise JobError(
            Reason.BROKERS_UNREACHABLE, f"{what}: no answer in time, so its outcome is not known; look again"
        ) from e
    except KafkaException as e:
        raise translate(e.args[0], what) from e


@contextmanager
def heard_of_by_all() -> Iterator[None]:
    """Around a question about partitions that a broker has just described: another one that does not know them has not heard of them yet
    (seen when partitions are added). asking() asks again."""
    try:
        yield
    except KafkaException as e:
        if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        raise JobError(
            Reason.BROKERS_UNREACHABLE,
            "a broker has not heard of a partition that another one described; if the topic is still there, try again",
        ) from e


def asking(what: str, timeout: float, ask: Callable[[float], T]) -> T:
    """Asks a question, and asks again while there is no answer, for `timeout` seconds in all: any broker may answer, and the one that was
    asked may hang. `ask` takes the seconds for one try; it must change nothing. Raises JobError."""
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        try:
            return calling(what, lambda: ask(max(1.0, min(_ONE_TRY_S, left))))  # noqa: B023 (called at once)
        except JobError as e:
            if e.reason is not Reason.BROKERS_UNREACHABLE or left <= _ONE_TRY_S:
                raise
        time.sleep(_PAUSE_S)
