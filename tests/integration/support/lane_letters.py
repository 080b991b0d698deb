"""Dead letters in lane_process.py: one record of ten is malformed, and its dead letter takes the job's way to the sink.

Offset n of partition p is malformed if n % 10 is 3, as in letter_pipelines.py. Only the file between the two workers
of Spark is missing (delivery/dead_letters.py): a task's dead letters are an iterable here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

UNSAFE = ("letters-early", "letters-late", "letters-unacknowledged", "letters-with-random-keys")
_AT_ONCE = 7  # dead letters in an Arrow batch


HEADERS: list[tuple[str, bytes | None]] = [("h", b"\xff"), ("h", None)]  # of each malformed record


def is_malformed(n: int) -> bool:
    return n % 10 == 3


def malformed_value(partition: int, n: int) -> bytes:
    return b"oops %d:%d \xfe" % (partition, n)


def key_of(partition: int, n: int) -> bytes | None:
    return None if n % 20 == 3 else b"k%d" % partition


def well_formed(rows_of_task: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Iterator[Any]]:
    """The rows without those of malformed records, which no transform returns."""

    def rows(task: Any) -> Iterator[Any]:
        for batch in rows_of_task(task):
            yield batch.filter([not is_malformed(int(value.split(b":")[1])) for value in batch["value"].to_pylist()])

    return rows


class Letters:
    """The dead letters of a process. Under a rule that is off, they are written at another time."""

    def __init__(self, job: Any, membership: Callable[[], bytes], *, written: bool, unsafe: str | None) -> None:
        self._job, self._membership, self._written = job, membership, written
        self._early, self._late = unsafe == "letters-early", unsafe == "letters-late"
        self._sink: Any = None  # of letters that no task writes
        if unsafe == "letters-unacknowledged":
            _without_acknowledgements()
        if unsafe == "letters-with-random-keys":
            _with_random_keys()

    def of_ranges(self, ranges: Sequence[Any]) -> Iterable[Any]:
        """Those that the task with these ranges writes, as Arrow batches."""
        return () if self._early or self._late else self._of(ranges)

    def before(self, ranges: Sequence[Any]) -> None:
        """Runs before a batch is delivered."""
        if self._early:
            self.write(self._of(ranges))

    def after(self, ranges: Sequence[Any]) -> None:
        """Runs when a batch is delivered and its positions have moved."""
        if self._late:
            self.write(self._of(ranges))

    def write(self, batches: Iterable[Any]) -> None:
        """Writes dead letters alone; returns when they are durable."""
        from ackwright_stream.jobspec import PostgresSink
        from ackwright_stream.sinks import registry

        if self._sink is None:
            self._sink = registry.for_tasks(self._job, transactional=False)
        if isinstance(self._job.sink, PostgresSink):
            self._sink.write((), (), batches, membership=self._membership())
            return
        for batch in batches:
            self._sink.write_dead_letters(batch)

    def _of(self, ranges: Sequence[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from ackwright_stream.dead_letters import COLUMNS

        letters = [_letter(r.lane, n) for r in ranges for n in range(r.start, r.until) if is_malformed(n)]
        for first in range(0, len(letters) if self._written else 0, _AT_ONCE):
            yield pa.RecordBatch.from_pylist(letters[first : first + _AT_ONCE], schema=COLUMNS)


def _letter(lane: Any, n: int) -> dict[str, Any]:
    return {
        "topic": lane.topic,
        "partition": lane.partition,
        "offset": n,
        "key": key_of(lane.partition, n),
        "value": malformed_value(lane.partition, n),
        "headers": [{"key": name, "value": value} for name, value in HEADERS],
        "reason": "no JSON",
    }


def _without_acknowledgements() -> None:
    """The process does not wait for its dead letters, which are on their way for a minute."""
    from confluent_kafka import Producer

    from ackwright_stream.sinks import letter_topic

    class Unflushed:
        """A producer, as far as dead letters use one."""

        def __init__(self, settings: dict[str, Any]) -> None:
            self._producer = Producer({**settings, "linger.ms": 60_000})

        def __getattr__(self, name: str) -> Any:
            return (lambda _: 0) if name == "flush" else getattr(self._producer, name)

    of_module: Any = letter_topic
    of_module.Producer = Unflushed


def _with_random_keys() -> None:
    """A dead letter that is written again has another key."""
    import pyarrow as pa

    from ackwright_stream import dead_letters

    keyed = dead_letters.keyed_records

    def with_random_keys(letters: Any, group: str) -> Any:
        records = keyed(letters, group)
        return records.set_column(
            0, "key", pa.array([uuid.uuid4().bytes for _ in range(records.num_rows)], pa.binary())
        )

    dead_letters.keyed_records = with_random_keys
