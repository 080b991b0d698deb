"""Dead letters of a stateful batch: when its source is read a second time, and what is refused.

With Spark and brokers: integration/delivery/test_stateful_letters.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from ackwright_stream.dead_letters import COLUMNS
from ackwright_stream.delivery import dead_letters, stateful_letters
from ackwright_stream.delivery.batch import Batch
from ackwright_stream.delivery.dead_letters import RECENT, Counts, Window
from ackwright_stream.delivery.stateful_letters import BatchLetters
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Range, Task
from ackwright_stream.worker_state import STATE
from unit.stream.stateful_jobs import SETTINGS, stateful_job

RANGES = (Range(Lane("in", 0), 5, 105), Range(Lane("in", 1), 0, 100))
NONE = Counts()
JOB = stateful_job()
JOB = replace(JOB, source=replace(JOB.source, dead_letter_fraction=0.01))


def letters(count: int) -> pa.RecordBatch:
    place = {"topic": "in", "partition": 0, "key": None, "value": b"?", "headers": None, "reason": "is not JSON"}
    return pa.RecordBatch.from_pylist([{**place, "offset": 5 + n} for n in range(count)], schema=COLUMNS)


class Source:
    """The second read of a batch's ranges, in place of Spark."""

    def __init__(self, malformed: int) -> None:
        self._malformed = malformed
        self.actions: list[str] = []

    def limit(self, count: int) -> Source:
        return Source(min(count, self._malformed))

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches([letters(self._malformed)])

    def mapInArrow(self, answer: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: object) -> Any:
        self.actions.append("read")
        return SimpleNamespace(toArrow=lambda: pa.Table.from_batches(answer(iter([letters(self._malformed)]))))


def of_batch(
    monkeypatch: pytest.MonkeyPatch, counts: Counts, source: Source, *, recent: Counts = NONE, ranges: Any = RANGES
) -> BatchLetters:
    """The dead letters of a batch. counts: what Spark has observed in its evaluation."""
    monkeypatch.setattr(STATE, "input", cast(Any, SimpleNamespace(connection=object(), continues=True)))
    monkeypatch.setattr(dead_letters, "observed", lambda _: counts)
    monkeypatch.setattr(stateful_letters, "_malformed", lambda *_: source)
    window = Window()
    window.add(recent)
    rows: Any = SimpleNamespace(sparkSession=None)
    task = (Task(0, ranges, tuple(range(len(ranges)))),) if ranges else ()
    return stateful_letters.of_batch(JOB, SETTINGS, Batch(rows, cast(Any, None), task, letters=window), 2)


def test_the_source_is_read_again_only_if_there_are_malformed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(0)
    assert of_batch(monkeypatch, Counts(200, 0), source) == BatchLetters(Counts(200, 0))
    assert of_batch(monkeypatch, Counts(), source, ranges=()) == BatchLetters()
    assert source.actions == []
    # Without a count it is not known whether there are any.
    assert of_batch(monkeypatch, Counts(), source) == BatchLetters(Counts(), [])
    assert source.actions == ["read"]


def test_malformed_records_become_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    result = of_batch(monkeypatch, Counts(200, 3), Source(3))
    assert result.counts == Counts(200, 3)
    assert list(result.rows(SETTINGS)) == [letters(3)]


@pytest.mark.parametrize("second", [0, 2, 4])
def test_two_reads_that_differ_fail_the_batch(monkeypatch: pytest.MonkeyPatch, second: int) -> None:
    """A record would be neither in the state nor a dead letter, or in both."""
    with pytest.raises(
        JobError, match=f"left out 3 malformed records of the batch, and a second read has {second}"
    ) as e:
        of_batch(monkeypatch, Counts(200, 3), Source(second))
    assert e.value.reason is Reason.BATCH_FAILED


@pytest.mark.parametrize(
    ("counts", "recent", "halts"),
    [
        (Counts(200, 10), Counts(), False),  # of RECENT records
        (Counts(200, 11), Counts(), True),
        (Counts(200, 10), Counts(RECENT, 2), False),
        (Counts(200, 10), Counts(RECENT, 3), True),
    ],
)
def test_too_many_halt_the_pipeline_before_they_are_gathered(
    monkeypatch: pytest.MonkeyPatch, counts: Counts, recent: Counts, halts: bool
) -> None:
    source = Source(counts.letters)
    if not halts:
        assert of_batch(monkeypatch, counts, source, recent=recent).counts == counts
        return
    with pytest.raises(JobError, match="one is in-0@5, which is not JSON") as e:
        of_batch(monkeypatch, counts, source, recent=recent)
    assert (e.value.reason, source.actions) == (Reason.TOO_MANY_DEAD_LETTERS, [])
