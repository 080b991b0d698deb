"""The driver's own transactions: it settles its lanes when it takes them, and advances them under at-least-once.

A driver that stops in order commits its positions as final. All use the pipeline's own transactional.id. Advances share
one epoch, the one case in which an epoch carries several transactions: a late copy of one can at worst commit a
position whose records were delivered, one that is ahead or one of an earlier advance, after which records are delivered
again (docs/protocol.md#rule-2; variant alo-driver of the model). Every other transaction has a separate epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from ackwright_stream.connection import translate
from ackwright_stream.jobspec import JobSpec, KafkaSink
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Membership
from ackwright_stream.sinks.kafka.lane_records import accepted_key, driver_key, final_key, final_value, record_key
from ackwright_stream.sinks.kafka.markers import of_membership
from ackwright_stream.sinks.kafka.offsets import to_offset
from ackwright_stream.sinks.kafka.sent_offsets import SentOffsets
from ackwright_stream.sinks.kafka.transactions import SlotTransactions, described


class DriverTransactions:
    """Initialises its transactional.id when it is first used. Not thread-safe."""

    def __init__(self, job: JobSpec, transactions: SlotTransactions, lanes_topic_id: str) -> None:
        self._job, self._transactions, self._lanes_topic_id = job, transactions, lanes_topic_id
        self._names = job.sink_of(KafkaSink).positions
        self._advancing: Producer | None = None

    def settle(
        self,
        positions: Mapping[Lane, Position],
        records: Mapping[Lane, Mapping[str, Any] | None],
        membership: Membership,
        accepted: str | None = None,
        driver: Mapping[str, Any] | None = None,
    ) -> None:
        """One transaction of positions and of the records of lanes. It removes the record of final positions.

        accepted: a fingerprint that is recorded as used. driver: as driver_value() returned it, to be recorded.
        """

        def write(producer: Producer) -> int:
            for lane, output_ends in records.items():
                value: dict[str, Any] = {"start": positions[lane].offset, "topicId": positions[lane].topic_id}
                if output_ends is not None:
                    value["sinkBefore"] = output_ends
                producer.produce(self._names.lanes_topic, json.dumps(value).encode(), record_key(self._job.group, lane))
            # Also where none was read: a driver that stops may have committed them a moment ago. From now on the
            # positions move without them, so they must not outlive this start.
            producer.produce(self._names.lanes_topic, None, final_key(self._job.group))
            if driver is not None:
                producer.produce(self._names.lanes_topic, json.dumps(driver).encode(), driver_key(self._job.group))
            if accepted is not None:
                producer.produce(self._names.lanes_topic, json.dumps(accepted).encode(), accepted_key(self._job.group))
            return len(records)

        self._commit(positions, membership, write)

    def stop(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        """One transaction of positions and of the record that they are final."""

        def write(producer: Producer) -> int:
            value = json.dumps(final_value(positions)).encode()
            producer.produce(self._names.lanes_topic, value, final_key(self._job.group))
            return 1

        self._commit(positions, membership, write)

    def _commit(
        self, positions: Mapping[Lane, Position], membership: Membership, write: Callable[[Producer], int]
    ) -> None:
        self._drop()
        producer = self._transactions.initialised(self._names.driver_transactional_id)
        # All pipelines share the lanes topic, and an open transaction hides what follows it there: a driver that was
        # replaced must not open one.
        self._transactions.commit(producer, self._offsets(positions), membership, write, offsets_first=True)

    def _offsets(self, positions: Mapping[Lane, Position]) -> list[TopicPartition]:
        return [to_offset(self._job, lane, position, self._lanes_topic_id) for lane, position in positions.items()]

    def advance(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        """One transaction of positions alone. After a JobError the driver has to take its lanes again."""
        if self._advancing is None:
            self._advancing = self._transactions.initialised(self._names.driver_transactional_id)
        timeout, offsets = self._job.operation_timeout_ms / 1000, self._offsets(positions)
        markers, group = of_membership(self._job, membership)
        try:
            self._advancing.begin_transaction()
            SentOffsets(self._advancing, markers.committed(offsets), group, timeout).wait()
            self._advancing.commit_transaction(timeout)
        except KafkaException as e:
            self._drop()
            raise translate(e.args[0], f"advancing {described(offsets)}") from e

    def _drop(self) -> None:
        if self._advancing is not None:
            self._transactions.release(self._advancing)
            self._advancing = None
