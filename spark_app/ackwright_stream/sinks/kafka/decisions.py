"""The decisions of stateful pipelines: one record for each, in a compacted topic, in the transaction of the positions.

Under exactly-once output and dead letters are in that transaction as well.

The driver makes that transaction, with the pipeline's own transactional.id. The steps and their order are those of
transactions.py. All lanes are in it, also those that do not move: the group's coordinator refuses the offsets of a
driver that was replaced, and nothing is written before it has accepted them.

If the sink has its own cluster, a header of the record has the id of the source's cluster. Offsets and batches of two
sources may have the same numbers, and the state has the records of one of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Message, Producer

from ackwright_stream.connection import timed_out
from ackwright_stream.decisions import loss_of, state_lost
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Membership, Rows
from ackwright_stream.sinks.kafka import compacted, offsets
from ackwright_stream.sinks.kafka.markers import of_membership

if TYPE_CHECKING:
    from ackwright_stream.sinks.kafka.sink import TopicSink

_SOURCE = "source"  # the header with the id of the source's cluster
_SLOW = (
    "the driver continues with smaller batches; they do not help if the rows are of state that one step of the "
    "watermark has ended: then declare guarantee: at-least-once, whose output is in no transaction, as long as needed"
)


class DecisionTopic:
    """The decisions of one pipeline, in its driver."""

    def __init__(self, sink: TopicSink, topic: str) -> None:
        self._sink, self._topic = sink, topic
        self.writer = sink.plain_writer

    def last(self) -> str | None:
        last = next(iter(self._read(1)), None)
        if last is None or (value := last.value()) is None:
            return None
        text: str = value.decode()
        self._require_source(text, _source_of(last))
        return text

    def earlier(self) -> Sequence[str]:
        """Compaction removes them after a time. Only those of the same source cluster as the last one."""
        messages = self._read()
        source = _source_of(messages[-1]) if messages else None
        values = (message.value() for message in reversed(messages[:-1]) if _source_of(message) == source)
        return [value.decode() for value in values if value is not None]

    def _read(self, newest: int | None = None) -> Sequence[Message]:
        """The pipeline's records, oldest first; only so many of the newest."""
        messages: deque[Message] = deque(maxlen=newest)
        key = self._sink.job.group.encode()

        def apply(message: Message) -> None:
            if message.key() == key:
                messages.append(message)

        compacted.read_to_end(self._sink.job, self._topic, apply, lambda message: message.key() == key)
        return list(messages)

    def _require_source(self, text: str, recorded: str | None) -> None:
        """Raises JobError(STATE_LOST) if the last decision, which has this text, is of another source cluster.

        Its fingerprint is of the decision alone: this driver commits positions before it decides a batch.
        """
        current = self._sink.current_markers().cluster
        if recorded is not None and recorded != current:
            problem = (
                f"the state has records of the Kafka cluster {recorded}, and the id at the source's address "
                f"is {current}"
            )
            raise state_lost(problem, loss_of(text, {}))

    def open(self, lanes: Sequence[Lane], membership: Membership) -> DecidingTransaction:
        return DecidingTransaction(self._sink, self._topic, lanes, membership)


class DecidingTransaction:
    """All lanes, with a producer that is good for one transaction."""

    def __init__(self, sink: TopicSink, topic: str, lanes: Sequence[Lane], membership: Membership) -> None:
        self._sink, self._topic, self._membership = sink, topic, membership
        names = sink.spec.positions
        self._producer = sink.transactions.initialised(names.driver_transactional_id, lanes)
        try:
            fault_point("after-init", *lanes)
            self._committed = sink.transactions.committed(lanes, of_membership(sink.job, membership)[0])
        except JobError:
            self.release()
            raise
        self.positions: Mapping[Lane, Position | None] = {
            lane: offsets.to_position(x) for lane, x in self._committed.items()
        }

    def commit(self, positions: Mapping[Lane, Position], rows: Rows, decision: str, letters: Rows = ()) -> int:
        sink, started = self._sink, time.monotonic()
        targets = [
            offsets.to_offset(sink.job, lane, position, offsets.recorded_in(self._committed[lane]))
            for lane, position in positions.items()
        ]
        columns: dict[str, list[Any]] = {"key": [sink.job.group.encode()], "value": [decision.encode()]}
        if cluster := of_membership(sink.job, self._membership)[0].cluster:
            columns["headers"] = [[{"key": _SOURCE, "value": cluster.encode()}]]
        record = pa.RecordBatch.from_pydict(columns)

        def write(producer: Producer) -> int:
            records = sink.enqueue(producer, rows, letters)
            sink.enqueue_to(producer, self._topic, [record])
            return records

        try:
            return sink.transactions.commit(self._producer, targets, self._membership, write, offsets_first=True)
        except JobError as e:
            limit = sink.job.transaction_timeout_ms / 1000
            raise timed_out(e, time.monotonic() - started, limit, _SLOW) or e from e.__cause__

    def release(self) -> None:
        self._sink.transactions.release(self._producer)


def _source_of(message: Message) -> str | None:
    """The id of the source's cluster; None if that is the sink's."""
    value = dict(message.headers() or ()).get(_SOURCE)
    return value.decode() if isinstance(value, bytes) else None
