"""The comparison of a sink's rows with those that the transform returns, by Spark, for the sinks whose rows it reads.

Rows are counted by their content: which file has them, and in which order, does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison, Offending
from ackwright_stream.spark_internals.execution import observed_metrics

SHOWN = 10  # offending rows of each kind
_VALUE_SHOWN = 160  # characters
_KIND = "ackwright_kind"  # of a row: one that must be in the sink, one that may be, one that is
_REQUIRED, _LATE, _ACTUAL = range(3)
_COUNTS = ("lost", "duplicated", "unexpected")


def compare_rows(
    required: DataFrame,
    late: DataFrame | None,
    actual: DataFrame | None,
    *,
    types: Mapping[str, DataType],
    place: str,
    doubts: Sequence[Doubt],
    counted: int,
) -> Comparison:
    """Counts equal rows of the output and of the sink.

    required, late, doubts, counted: as SinkReader.compare() has them. actual: the sink's rows, with the columns of
    `required`; None: there are none. types: of the sink's columns, which may be wider than those of the output. place:
    the sink, in the report.
    """
    expected = _of_kind(required, _REQUIRED, types)
    if late is not None:
        expected = expected.unionByName(_of_kind(late, _LATE, types))
    expected = expected.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        summary = expected.agg(F.count(F.lit(1)))
        summary.collect()
        metrics = observed_metrics(summary)
        every = expected if actual is None else expected.unionByName(_of_kind(actual, _ACTUAL, {}))
        compared = _compared(every, list(required.columns), place)
    finally:
        expected.unpersist()
    incomplete = any(doubt.lanes for doubt in doubts) or metrics["sent"]["records"] != counted
    counts = replace(compared, metrics=metrics)
    return counts.without_surplus() if incomplete else counts


def _of_kind(rows: DataFrame, kind: int, types: Mapping[str, DataType]) -> DataFrame:
    values = [F.col(f"`{n}`").cast(types[n]).alias(n) if n in types else F.col(f"`{n}`") for n in rows.columns]
    return rows.select(*values, F.lit(kind).alias(_KIND))


def _compared(every: DataFrame, names: Sequence[str], place: str) -> Comparison:
    def count(*kinds: int) -> Column:
        return F.count_if(F.col(_KIND).isin(*kinds))

    groups = every.groupBy(*(F.col(f"`{name}`") for name in names)).agg(
        count(_REQUIRED).alias("required"),
        count(_REQUIRED, _LATE).alias("possible"),
        count(_ACTUAL).alias("actual"),
    )
    lost = F.greatest(F.col("required") - F.col("actual"), F.lit(0))
    surplus = F.greatest(F.col("actual") - F.col("possible"), F.lit(0))
    known = F.col("possible") > 0
    judged = groups.select(
        F.struct(*(F.col(f"`{name}`") for name in names)).alias("row"),
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
        offending = tuple(o for kind, n in zip(_COUNTS, counted, strict=True) if n for o in _shown(judged, kind, place))
    finally:
        judged.unpersist()
    return Comparison(expected_rows, delivered, lost_rows, duplicated, unexpected, offending, {})


def _shown(judged: DataFrame, kind: str, place: str) -> Iterator[Offending]:
    rows = judged.where(F.col(kind) > 0).orderBy(F.desc(kind)).limit(SHOWN)
    for text, number in rows.select(F.to_json("row"), kind).collect():
        yield Offending(kind, place, None, text[:_VALUE_SHOWN], int(number), place)
