"""How a committed offset becomes a position; an error never counts as a missing position (docs/protocol.md#rule-9)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.kafka import offsets
from minimal_job import minimal_job

LANE = Lane("flights", 3)
JOB = minimal_job(slots=5)
# As the releases whose transactions were the lanes' own read an offset's metadata.
OLDER_METADATA = re.compile(r"^ackwright/1 topic=(?P<topic>\S*) driver=(?P<driver>\d+)$")
NONE = -1001  # RD_KAFKA_OFFSET_INVALID

LANES = "Xy-9_0123456789abcdefgh"  # the id of the lanes topic


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
    position = Position(42, "q1Sh-9_xQwS", 7, "an-identity")
    assert offsets.to_position(offsets.to_offset(JOB, LANE, position, LANES)) == position
    stateful = replace(position, batch=12)
    assert offsets.to_position(offsets.to_offset(JOB, LANE, stateful, LANES)) == stateful


@pytest.mark.parametrize("identity", ["an identity", "an;identity", "an-identity\n"])
def test_an_identity_that_metadata_cannot_hold_is_refused(identity: str) -> None:
    """The driver's own positions would look like those of another program."""
    with pytest.raises(ValueError, match=r"identity: .* must have neither spaces nor semicolons"):
        replace(JOB, identity=identity)


def test_metadata_names_the_lanes_topic_that_has_the_record() -> None:
    assert offsets.recorded_in(offsets.to_offset(JOB, LANE, Position(42, "q1Sh-9_xQwS", 7), LANES)) == LANES
    for other in ("", "ackwright/1 topic=q1Sh-9_xQwS driver=7", "of another program"):
        assert offsets.recorded_in(TopicPartition(LANE.topic, LANE.partition, 42, other)) == ""


def test_metadata_tells_how_many_slots_there_were() -> None:
    """A later driver initialises all of them."""
    assert offsets.slots_of(offsets.to_offset(JOB, LANE, Position(42, "q1Sh-9_xQwS", 7), LANES)) == 5
    assert offsets.slots_of(offsets.to_offset(minimal_job(slots=16), LANE, Position(0, "", 1), LANES)) == 16


def test_a_position_of_an_earlier_release_has_no_slots() -> None:
    older = TopicPartition(LANE.topic, LANE.partition, 42, "ackwright/1 topic=q1Sh-9_xQwS driver=7")
    assert offsets.to_position(older) == Position(42, "q1Sh-9_xQwS", 7)
    assert offsets.slots_of(older) is None
    assert offsets.to_position(TopicPartition(LANE.topic, LANE.partition, 42, "ackwright/1 topic= driver=7")) == (
        Position(42, "", 7)
    )


@pytest.mark.parametrize("topic_id", ["q1Sh-9_xQwS", ""])
def test_an_earlier_release_reads_the_id_of_a_topic_that_does_not_exist(topic_id: str) -> None:
    """So it halts, beside a driver that it cannot fence. Kafka's ids are base64 texts without a semicolon."""
    metadata = OLDER_METADATA.match(offsets.to_offset(JOB, LANE, Position(42, topic_id, 7), LANES).metadata)
    assert metadata
    assert metadata["driver"] == "7"
    assert metadata["topic"] == f"{topic_id};slots=5;lanes={LANES};pipeline="
    older = TopicPartition(LANE.topic, LANE.partition, 42, f"ackwright/1 topic={topic_id} driver=7")
    control = OLDER_METADATA.match(older.metadata)
    assert control
    assert control["topic"] == topic_id


@pytest.mark.parametrize(
    "metadata",
    ["", "another program's", "ackwright/1 topic=x;slots= driver=1", "ackwright/1 topic=x;slots=y driver=1"],
)
def test_an_offset_that_somebody_else_committed_has_no_slots(metadata: str) -> None:
    committed = TopicPartition(LANE.topic, LANE.partition, 42, metadata)
    assert offsets.slots_of(committed) is None
    assert offsets.to_position(committed) == Position(42)
    assert Position(42).is_foreign


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
