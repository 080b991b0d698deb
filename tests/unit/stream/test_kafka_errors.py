"""What librdkafka's error codes mean: the same for the job and the operator, except where one of them knows more."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from ackwright.clients.kafka import Kafka
from ackwright_stream import connection, kafka_errors
from ackwright_stream.jobspec import Cluster, Reason
from ackwright_stream.reasons import REASONS

CODES = sorted(kafka_errors.UNREACHABLE | kafka_errors.BUSY | kafka_errors.UNAUTHENTICATED | kafka_errors.MISSING)
# Only the job is fenced; only the operator changes topics.
OF_THE_JOB = sorted(connection.FENCED | connection.NOT_A_MEMBER)
OF_THE_OPERATOR = {
    KafkaError.INVALID_REPLICATION_FACTOR: Reason.BROKERS_TOO_FEW,
    KafkaError.INVALID_CONFIG: Reason.INVALID_SPEC,
    KafkaError.INVALID_PARTITIONS: Reason.INVALID_SPEC,
    KafkaError.INVALID_REQUEST: Reason.INVALID_SPEC,
    KafkaError.POLICY_VIOLATION: Reason.INVALID_SPEC,
    KafkaError.TOPIC_EXCEPTION: Reason.INVALID_SPEC,
}


@pytest.fixture(scope="module")
def client() -> Kafka:
    return Kafka(Cluster("127.0.0.1:1"))


def both(client: Kafka, code: int) -> tuple[Any, Any]:
    error = KafkaError(code)
    return client.translate(error, "reading"), connection.translate(error, "reading")


@pytest.mark.parametrize("code", CODES)
def test_job_and_operator_have_the_same_reason_and_remedy(client: Kafka, code: int) -> None:
    operators, jobs = both(client, code)
    known = kafka_errors.meaning(code)
    assert known is not None
    assert operators.reason is jobs.reason is known.reason
    assert operators.remedy == known.remedy
    assert jobs.message == f"{jobs.cause}; {known.remedy}"


@pytest.mark.parametrize("code", sorted(kafka_errors.UNREACHABLE | kafka_errors.BUSY))
def test_at_most_once_abandons_no_batch_for_the_state_of_the_brokers(code: int) -> None:
    """Another attempt at the same batch can succeed, and its records would be lost for nothing."""
    known = kafka_errors.meaning(code)
    assert known is not None
    assert not REASONS[known.reason].blames_batch


@pytest.mark.parametrize("code", sorted(kafka_errors.MISSING))
def test_the_job_does_not_say_that_a_declared_topic_is_to_be_declared(client: Kafka, code: int) -> None:
    """It does not know spec.topics; the condition Ready says what to do about a topic that was deleted."""
    assert both(client, code)[1].message.endswith("; create the topic, or restore it if it was deleted")


def test_a_missing_permission_names_the_principal_that_needs_it(client: Kafka) -> None:
    operators, jobs = both(client, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert operators.reason is jobs.reason is Reason.AUTHORIZATION_FAILED
    assert operators.remedy == "grant the principal this permission"
    assert jobs.message.endswith("; grant the job's principal this permission")


@pytest.mark.parametrize("code", OF_THE_JOB)
def test_only_the_job_is_fenced(client: Kafka, code: int) -> None:
    operators, jobs = both(client, code)
    assert (operators.reason, jobs.reason) == (Reason.UNEXPECTED, Reason.POSITION_CONFLICT)


@pytest.mark.parametrize("code", OF_THE_OPERATOR)
def test_only_the_operator_changes_topics(client: Kafka, code: int) -> None:
    """In the job InvalidSpec would be permanent, and the guarantee would not blame the batch."""
    operators, jobs = both(client, code)
    assert (operators.reason, jobs.reason) == (OF_THE_OPERATOR[code], Reason.BATCH_FAILED)


def test_no_code_has_two_meanings() -> None:
    codes = [code for m in kafka_errors._MEANINGS for code in m.codes]
    assert len(codes) == len(set(codes))
    assert not set(codes) & {*OF_THE_JOB, *OF_THE_OPERATOR}
