"""Compares what should be in the sink with what is, as multisets of (topic, key, value, headers). Spark only; asks Kafka nothing.

One shuffle by a digest of the record brings equal records together. The k-th expected record is matched with the k-th actual one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SHOWN = 10  # offending records of each kind
_KEY_SHOWN, _VALUE_SHOWN = 100, 160  # bytes
_LATE = 1 << 40  # records expected after the first reading of the positions come after all others in source order


@dataclass(frozen=True)
class Offending:
    """A record that is wrong. kind: lost | duplicated | unexpected | outOfOrder. count: how many like it. where: sink partition@offset of
    the first one, or for a lost one the source partition; None if not known."""

    kind: str
    topic: str
    key: str | None
    value: str | None
    count: int
    where: str | None


@dataclass(frozen=True)
class Comparison:
    """expected: records that must be there. delivered: that are there. metrics: what was observed while reading, by name and field."""

    expected: int
    delivered: int
    lost: int
    duplicated: int
    unexpected: int
    out_of_order: int
    offending: tuple[Offending, ...]
    metrics: Mapping[str, Mapping[str, int]]


def expected_rows(out: DataFrame, lanes: Sequence[str], *, late: bool) -> DataFrame:
    """Rows for compare() from a transform's output. The frame's partitions are source partitions, named by lanes in the same order, and
    rows come in the order of the source. late: the position had not passed them yet, so they may be there but need not."""
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))  # its upper bits are the partition
    lane = F.array(*[F.lit(x) for x in lanes])[F.spark_partition_id()] if lanes else F.lit(None).cast("string")
    order = row + F.lit(_LATE if late else 0).cast("bigint")
    return _rows(out, expected=True, late=late, place=lane, at=order)


def actual_rows(sink: DataFrame) -> DataFrame:
    """Rows for compare() from the columns of Spark's Kafka source over the sink's topics."""
    place = F.concat(F.col("topic"), F.lit("-"), F.col("partition").cast("string"))
    return _rows(sink, expected=False, late=False, place=place, at=F.col("offset"))


def _rows(df: DataFrame, *, expected: bool, late: bool, place: Column, at: Column) -> DataFrame:
    return df.select(
        _digest().alias("digest"),
        F.lit(expected).alias("expected"),
        F.lit(late).alias("late"),
        place.alias("place"),
        at.alias("at"),
        F.col("topic"),
        F.md5("key").alias("key_digest"),  # null if the key is
        F.substring("key", 1, _KEY_SHOWN).alias("key"),
        F.substring("value", 1, _VALUE_SHOWN).alias("value"),
    )


def _digest() -> Column:
    """SHA-256 of a text that no two different records share: hexadecimal has none of the separators, and null is not the empty string."""

    def text(c: Column) -> Column:
        return F.coalesce(F.hex(c), F.lit("-"))

    headers = F.transform("headers", lambda h: F.concat(text(h["key"]), F.lit("="), text(h["value"])))
    fields = (F.col("topic"), text(F.col("key")), text(F.col("value")), F.coalesce(F.array_join(headers, ","), F.lit("")))
    return F.unhex(F.sha2(F.concat_ws("/", *fields), 256))


def compare(expected: Sequence[DataFrame], actual: DataFrame) -> Comparison:
    """Counts and shows what is wrong. expected: frames of expected_rows(); actual: of actual_rows()."""
    rows = actual
    for more in expected:
        rows = rows.unionByName(more)
    judged = _judged(rows).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        summary = judged.groupBy("expected", "late", "verdict").count()
        counts = {(r["expected"], r["late"], r["verdict"]): int(r["count"]) for r in summary.collect()}
        metrics = _observed(summary)
        found = {kind: sum(n for (_, _, v), n in counts.items() if v == kind) for kind in ("lost", "duplicated", "unexpected")}
        offending = _offending(judged, [kind for kind, n in found.items() if n])
        inversions = _inversions(judged).persist(StorageLevel.MEMORY_AND_DISK)
        out_of_order = inversions.count()
        if out_of_order:
            offending += [_shown("outOfOrder", r, 1) for r in inversions.orderBy("place", "at").limit(SHOWN).collect()]
        inversions.unpersist()
        return Comparison(
            expected=sum(n for (e, late, _), n in counts.items() if e and not late),
            delivered=sum(n for (e, _, _), n in counts.items() if not e),
            **found,
            out_of_order=out_of_order,
            offending=tuple(offending),
            metrics=metrics,
        )
    finally:
        judged.unpersist()


def _judged(rows: DataFrame) -> DataFrame:
    """Adds nth, the place among equal records of its side, and verdict: lost, duplicated, unexpected, or null for what is right.

    Of equal records the late ones come last, so that a record is lost only if there are fewer than the positions have passed."""
    same = Window.partitionBy("digest")
    in_turn = Window.partitionBy("digest", "expected").orderBy("late", "place", "at")
    counted = (
        rows.withColumn("nth", F.row_number().over(in_turn))
        .withColumn("wanted", F.count_if("expected").over(same))
        .withColumn("present", F.count_if(~F.col("expected")).over(same))
    )
    nth, wanted, present, is_expected = F.col("nth"), F.col("wanted"), F.col("present"), F.col("expected")
    verdict = (
        F.when(is_expected & ~F.col("late") & (nth > present), "lost")
        .when(~is_expected & (wanted == 0), "unexpected")
        .when(~is_expected & (nth > wanted), "duplicated")
    )
    return counted.withColumn("verdict", verdict).drop("wanted", "present")


def _offending(judged: DataFrame, kinds: Sequence[str]) -> list[Offending]:
    shown: list[Offending] = []
    for kind in kinds:
        first = F.min_by(F.struct("topic", "key", "value", "place", "at"), F.struct("place", "at")).alias("r")
        grouped = judged.filter(F.col("verdict") == kind).groupBy("digest").agg(F.count(F.lit(1)).alias("n"), first)
        rows = grouped.orderBy(F.desc("n"), "r.place", "r.at").limit(SHOWN).collect()
        shown += [_shown(kind, r["r"], int(r["n"])) for r in rows]
    return shown


def _shown(kind: str, row: Any, count: int) -> Offending:
    where = row["place"] if kind == "lost" else f"{row['place']}@{row['at']}"
    return Offending(kind, row["topic"], _text(row["key"]), _text(row["value"]), count, where)


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode(errors="replace")


def _inversions(judged: DataFrame) -> DataFrame:
    """The actual records that come directly after one of the same key and sink partition which the source has later. Only for keys all of
    whose records come from one source partition (between two there is no order), and not for null keys."""
    side = F.col("expected")
    pairs = (
        judged.filter("key_digest IS NOT NULL AND verdict IS NULL")
        .groupBy("digest", "nth")
        .agg(
            F.max(F.when(side, F.col("place"))).alias("lane"),
            F.max(F.when(side, F.col("at"))).alias("wanted_at"),
            F.max(F.when(~side, F.struct("key_digest", "topic", "key", "value", "place", "at"))).alias("r"),
        )
        .filter("lane IS NOT NULL AND r IS NOT NULL")
        .select("lane", "wanted_at", "r.*")
    )
    of_key = Window.partitionBy("key_digest")
    in_sink = Window.partitionBy("key_digest", "place").orderBy("at")
    return (
        pairs.withColumn("one_lane", F.min("lane").over(of_key) == F.max("lane").over(of_key))
        .withColumn("before", F.lag("wanted_at").over(in_sink))
        .filter("one_lane AND before > wanted_at")
    )


def _observed(df: DataFrame) -> dict[str, dict[str, int]]:
    """What DataFrame.observe counted while df was computed. (Observation would need a listener, and a metric by that name only once.)"""
    metrics = df._jdf.queryExecution().observedMetrics()
    names = metrics.keys().toSeq()
    found: dict[str, dict[str, int]] = {}
    for i in range(names.size()):
        row = metrics.apply(names.apply(i))
        fields = row.schema().fieldNames()
        found[names.apply(i)] = {fields[j]: int(row.get(j)) for j in range(len(fields))}
    return found
