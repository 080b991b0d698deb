"""A producer at a constant rate, and a read_committed consumer of what a pipeline delivers of it.

Each record's value contains the time at which it was sent; the consumer compares it with the clock. Neither asks Spark.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass
from types import TracebackType

from confluent_kafka import Consumer, Producer, TopicPartition

_SEND_INTERVAL = 0.02  # seconds; each send goes to one partition in turn, like a producer that fills batches (KIP-480)


@dataclass(frozen=True)
class Delivery:
    """A record that the consumer has read."""

    partition: int  # of the source
    sent_at: float  # seconds since the epoch
    received_at: float

    @property
    def latency(self) -> float:
        """Seconds."""
        return self.received_at - self.sent_at


class Load:
    """Use it as a context manager; it starts paused. rate: records per second."""

    def __init__(self, bootstrap: str, source: str, sink: str, partitions: int, rate: int) -> None:
        self._bootstrap, self._source, self._sink = bootstrap, source, sink
        self._partitions, self._rate = partitions, rate
        self._flowing, self._paused, self._end = threading.Event(), threading.Event(), threading.Event()
        self._pending: set[int] = set()  # numbers of records that were sent and not read
        self._delivered: list[Delivery] = []
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._send, self._read)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(30)

    def resume(self) -> None:
        self._flowing.set()

    def pause(self) -> None:
        """Returns when the last record is sent."""
        self._flowing.clear()
        self._paused.clear()
        if not self._paused.wait(30):
            raise RuntimeError(f"the producer of {self._source} does not stop")

    @property
    def caught_up(self) -> bool:
        """Whether every record that was sent is delivered."""
        return not self._pending

    def deliveries(self) -> list[Delivery]:
        """The deliveries since the last take(), each record's first one."""
        return list(self._delivered)

    def take(self) -> list[Delivery]:
        """Returns the deliveries since the last take() and forgets them. Only while it is paused and caught up."""
        deliveries, self._delivered = self._delivered, []
        return deliveries

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": "all", "linger.ms": 0})
        partitions = itertools.cycle(range(self._partitions))
        number = 0
        while not self._end.is_set():
            if not self._flowing.wait(0.05):
                self._paused.set()
                continue
            started_at, first = time.monotonic(), number
            while self._flowing.is_set() and not self._end.wait(_SEND_INTERVAL):
                partition, due = next(partitions), first + int((time.monotonic() - started_at) * self._rate)
                for n in range(number, due):
                    self._pending.add(n)
                    producer.produce(
                        self._source, b"%d %d %r" % (n, partition, time.time()), b"%d" % n, partition=partition
                    )
                number = due
                producer.poll(0)
        producer.flush(10)

    def _read(self) -> None:
        """Reads with long fetches, which brokers answer as soon as there are records.

        Fetching every 10 ms instead used a sixth of the brokers' processor and delivered nothing earlier.
        """
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(self._sink, p, 0) for p in range(self._partitions)])
            while not self._end.is_set():
                first = consumer.poll(0.2)
                received_at = time.time()
                for m in [] if first is None else [first, *consumer.consume(500, 0)]:
                    value = m.value()
                    if m.error() or value is None:
                        continue
                    number, partition, sent_at = value.split()
                    if int(number) in self._pending:  # not a duplicate: the baseline is at-least-once
                        self._delivered.append(Delivery(int(partition), float(sent_at), received_at))
                        self._pending.discard(int(number))
        finally:
            consumer.close()
