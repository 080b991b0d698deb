"""Compares the sink's expected and actual records as multisets of (topic, key, value, headers). Uses Spark alone.

A digest groups equal records, which are counted. For the order, the k-th expected one is matched with the k-th actual
one. Rows hold small numbers only, so that counting is a hash aggregation; the content of the few records that are shown
is read at the end.
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

# A place is one long, which sorts as (late, partition, offset): 1 bit, 18 bits, 44 bits. An expected record is late if
# the position had not passed it when the audit began. Late records sort last, so a record is lost only if there are
# fewer than the position has passed.
_LATE, _PARTITION, _PARTITION_BITS, _OFFSET = 1 << 62, 1 << 44, (1 << 18) - 1, (1 << 44) - 1


@dataclass(frozen=True)
class Offending:
    """A record that breaks, or may break, a guarantee."""

    kind: str  # lost | duplicated | unexpected | outOfOrder
    topic: str
    key: str | None
    value: str | None
    count: int  # of equal records with this fault
    where: str  # partition@offset of one of them in the sink; of a lost one the source partition


@dataclass(frozen=True)
class Comparison:
    """Counts of records, and examples of what is wrong."""

    expected: int  # that must be in the sink, because the positions have passed them
    delivered: int  # that are in the sink
    lost: int
    duplicated: int
    unexpected: int
    out_of_order: int
    offending: tuple[Offending, ...]
    metrics: Mapping[str, Mapping[str, int]]  # that Spark observed while it read, by name and field


def expected_rows(out: DataFrame, partitions: Sequence[int], *, late: bool) -> DataFrame:
    """Rows for compare(), from the sink columns of a transform's output, whose rows are in the order of the source.

    partitions: for each Spark partition of the frame, the number of its source partition in compare()'s source_names.
    late: whether the positions had not passed these records when the audit began.
    """
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))  # the upper bits are the Spark partition
    numbers = F.array(*[F.lit(n).cast("bigint") for n in partitions])
    place = numbers[F.spark_partition_id()] * F.lit(_PARTITION) + row + F.lit(_LATE if late else 0)
    return _rows(out, place.alias("expected_at"), F.lit(None).cast("bigint").alias("actual_at"))


def actual_rows(sink: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows for compare(), from the columns of Spark's Kafka source over the sink.

    names: of the sink's partitions, "topic-0".
    """
    number = F.array_position(F.array(*[F.lit(n) for n in names]), F.concat_ws("-", "topic", "partition")) - 1
    return _rows(
        sink,
        F.lit(None).cast("bigint").alias("expected_at"),
        (number * F.lit(_PARTITION) + F.col("offset")).alias("actual_at"),
    )


def _rows(df: DataFrame, expected_at: Column, actual_at: Column) -> DataFrame:
    return df.select(
        _digest().alias("digest"),
        expected_at,
        actual_at,
        # 128 bits of the key as two numbers, because a hash aggregation can carry numbers. Null without a key. The
        # second one begins with another value: xxhash64(key, ...) continues from the key's hash, and would add nothing
        # to it.
        F.when(F.col("key").isNotNull(), F.xxhash64("key")).alias("key_1"),
        F.when(F.col("key").isNotNull(), F.xxhash64(F.lit("2"), "key")).alias("key_2"),
        F.struct(
            F.col("topic").alias("topic"),
            F.substring("key", 1, _KEY_SHOWN).alias("key"),
            F.substring("value", 1, _VALUE_SHOWN).alias("value"),
        ).alias("content"),
    )


def _digest() -> Column:
    """SHA-256 of a text unique to the record: hexadecimal has none of the separators, and null differs from empty."""

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
    """The counts, with examples of each fault.

    expected: frames of expected_rows(), at least one. actual: a frame of actual_rows(); None if there is no sink. The
    names are those of the partitions, "topic-0", by their numbers in the rows.
    """
    all_expected = functools.reduce(DataFrame.unionByName, expected)
    rows = all_expected if actual is None else all_expected.unionByName(actual)
    counted = _counted(rows).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        summary = counted.agg(
            F.sum("required").alias("expected"),
            F.sum("actual").alias("delivered"),
            *(F.sum(kind).alias(kind) for kind in _PLACES),
            F.count_if(_repeated()).alias("repeated"),
        )
        totals = {name: int(n or 0) for name, n in summary.collect()[0].asDict().items()}
        metrics = observed_metrics(summary)
        faults = [fault for kind in _PLACES if totals[kind] for fault in _worst(counted, kind)]
        inversions = _inversions(_matched(rows, counted, any_repeated=totals["repeated"] > 0)).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        out_of_order = inversions.count()
        if out_of_order:
            first = (
                inversions.orderBy("actual_at")
                .limit(SHOWN)
                .select("digest", F.lit(1).alias("n"), F.col("actual_at").alias("at"))
            )
            faults += [_Fault("outOfOrder", row) for row in first.collect()]
        inversions.unpersist()
        return Comparison(
            expected=totals["expected"],
            delivered=totals["delivered"],
            **{kind: totals[kind] for kind in _PLACES},
            out_of_order=out_of_order,
            offending=_offending(faults, all_expected, actual, source_names, sink_names),
            metrics=metrics,
        )
    finally:
        counted.unpersist()


# By kind, the place to show of equal records with that fault.
_PLACES = {"lost": "last_required_at", "duplicated": "last_actual_at", "unexpected": "first_actual_at"}


def _counted(rows: DataFrame) -> DataFrame:
    """One row for each different record: how often it is expected (late or not), required and actual; its faults."""
    required = F.col("expected_at") < _LATE
    counted = rows.groupBy("digest").agg(
        F.count("expected_at").alias("expected"),
        F.count_if(required).alias("required"),
        F.count("actual_at").alias("actual"),
        F.min("expected_at").alias("expected_at"),
        F.max(F.when(required, F.col("expected_at"))).alias("last_required_at"),
        F.min("actual_at").alias("first_actual_at"),
        F.max("actual_at").alias("last_actual_at"),
        F.min("key_1").alias("key_1"),
        F.min("key_2").alias("key_2"),
    )
    expected, actual = F.col("expected"), F.col("actual")
    none = F.lit(0).cast("bigint")
    return (
        counted.withColumn("lost", F.greatest(F.col("required") - actual, none))
        .withColumn("duplicated", F.when(expected > 0, F.greatest(actual - expected, none)).otherwise(none))
        .withColumn("unexpected", F.when(expected == 0, actual).otherwise(none))
    )


def _repeated() -> Column:
    """Whether more than one expected record can be matched with an actual one."""
    return (F.col("expected") > 1) & (F.col("actual") > 1)


def _matched(rows: DataFrame, counted: DataFrame, *, any_repeated: bool) -> DataFrame:
    """Expected records beside the actual ones: digest, expected_at, actual_at, key_1, key_2.

    Records without a key are left out.
    """
    columns = ("digest", "expected_at", "actual_at", "key_1", "key_2")
    of_keys = counted.filter("key_1 IS NOT NULL AND expected > 0 AND actual > 0")
    firsts = of_keys.filter(~_repeated()).withColumn("actual_at", F.col("first_actual_at")).select(*columns)
    if not any_repeated:
        return firsts
    repeated = rows.join(of_keys.filter(_repeated()).select("digest"), "digest", "left_semi")
    side = F.col("expected_at").isNotNull()
    in_turn = Window.partitionBy("digest", side).orderBy("expected_at", "actual_at")
    pairs = (
        repeated.withColumn("nth", F.row_number().over(in_turn))
        .groupBy("digest", "nth")
        .agg(*(F.min(c).alias(c) for c in columns[1:]))
        .filter("expected_at IS NOT NULL AND actual_at IS NOT NULL")
    )
    return firsts.unionByName(pairs.select(*columns))


def _inversions(matched: DataFrame) -> DataFrame:
    """The actual records directly behind one of the same key and sink partition that the source has later.

    Only for keys whose records all come from one source partition: between two there is no order.
    """
    of_key = Window.partitionBy("key_1", "key_2")
    in_turn = of_key.orderBy("actual_at")
    return (
        matched.withColumn("lane", _partition(F.col("expected_at")))
        .withColumn("sink", _partition(F.col("actual_at")))
        .withColumn("before", F.lag("expected_at").over(in_turn))
        .withColumn("sink_before", F.lag("sink").over(in_turn))
        .withColumn("one_lane", F.min("lane").over(of_key) == F.max("lane").over(of_key))
        .filter("one_lane AND sink_before = sink AND before > expected_at")
    )


def _partition(place: Column) -> Column:
    return F.shiftright(place, 44).bitwiseAND(F.lit(_PARTITION_BITS))


@dataclass(frozen=True)
class _Fault:
    """A record to show."""

    kind: str
    row: Any  # digest, n (equal records with the fault), at (the place of one)


def _worst(counted: DataFrame, kind: str) -> list[_Fault]:
    """The records with the most faults of a kind."""
    shown = F.col(kind).alias("n"), F.col(_PLACES[kind]).alias("at")
    return [
        _Fault(kind, row)
        for row in counted.filter(F.col(kind) > 0)
        .select("digest", *shown)
        .orderBy(F.desc("n"), "at")
        .limit(SHOWN)
        .collect()
    ]


_COMPACTED = {"topic": "", "key": None, "value": None}  # compaction has removed the record since it was counted


def _offending(
    faults: Sequence[_Fault],
    expected: DataFrame,
    actual: DataFrame | None,
    source_names: Sequence[str],
    sink_names: Sequence[str],
) -> tuple[Offending, ...]:
    # What is not lost is in the sink, and reading that again takes a fraction of the time of the transform.
    contents = _contents(expected, [f for f in faults if f.kind == "lost"]) | _contents(
        actual, [f for f in faults if f.kind != "lost"]
    )
    offending = []
    for fault in faults:
        content, at = contents.get(bytes(fault.row["digest"]), _COMPACTED), int(fault.row["at"])
        number, offset = (at // _PARTITION) & _PARTITION_BITS, at & _OFFSET
        where = source_names[number] if fault.kind == "lost" else f"{sink_names[number]}@{offset}"
        key, value = _text(content["key"]), _text(content["value"])
        offending.append(Offending(fault.kind, content["topic"], key, value, int(fault.row["n"]), where))
    return tuple(offending)


def _contents(rows: DataFrame | None, faults: Sequence[_Fault]) -> dict[bytes, Any]:
    """The content of records by their digest."""
    digests = list({bytes(f.row["digest"]) for f in faults})
    if rows is None or not digests:
        return {}
    contents = rows.filter(F.col("digest").isin(digests)).groupBy("digest").agg(F.first("content").alias("content"))
    return {bytes(row["digest"]): row["content"] for row in contents.collect()}


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode(errors="replace")
