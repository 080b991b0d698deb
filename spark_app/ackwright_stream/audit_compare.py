"""Compares what should be in the sink with what is, as multisets of (topic, key, value, headers). Spark only; asks Kafka nothing.

Equal records are brought together by a digest and counted. For the order, the k-th expected one is matched with the k-th actual one.
Records are small numbers here, so that counting them is a hash aggregation; the content of the few that are shown is read at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ackwright_stream.spark_internals.execution import observed_metrics

SHOWN = 10  # offending records of each kind
_KEY_SHOWN, _VALUE_SHOWN = 100, 160  # bytes

# A place is one long, which sorts as (late, partition, offset): 1 bit, 18 bits, 44 bits. late: expected, but the position had not passed it
# yet when the audit began; such records come last, so that a record is lost only if there are fewer than the position has passed.
_LATE, _PARTITION, _PARTITION_BITS, _OFFSET = 1 << 62, 1 << 44, (1 << 18) - 1, (1 << 44) - 1


@dataclass(frozen=True)
class Offending:
    """A record that is wrong. kind: lost | duplicated | unexpected | outOfOrder. count: how many of it are wrong. where: sink
    partition@offset of one of them, or for a lost one the source partition."""

    kind: str
    topic: str
    key: str | None
    value: str | None
    count: int
    where: str


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


def expected_rows(out: DataFrame, partitions: Sequence[int], *, late: bool) -> DataFrame:
    """Rows for compare() from a transform's output. The frame's Spark partitions are source partitions, whose numbers (in compare()'s
    source_names) are in partitions, in the same order; rows come in the order of the source. late: the position had not passed them."""
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))  # the upper bits are the Spark partition
    numbers = F.array(*[F.lit(n).cast("bigint") for n in partitions])
    place = numbers[F.spark_partition_id()] * F.lit(_PARTITION) + row + F.lit(_LATE if late else 0)
    return _rows(out, place.alias("wanted_at"), F.lit(None).cast("bigint").alias("found_at"))


def actual_rows(sink: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows for compare() from the columns of Spark's Kafka source over the sink. names: its partitions, "topic-0"."""
    number = F.array_position(F.array(*[F.lit(n) for n in names]), F.concat_ws("-", "topic", "partition")) - 1
    return _rows(
        sink,
        F.lit(None).cast("bigint").alias("wanted_at"),
        (number * F.lit(_PARTITION) + F.col("offset")).alias("found_at"),
    )


def _rows(df: DataFrame, wanted_at: Column, found_at: Column) -> DataFrame:
    return df.select(
        _digest().alias("digest"),
        wanted_at,
        found_at,
        # 128 bits of the key; two numbers, because numbers can be carried through a hash aggregation. Null without a key. The second one
        # begins with another value: xxhash64(key, ...) goes on from the key's hash, and would tell no more than that.
        F.when(F.col("key").isNotNull(), F.xxhash64("key")).alias("key_1"),
        F.when(F.col("key").isNotNull(), F.xxhash64(F.lit("2"), "key")).alias("key_2"),
        F.struct(
            F.col("topic").alias("topic"),
            F.substring("key", 1, _KEY_SHOWN).alias("key"),
            F.substring("value", 1, _VALUE_SHOWN).alias("value"),
        ).alias("content"),
    )


def _digest() -> Column:
    """SHA-256 of a text that no two different records share: hexadecimal has none of the separators, and null is not the empty string."""

    def text(c: Column) -> Column:
        return F.coalesce(F.hex(c), F.lit("-"))

    headers = F.transform("headers", lambda h: F.concat(text(h["key"]), F.lit("="), text(h["value"])))
    fields = (
        F.col("topic"),
        text(F.col("key")),
        text(F.col("value")),
        F.coalesce(F.array_join(headers, ","), F.lit("")),
    )
    return F.unhex(F.sha2(F.concat_ws("/", *fields), 256))


def compare(
    expected: Sequence[DataFrame], actual: DataFrame | None, source_names: Sequence[str], sink_names: Sequence[str]
) -> Comparison:
    """Counts and shows what is wrong. expected: frames of expected_rows(), at least one; actual: of actual_rows(), None if there is no
    sink. The names are those of the partitions, "topic-0", by their numbers in the rows."""
    wanted = functools.reduce(DataFrame.unionByName, expected)
    rows = wanted if actual is None else wanted.unionByName(actual)
    counted = _counted(rows).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        summary = counted.agg(
            F.sum("early").alias("expected"),
            F.sum("present").alias("delivered"),
            *(F.sum(kind).alias(kind) for kind in _KINDS),
            F.count_if(_several()).alias("several"),
        )
        totals = {name: int(n or 0) for name, n in summary.collect()[0].asDict().items()}
        metrics = observed_metrics(summary)
        wrong = [w for kind in _KINDS if totals[kind] for w in _wrong(counted, kind)]
        inversions = _inversions(_matched(rows, counted, several=totals["several"] > 0)).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        out_of_order = inversions.count()
        if out_of_order:
            first = (
                inversions.orderBy("found_at")
                .limit(SHOWN)
                .select("digest", F.lit(1).alias("n"), F.col("found_at").alias("at"))
            )
            wrong += [_Wrong("outOfOrder", r) for r in first.collect()]
        inversions.unpersist()
        return Comparison(
            expected=totals["expected"],
            delivered=totals["delivered"],
            **{kind: totals[kind] for kind in _KINDS},
            out_of_order=out_of_order,
            offending=_offending(wrong, wanted, actual, source_names, sink_names),
            metrics=metrics,
        )
    finally:
        counted.unpersist()


_KINDS = {"lost": "last_early", "duplicated": "last_found", "unexpected": "first_found"}  # kind: the place to show


def _counted(rows: DataFrame) -> DataFrame:
    """One row for each different record: how often wanted (early of it: must be there) and present, and what is wrong with it."""
    early = F.col("wanted_at") < _LATE
    counted = rows.groupBy("digest").agg(
        F.count("wanted_at").alias("wanted"),
        F.count_if(early).alias("early"),
        F.count("found_at").alias("present"),
        F.min("wanted_at").alias("wanted_at"),
        F.max(F.when(early, F.col("wanted_at"))).alias("last_early"),
        F.min("found_at").alias("first_found"),
        F.max("found_at").alias("last_found"),
        F.min("key_1").alias("key_1"),
        F.min("key_2").alias("key_2"),
    )
    wanted, present = F.col("wanted"), F.col("present")
    none = F.lit(0).cast("bigint")
    return (
        counted.withColumn("lost", F.greatest(F.col("early") - present, none))
        .withColumn("duplicated", F.when(wanted > 0, F.greatest(present - wanted, none)).otherwise(none))
        .withColumn("unexpected", F.when(wanted == 0, present).otherwise(none))
    )


def _several() -> Column:
    """Whether the first of either side is not the only one that has a partner."""
    return (F.col("wanted") > 1) & (F.col("present") > 1)


def _matched(rows: DataFrame, counted: DataFrame, *, several: bool) -> DataFrame:
    """Expected records beside the actual ones: digest, wanted_at, found_at, key_1, key_2. Records without a key are left out."""
    columns = ("digest", "wanted_at", "found_at", "key_1", "key_2")
    of_keys = counted.filter("key_1 IS NOT NULL AND wanted > 0 AND present > 0")
    firsts = of_keys.filter(~_several()).withColumn("found_at", F.col("first_found")).select(*columns)
    if not several:
        return firsts
    repeated = rows.join(of_keys.filter(_several()).select("digest"), "digest", "left_semi")
    side = F.col("wanted_at").isNotNull()
    in_turn = Window.partitionBy("digest", side).orderBy("wanted_at", "found_at")
    pairs = (
        repeated.withColumn("nth", F.row_number().over(in_turn))
        .groupBy("digest", "nth")
        .agg(*(F.min(c).alias(c) for c in columns[1:]))
        .filter("wanted_at IS NOT NULL AND found_at IS NOT NULL")
    )
    return firsts.unionByName(pairs.select(*columns))


def _inversions(matched: DataFrame) -> DataFrame:
    """The actual records that come directly after one of the same key and sink partition which the source has later. Only for keys all of
    whose records come from one source partition: between two there is no order."""
    of_key = Window.partitionBy("key_1", "key_2")
    in_turn = of_key.orderBy("found_at")
    return (
        matched.withColumn("lane", _partition(F.col("wanted_at")))
        .withColumn("sink", _partition(F.col("found_at")))
        .withColumn("before", F.lag("wanted_at").over(in_turn))
        .withColumn("sink_before", F.lag("sink").over(in_turn))
        .withColumn("one_lane", F.min("lane").over(of_key) == F.max("lane").over(of_key))
        .filter("one_lane AND sink_before = sink AND before > wanted_at")
    )


def _partition(place: Column) -> Column:
    return F.shiftright(place, 44).bitwiseAND(F.lit(_PARTITION_BITS))


@dataclass(frozen=True)
class _Wrong:
    """A record that is to be shown: digest, n, at."""

    kind: str
    row: Any


def _wrong(counted: DataFrame, kind: str) -> list[_Wrong]:
    shown = F.col(kind).alias("n"), F.col(_KINDS[kind]).alias("at")
    return [
        _Wrong(kind, r)
        for r in counted.filter(F.col(kind) > 0)
        .select("digest", *shown)
        .orderBy(F.desc("n"), "at")
        .limit(SHOWN)
        .collect()
    ]


_GONE = {"topic": "", "key": None, "value": None}  # compaction has taken it since it was counted


def _offending(
    wrong: Sequence[_Wrong],
    wanted: DataFrame,
    actual: DataFrame | None,
    source_names: Sequence[str],
    sink_names: Sequence[str],
) -> tuple[Offending, ...]:
    # What is not lost is in the sink, which is read again in a fraction of the time that the transform takes.
    contents = _contents(wanted, [w for w in wrong if w.kind == "lost"]) | _contents(
        actual, [w for w in wrong if w.kind != "lost"]
    )
    shown = []
    for w in wrong:
        content, at = contents.get(bytes(w.row["digest"]), _GONE), int(w.row["at"])
        number, offset = (at // _PARTITION) & _PARTITION_BITS, at & _OFFSET
        where = source_names[number] if w.kind == "lost" else f"{sink_names[number]}@{offset}"
        shown.append(
            Offending(w.kind, content["topic"], _text(content["key"]), _text(content["value"]), int(w.row["n"]), where)
        )
    return tuple(shown)


def _contents(rows: DataFrame | None, wrong: Sequence[_Wrong]) -> dict[bytes, Any]:
    digests = list({bytes(w.row["digest"]) for w in wrong})
    if rows is None or not digests:
        return {}
    found = rows.filter(F.col("digest").isin(digests)).groupBy("digest").agg(F.first("content").alias("content"))
    return {bytes(r["digest"]): r["content"] for r in found.collect()}


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode(errors="replace")
