"""What the audit reads of the database, and the comparison of its rows with the expected ones."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ackwright_stream.audit_kafka import KafkaView, Lane, LaneStart
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison, Offending
from ackwright_stream.audit_sinks import registry
from ackwright_stream.audit_sinks.base import Output, SinkReader
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.spark_internals.execution import observed_metrics
from sqlite import columns
from sqlite.jobspec import SqliteSpec

Row = tuple[Any, ...]  # key, value


class SqliteReader:
    """The rows that the database has at fix_content()."""

    precedes_positions = False

    def __init__(self, job: JobSpec) -> None:
        spec: Any = job.sink
        self._path: str = spec.path
        self._rows: Counter[Row] = Counter()

    def lane_starts(self) -> Mapping[Lane, LaneStart]:
        lanes = self._read("SELECT topic, partition, start FROM lanes")
        return {(topic, partition): LaneStart(start) for topic, partition, start in lanes}

    def positions(self, lanes: Collection[Lane]) -> Mapping[Lane, int | None]:
        rows = self._read('SELECT topic, partition, "offset" FROM positions')
        offsets = {(topic, partition): offset for topic, partition, offset in rows}
        return {lane: offsets.get(lane) for lane in lanes}

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        return columns.to_sink_columns(output)

    def dead_letters(self) -> None:
        return None

    def fix_content(self, required: Output, starts: Mapping[Lane, LaneStart]) -> tuple[list[Doubt], list[str]]:
        self._rows = Counter(self._read("SELECT key, value FROM rows"))
        return [], []

    def compare(self, required: Output, late: Output | None, doubts: Sequence[Doubt], counted: int) -> Comparison:
        expected, possible = _rows(required), _rows(late) if late else Counter[Row]()
        lost, surplus = expected - self._rows, self._rows - expected - possible
        unexpected = Counter({row: n for row, n in surplus.items() if row not in expected and row not in possible})
        faults = {"lost": lost, "duplicated": surplus - unexpected, "unexpected": unexpected}
        counts = Comparison(
            expected=expected.total(),
            delivered=self._rows.total(),
            **{kind: rows.total() for kind, rows in faults.items()},
            offending=tuple(
                Offending(kind, self._path, str(key), str(value), n, "rows")
                for kind, rows in faults.items()
                for (key, value), n in rows.items()
            ),
            metrics=observed_metrics(required.records),
        )
        return counts if counts.metrics["sent"]["records"] == counted else counts.without_surplus()

    def _read(self, statement: str) -> list[Row]:
        with closing(sqlite3.connect(self._path)) as db:
            return list(db.execute(statement))


def _rows(output: Output) -> Counter[Row]:
    return Counter(tuple(None if x is None else bytes(x) for x in row) for row in output.records.collect())


def _reader(_: SparkSession, job: JobSpec, __: KafkaView, ___: Iterable[str]) -> AbstractContextManager[SinkReader]:
    return nullcontext(SqliteReader(job))


def register() -> None:
    """Makes the reader known to audit()."""
    registry.register(SqliteSpec, _reader)
