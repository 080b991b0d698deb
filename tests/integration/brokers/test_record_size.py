"""The bytes that a broker compares with max.message.bytes, for records of which one byte more is refused."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.record_size import batch_of_one
from ackwright_stream.sinks.kafka.transactions import _broken
from ackwright_stream.topic_limits import with_batch_size
from integration.support.new_topics import NewTopicName, set_topic
from waiting import wait_until

Headers = list[tuple[str, bytes | None]]
RECORDS: list[tuple[bytes | None, bytes | None, Headers]] = [
    (None, b"v" * 2000, []),
    (b"", b"v" * 63, []),
    (b"k" * 64, None, [("h", b"1"), ("\u00fc", None)]),
    (b"k", b"v" * 8192, [("h", b"x" * 8000)]),
    (b"k" * 500, b"v" * 1_000_000, [("h", b"")]),
]


def code_of(producer: Producer, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> int | None:
    """The code of the error with which a record is refused; None if it is not."""
    errors: list[KafkaError | None] = []
    producer.produce(topic, value, key, headers=headers or None, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    (error,) = errors
    return error.code() if error else None


@pytest.mark.parametrize(("key", "value", "headers"), RECORDS, ids=range(len(RECORDS)))
def test_the_limit_is_exact(
    kafka: EmbeddedKafka, topic: NewTopicName, key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    name, size = topic(), batch_of_one(key, value, headers)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": 2_000_000})
    for limit, code in ((size - 1, KafkaError.MSG_SIZE_TOO_LARGE), (size, None)):
        set_topic(kafka.bootstrap_servers, name, "max.message.bytes", str(limit))

        def is_answered(code: int | None = code) -> bool:
            return code_of(producer, name, key, value, headers) == code

        wait_until(is_answered, f"error code {code}")  # the leader applies the setting a moment later


def test_small_records_are_refused_unless_batches_are_within_the_limit(
    kafka: EmbeddedKafka, topic: NewTopicName
) -> None:
    """Without the limit a batch has more than the topic takes: the control of what a driver does with it."""
    limit, count = 10_000, 1000
    name = topic(config={"max.message.bytes": str(limit)})
    by_default = {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": "1000"}

    def codes(settings: dict[str, str]) -> set[int | None]:
        """The codes of the errors of many small records; None: of those that are written."""
        errors: list[KafkaError | None] = []
        producer = Producer(dict(settings))
        for _ in range(count):
            producer.produce(name, b"v" * 100, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        assert len(errors) == count
        return {error.code() if error else None for error in errors}

    assert KafkaError.MSG_SIZE_TOO_LARGE in codes(by_default)
    assert codes(with_batch_size(by_default, [limit], default=1_000_000)) == {None}


def test_the_refusal_of_a_record_is_the_cause_of_what_follows(kafka: EmbeddedKafka, topic: NewTopicName) -> None:
    """Once the broker has refused a record, the producer refuses the next one for another reason."""
    name = topic(config={"max.message.bytes": "1000"})
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": name,
            "message.max.bytes": 2_000_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    assert _broken(producer) is None
    assert code_of(producer, name, None, b"v" * 2000, []) == KafkaError.MSG_SIZE_TOO_LARGE
    with pytest.raises(KafkaException) as next_one:
        producer.produce(name, b"v")
    assert next_one.value.args[0].code() == KafkaError._STATE
    broken = _broken(producer)
    assert broken is not None
    assert broken.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
