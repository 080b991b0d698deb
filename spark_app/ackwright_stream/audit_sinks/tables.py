"""What the readers of tables share: positions that are numbers by name, and the comparison of rows without order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ackwright_stream import audit_fractions
from ackwright_stream.audit_kafka import Lane, LaneStart
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison, Offending
from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.column_names import named
from ackwright_stream.spark_internals.execution import observed_metrics

SHOWN = 10  # offending rows of each kind
_VALUE_SHOWN = 160  # characters
_KIND = "ackwright_kind"  # of a row: one that must be in the table, one that may be, one that is
_REQUIRED, _LATE, _ACTUAL = range(3)
_COUNTS = ("lost", "duplicated", "unexpected")


class AppendedRows:
    """What readers of stores answer that have each row of the output, with a type for each column."""

    def tolerances(self, output: DataFrame, rounded: Mapping[str, float]) -> Mapping[str, float] | None:
        """Those of the columns that are numbers."""
        return rounded if audit_fractions.are_numbers(output, rounded) else None

    def without(self, rows: DataFrame, columns: Collection[str]) -> DataFrame | None:
        """The rows without these columns."""
        return without_columns(rows, columns)

    def key_columns(self, *, last_of_key: bool) -> Sequence[str]:
        """None: each row is there."""
        return ()


def without_columns(rows: DataFrame, columns: Collection[str]) -> DataFrame | None:
    """The rows without these columns; None if no other one is left."""
    others = [name for name in rows.columns if name not in columns]
    return rows.select(*map(named, others)) if others else None


@dataclass(frozen=True)
class Positions:
    """The positions of one pipeline in a table."""

    group: str
    numbers: Mapping[str, int]  # of the table, by name

    def lane_starts(self, topics: Iterable[str]) -> Mapping[Lane, LaneStart]:
        """Where each lane began. Nothing tells which rows come from an old topic of the same name."""
        starts = {}
        for topic in topics:
            topic_id, lanes = self._topic_id(topic), self._lanes(topic)
            for partition in {p for p, _ in lanes}:
                first = self.numbers.get(f"ackwright/{self.group}/{topic}/{partition}/{topic_id}/first")
                if first is not None:
                    recreated = any(p == partition and of_topic != topic_id for p, of_topic in lanes)
                    starts[topic, partition] = LaneStart(first, sink={} if recreated else None)
        return starts

    def of(self, lanes: Collection[Lane]) -> Mapping[Lane, int | None]:
        """The positions, None where there is none."""
        return {(t, p): self._lanes(t).get((p, self._topic_id(t))) for t, p in lanes}

    @property
    def batches(self) -> int:
        """How many micro-batches of a stateful pipeline are decided since its state was empty."""
        return self.numbers.get(f"ackwright/{self.group}/batch", 0)

    def _topic_id(self, topic: str) -> str:
        """The id of the topic that the positions count in: seven characters to a number, up to a 0."""
        text, part = b"", 0
        while number := self.numbers.get(f"ackwright/{self.group}/{topic}/id/{part}"):
            text, part = text + number.to_bytes((number.bit_length() + 7) // 8), part + 1
        return text.decode()

    def _lanes(self, topic: str) -> Mapping[tuple[int, str], int]:
        """The offsets of a topic's lanes, by partition and topic id."""
        lane = re.compile(re.escape(f"ackwright/{self.group}/{topic}/") + r"(\d+)/(.+?)(/first)?")
        matches = ((lane.fullmatch(name), number) for name, number in self.numbers.items())
        return {(int(match[1]), match[2]): number for match, number in matches if match and not match[3]}


@dataclass(frozen=True)
class TableRows:
    """One version of a table."""

    name: str
    schema: StructType
    read: Callable[[Sequence[str]], DataFrame | None]  # these columns of all rows; None if there are none


def compare(
    table: TableRows, required: Output, late: Output | None, doubts: Sequence[Doubt], counted: int
) -> Comparison:
    """Counts equal rows of the output and of the table. The arguments are those of SinkReader.compare()."""
    expected = _of_kind(table, required.records, _REQUIRED)
    if late is not None:
        expected = expected.unionByName(_of_kind(table, late.records, _LATE))
    expected = expected.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        summary = expected.agg(F.count(F.lit(1)))
        summary.collect()
        metrics = observed_metrics(summary)
        compared = _compared(table, expected, list(required.records.columns), required.tolerances)
    finally:
        expected.unpersist()
    incomplete = any(doubt.lanes for doubt in doubts) or metrics["sent"]["records"] != counted
    counts = replace(compared, metrics=metrics)
    return counts.without_surplus() if incomplete else counts


def _of_kind(table: TableRows, rows: DataFrame, kind: int) -> DataFrame:
    """The rows in the table's types, which may be wider."""
    types = {field.name: field.dataType for field in table.schema.fields}
    values = [named(n).cast(types[n]).alias(n) if n in types else named(n) for n in rows.columns]
    return rows.select(*values, F.lit(kind).alias(_KIND))


def _compared(
    table: TableRows, expected: DataFrame, names: Sequence[str], tolerances: Mapping[str, float]
) -> Comparison:
    rows = table.read(names)
    if rows is not None and tolerances:
        rows = audit_fractions.with_expected_numbers(rows, expected, tolerances, names)
    every = expected if rows is None else expected.unionByName(rows.withColumn(_KIND, F.lit(_ACTUAL)))

    def count(*kinds: int) -> Column:
        return F.count_if(F.col(_KIND).isin(*kinds))

    groups = every.groupBy(*map(named, names)).agg(
        count(_REQUIRED).alias("required"),
        count(_REQUIRED, _LATE).alias("possible"),
        count(_ACTUAL).alias("actual"),
    )
    lost = F.greatest(F.col("required") - F.col("actual"), F.lit(0))
    surplus = F.greatest(F.col("actual") - F.col("possible"), F.lit(0))
    known = F.col("possible") > 0
    judged = groups.select(
        F.struct(*map(named, names)).alias("row"),
        "required",
        "actual",
        lost.alias("lost"),
        F.when(known, surplus).otherwise(0).alias("duplicated"),
        F.when(known, 0).otherwise(F.col("actual")).alias("unexpected"),
    ).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        totals = judged.agg(*(F.coalesce(F.sum(n), F.lit(0)) for n in ("required", "actual", *_COUNTS)))
        expected_rows, delivered, *counted = map(int, totals.collect()[0])
        lost_rows, duplicated, unexpected = counted
        offending = tuple(
            o for kind, n in zip(_COUNTS, counted, strict=True) if n for o in _shown(table.name, judged, kind)
        )
    finally:
        judged.unpersist()
    return Comparison(expected_rows, delivered, lost_rows, duplicated, unexpected, offending, {})


def _shown(name: str, judged: DataFrame, kind: str) -> Iterator[Offending]:
    rows = judged.where(F.col(kind) > 0).orderBy(F.desc(kind)).limit(SHOWN)
    for text, number in rows.select(F.to_json("row"), kind).collect():
        yield Offending(kind, name, None, text[:_VALUE_SHOWN], int(number), name)
