"""How a committed offset becomes a position; an error never counts as a missing position (docs/protocol.md#rule-9)."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.kafka import offsets

LANE = Lane("flights", 3)
NONE = -1001  # RD_KAFKA_OFFSET_INVALID


class Answer:
    """A TopicPartition as librdkafka answers it; the real one's error cannot be set."""

    def __init__(self, offset: int, metadata: str | None = None, error: int | None = None) -> None:
        self.topic, self.partition, self.offset, self.metadata = LANE.topic, LANE.partition, offset, metadata
        self.error = None if error is None else KafkaError(error)


class Broker:
    """Stands for a consumer: gives its answers one after the other, the last one forever."""

    def __init__(self, *answers: Answer | int) -> None:
        self.answers, self.asked = list(answers), 0

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[Answer]:
        assert [(x.topic, x.partition) for x in asked] == [(LANE.topic, LANE.partition)]
        assert timeout > 0
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return [answer]


def read(*answers: Answer | int, timeout: float = 5.0) -> Position | None:
    broker: Any = Broker(*answers)
    return offsets.read(broker, [LANE], timeout)[LANE]


def test_metadata_goes_there_and_back() -> None:
    position = Position(42, "q1Sh-9_xQwS", 7)
    assert offsets.to_position(offsets.to_offset(LANE, position)) == position


@pytest.mark.parametrize(
    "metadata", [None, "", "another program's", "ackwright/2 topic=x driver=1", "ackwright/1 topic=x driver=y"]
)
def test_an_offset_that_somebody_else_committed_is_adopted(metadata: str | None) -> None:
    assert read(Answer(42, metadata)) == Position(42)


def test_no_offset_is_no_position_and_offset_0_is_one() -> None:
    assert read(Answer(NONE)) is None
    assert read(Answer(0)) == Position(0)


@pytest.mark.parametrize(
    "error",
    [
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._TRANSPORT,
    ],
)
def test_a_passing_error_is_asked_again_wherever_it_stands(error: int) -> None:
    assert read(error, Answer(5)) == Position(5)
    assert read(Answer(NONE, error=error), Answer(5)) == Position(
        5
    )  # the offset beside the error says "none": it is not believed


def test_an_error_that_does_not_pass_is_never_a_missing_position() -> None:
    with pytest.raises(JobError) as caught:
        read(Answer(NONE, error=KafkaError.UNSTABLE_OFFSET_COMMIT), timeout=0.1)
    assert caught.value.reason is not Reason.POSITION_LOST
    with pytest.raises(JobError) as caught:
        read(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED


def test_time_is_bounded() -> None:
    with pytest.raises(JobError) as caught:
        read(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, timeout=0.1)
    assert caught.value.reason is Reason.BROKERS_UNREACHABLE
    assert str(LANE) in caught.value.message
