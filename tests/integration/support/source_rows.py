"""The rows of a task, read from the source by offsets, as Spark's consumers read them: whatever the topic's id is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from ackwright_stream.connection import settings
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.positions import UNMERGED, Lane, Task

ROWS = 25  # of an Arrow batch
READ_S = 10  # seconds in which a task's ranges are read
_READER = {
    "group.id": "lane-process",  # nothing is committed
    "enable.auto.commit": "false",
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": "20",
}


class SourceRows:
    """Reads the records of ranges. Not thread-safe."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._consumer: Consumer | None = None  # connects when it is first used

    def of_task(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yields the records of the task's ranges, one range after the other, as Arrow batches. Raises JobError."""
        records = self._read(task)
        for r, source in zip(task.ranges, task.sources, strict=True):
            for first in range(0, len(records[r.lane]), ROWS):
                part = records[r.lane][first : first + ROWS]
                columns: dict[str, Any] = {"key": [m.key() for m in part], "value": [m.value() for m in part]}
                yield pa.RecordBatch.from_pydict({**columns, UNMERGED: pa.array([source] * len(part), pa.int32())})

    def _read(self, task: Task) -> dict[Lane, list[Message]]:
        if self._consumer is None:
            self._consumer = Consumer(settings(self._job.cluster, _READER))
        unread = {r.lane: r for r in task.ranges}
        records: dict[Lane, list[Message]] = {lane: [] for lane in unread}
        self._consumer.assign([TopicPartition(r.lane.topic, r.lane.partition, r.start) for r in task.ranges])
        deadline = time.monotonic() + READ_S
        while unread:
            if time.monotonic() > deadline:
                raise JobError(Reason.BATCH_FAILED, f"{min(unread)} could not be read within {READ_S} s")
            for message in self._consumer.consume(500, 0.05):
                error, lane = message.error(), Lane(message.topic(), message.partition())
                if error is not None:
                    raise JobError(Reason.BATCH_FAILED, f"reading {lane} failed: {error}")
                if lane not in unread:
                    continue
                if message.offset() < unread[lane].until:
                    records[lane].append(message)
                if message.offset() >= unread[lane].until - 1:
                    del unread[lane]  # it is not paused: that would last beyond the next assignment
        return records
