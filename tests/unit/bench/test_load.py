"""The steady load, with an in-memory topic in place of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from bench import load as module
from bench.load import Load

from waiting import wait_until


class Record:
    """A record that the sink's consumer reads."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value

    def error(self) -> None:
        return None


class Topic:
    """Source and sink in one: what the producer sends, the consumer reads, once released and `copies` times."""

    def __init__(self, copies: int) -> None:
        self.copies, self.partitions, self.held = copies, list[int](), list[Record]()
        self.releases = False
        self._records: SimpleQueue[Record] = SimpleQueue()

    def produce(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        assert topic == "source"
        self.partitions.append(partition)
        self.held.append(Record(value))
        if self.releases:
            self.release()

    def release(self) -> None:
        self.releases, records, self.held = True, self.held, []
        for record in records:
            for _ in range(self.copies):
                self._records.put(record)

    def poll(self, timeout: float) -> Record | None:
        try:
            return self._records.get(timeout=timeout) if timeout else None
        except Empty:
            return None

    def consume(self, count: int, timeout: float) -> list[Record]:
        return []

    def flush(self, timeout: float) -> int:
        return 0

    def assign(self, partitions: list[Any]) -> None:
        assert len(partitions) == 4

    def close(self) -> None:
        pass


@pytest.fixture
def topic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Topic:
    fake = Topic(copies=getattr(request, "param", 1))
    monkeypatch.setattr(module, "Producer", lambda settings: fake)
    monkeypatch.setattr(module, "Consumer", lambda settings: fake)
    return fake


@pytest.fixture
def load(topic: Topic) -> Iterator[Load]:
    with Load("nobody", "source", "sink", 4, 500) as running:
        yield running


def sent_and_paused(load: Load, topic: Topic) -> int:
    """Sends to each partition; returns the number of records."""
    load.resume()
    wait_until(lambda: len(set(topic.partitions)) == 4, "each partition has a record", 20)
    load.pause()
    return len(topic.partitions)


def test_it_is_paused_at_first_and_after_a_pause(load: Load, topic: Topic) -> None:
    load.pause()
    assert topic.partitions == []
    number = sent_and_paused(load, topic)
    load.pause()  # returns when the sender has been idle once more
    assert len(topic.partitions) == number


def test_it_has_caught_up_when_every_record_is_delivered(load: Load, topic: Topic) -> None:
    number = sent_and_paused(load, topic)
    assert not load.caught_up
    topic.release()
    wait_until(lambda: load.caught_up, "all are delivered", 20)
    deliveries = load.take()
    assert len(deliveries) == number
    assert {d.partition for d in deliveries} == {0, 1, 2, 3}
    assert min(d.latency for d in deliveries) >= 0
    assert load.take() == []


@pytest.mark.parametrize("topic", [2], indirect=True)
def test_a_duplicate_counts_once(load: Load, topic: Topic) -> None:
    topic.release()
    number = sent_and_paused(load, topic)
    wait_until(lambda: load.caught_up, "all are delivered", 20)
    assert len(load.take()) == number
