"""Compares the sink's expected and actual records as multisets of (topic, key, value, headers). Uses Spark alone.

A digest groups equal records, which are counted, for each sink partition that they belong to. For the order, the k-th
expected one is matched with the k-th actual one. Rows hold small numbers only, so that counting is a hash aggregation;
the content of the few records that are shown is read at the end.

What cannot be judged counts as neither lost nor duplicated. A record that is in the sink too often, or is not expected,
may come from a source record that no longer exists; one that is not in the sink may have been there.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ackwright_stream.audit_partitions import Layout
from ackwright_stream.audit_report import Comparison, Offending
from ackwright_stream.spark_internals.execution import observed_metrics

SHOWN = 10  # offending records of each kind
_KEY_SHOWN, _VALUE_SHOWN = 100, 160  # bytes

# A place is one long, which sorts as (late, partition, offset): 1 bit, 18 bits, 44 bits. An expected record is late if
# the position had not passed it when the audit began. Late records sort last, so a record is lost only if there are
# fewer than the position has passed.
_LATE, _PARTITION, _PARTITION_BITS, _OFFSET = 1 << 62, 1 << 44, (1 << 18) - 1, (1 << 44) - 1


def expected_rows(out: DataFrame, partitions: Sequence[int], layout: Layout, *, late: bool) -> DataFrame:
    """Rows for compare(), from the sink columns of a transform's output, whose rows are in the order of the source.

    partitions: for each Spark partition of the frame, the number of its source partition in the layout. late: whether
    the positions had not passed these records when the audit began.
    """
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))  # the upper bits are the Spark partition
    lane = F.array(*[F.lit(n).cast("bigint") for n in partitions])[F.spark_partition_id()]
    return _rows(
        out,
        expected_at=lane * F.lit(_PARTITION) + row + F.lit(_LATE if late else 0),
        place=layout.destination(lane),
        doubtful=layout.is_incomplete(lane),
        trimmed=F.col("topic").isin(list(layout.trimmed)),
    )


def actual_rows(sink: DataFrame, layout: Layout) -> DataFrame:
    """Rows for compare(), from the columns of Spark's Kafka source over the sink."""
    names = F.array(*[F.lit(n) for n in layout.sink_names])
    number = F.array_position(names, F.concat_ws("-", "topic", "partition")) - 1
    return _rows(
        layout.with_place(sink),
        actual_at=number * F.lit(_PARTITION) + F.col("offset"),
        place=F.col("place"),
        excused=F.col("excused"),
        doubtful=layout.may_be_of_incomplete(),
    )


def _rows(
    df: DataFrame,
    *,
    place: Column,
    doubtful: Column,
    expected_at: Column | None = None,
    actual_at: Column | None = None,
    excused: Column | None = None,
    trimmed: Column | None = None,
) -> DataFrame:
    no_place, no = F.lit(None).cast("bigint"), F.lit(False)
    return df.select(
        _digest().alias("digest"),
        (no_place if expected_at is None else expected_at).alias("expected_at"),
        (no_place if actual_at is None else actual_at).alias("actual_at"),
        place.cast("int").alias("place"),
        F.coalesce(no if excused is None else excused, no).alias("excused"),
        doubtful.alias("doubtful"),
        (no if trimmed is None else trimmed).alias("trimmed"),
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


def compare(expected: Sequence[DataFrame], actual: DataFrame | None, layout: Layout) -> Comparison:
    """The counts, with examples of each fault.

    expected: frames of expected_rows(), at least one. actual: a frame of actual_rows(); None if there is no sink.
    """
    all_expected = functools.reduce(DataFrame.unionByName, expected)
    rows = all_expected if actual is None else all_expected.unionByName(actual)
    groups = _groups(rows).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        faults = _faults(groups)
        summary = faults.agg(
            F.sum("required").alias("expected"),
            F.sum("actual").alias("delivered"),
            *(F.sum(kind).alias(kind) for kind in _PLACES),
            F.count_if("repeated").alias("repeated"),
        )
        totals = {name: int(n or 0) for name, n in summary.collect()[0].asDict().items()}
        metrics = observed_metrics(summary)
        examples = [fault for kind in _PLACES if totals[kind] for fault in _worst(faults, kind)]
        inversions = _inversions(_matched(rows, groups, any_repeated=totals["repeated"] > 0)).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        out_of_order = inversions.count()
        if out_of_order:
            first = (
                inversions.orderBy("actual_at")
                .limit(SHOWN)
                .select("digest", F.lit(1).alias("n"), F.col("actual_at").alias("at"))
            )
            examples += [_Fault("outOfOrder", row) for row in first.collect()]
        inversions.unpersist()
        return Comparison(
            expected=totals["expected"],
            delivered=totals["delivered"],
            **{kind: totals[kind] for kind in _PLACES},
            out_of_order=out_of_order,
            offending=_offending(examples, all_expected, actual, layout),
            metrics=metrics,
        )
    finally:
        groups.unpersist()


# By kind, the place to show of equal records with that fault.
_PLACES = {
    "lost": "last_required_at",
    "missing": "last_required_at",
    "duplicated": "last_actual_at",
    "unexpected": "first_actual_at",
    "misplaced": "misplaced_at",
    "unjudged": "last_actual_at",
}
_OF_SOURCE = frozenset({"lost", "missing"})  # the place is one of the source


def _groups(rows: DataFrame) -> DataFrame:
    """A row for each different record and place: how often it is expected, required (not late) and actual there."""
    expected_at, actual_at = F.col("expected_at"), F.col("actual_at")
    required, lane, sink = expected_at < _LATE, _partition(expected_at), _partition(actual_at)
    return (
        # Equal records come together once, for the groups of this function and for those of _faults().
        rows.repartition("digest")
        .groupBy("digest", "place")
        .agg(
            F.count("expected_at").alias("expected"),
            F.count_if(required).alias("required"),
            F.count("actual_at").alias("actual"),
            F.min("expected_at").alias("expected_at"),
            F.max(F.when(required, expected_at)).alias("last_required_at"),
            F.min("actual_at").alias("first_actual_at"),
            F.max("actual_at").alias("last_actual_at"),
            (F.min(lane) == F.max(lane)).alias("one_lane"),
            (F.min(sink) == F.max(sink)).alias("one_partition"),
            F.bool_or(expected_at.isNotNull() & F.col("doubtful")).alias("doubtful"),
            F.count_if(actual_at.isNotNull() & F.col("doubtful")).alias("of_incomplete"),
            F.bool_or("excused").alias("excused"),
            F.bool_or("trimmed").alias("trimmed"),
        )
        .withColumns(
            {
                "surplus": _positive(F.col("actual") - F.col("expected")),
                "deficit": _positive(F.col("expected") - F.col("actual")),
                "required_deficit": _positive(F.col("required") - F.col("actual")),
            }
        )
    )


def _positive(number: Column) -> Column:
    return F.greatest(number, F.lit(0))


def _faults(groups: DataFrame) -> DataFrame:
    """A row for each different record, with the number of records of each kind of fault.

    A record that is missing at one place and surplus at another one is misplaced, and neither lost nor duplicated.
    """
    surplus = F.col("surplus") > 0
    totals = groups.groupBy("digest").agg(
        *(
            F.sum(name).alias(name)
            for name in ("expected", "required", "actual", "surplus", "deficit", "required_deficit", "of_incomplete")
        ),
        F.max("last_required_at").alias("last_required_at"),
        F.min("first_actual_at").alias("first_actual_at"),
        F.max("last_actual_at").alias("last_actual_at"),
        F.max(F.when(surplus, F.col("last_actual_at"))).alias("misplaced_at"),
        *(F.sum(F.when(F.col(name), F.col("surplus")).otherwise(0)).alias(name) for name in ("excused", "doubtful")),
        F.bool_or("trimmed").alias("trimmed"),
        F.bool_or(_repeated()).alias("repeated"),
    )
    is_expected, none = F.col("expected") > 0, F.lit(0)
    return (
        totals.withColumn("elsewhere", F.least("surplus", "deficit"))
        .withColumn("absent", _positive(F.col("required_deficit") - F.col("elsewhere")))
        .withColumn("extra", F.when(is_expected, F.col("surplus") - F.col("elsewhere")).otherwise(none))
        .withColumns(
            {
                "lost": F.when(F.col("trimmed"), none).otherwise(F.col("absent")),
                "missing": F.when(F.col("trimmed"), F.col("absent")).otherwise(none),
                "duplicated": _positive(F.col("extra") - F.col("doubtful")),
                "unexpected": F.when(is_expected, none).otherwise(F.col("actual") - F.col("of_incomplete")),
                "misplaced": _positive(F.col("elsewhere") - F.col("excused")),
                "unjudged": F.least("elsewhere", "excused")
                + F.least("extra", "doubtful")
                + F.when(is_expected, none).otherwise(F.col("of_incomplete")),
            }
        )
    )


def _repeated() -> Column:
    """Whether more than one expected record can be matched with an actual one."""
    return (F.col("expected") > 1) & (F.col("actual") > 1)


def _matched(rows: DataFrame, groups: DataFrame, *, any_repeated: bool) -> DataFrame:
    """Expected records beside the actual ones: digest, expected_at, actual_at.

    Leaves out equal records of which it is not known which is which: those of several source partitions, those without
    a key in several partitions of the sink, and those that cannot be judged.
    """
    columns = ("digest", "expected_at", "actual_at")
    unknown = (F.col("doubtful") & (F.col("surplus") > 0)) | (F.col("trimmed") & (F.col("required_deficit") > 0))
    matches = groups.filter((F.col("expected") > 0) & (F.col("actual") > 0) & F.col("one_lane") & ~unknown)
    firsts = matches.filter(~_repeated()).withColumn("actual_at", F.col("first_actual_at")).select(*columns)
    if not any_repeated:
        return firsts
    clear = matches.filter(_repeated() & F.col("one_partition"))
    same = clear.select(F.col("digest").alias("same_digest"), F.col("place").alias("same_place"))
    is_same = (F.col("digest") == F.col("same_digest")) & F.col("place").eqNullSafe(F.col("same_place"))
    repeated = rows.join(same, is_same, "left_semi")
    in_turn = Window.partitionBy("digest", "place", F.col("expected_at").isNotNull()).orderBy(
        "expected_at", "actual_at"
    )
    pairs = (
        repeated.withColumn("nth", F.row_number().over(in_turn))
        .groupBy("digest", "place", "nth")
        .agg(F.min("expected_at").alias("expected_at"), F.min("actual_at").alias("actual_at"))
        .filter("expected_at IS NOT NULL AND actual_at IS NOT NULL")
    )
    return firsts.unionByName(pairs.select(*columns))


def _inversions(matched: DataFrame) -> DataFrame:
    """The actual records directly behind one of the same source and sink partition that the source has later."""
    in_turn = Window.partitionBy("lane", "sink").orderBy("actual_at")
    return (
        matched.withColumn("lane", _partition(F.col("expected_at")))
        .withColumn("sink", _partition(F.col("actual_at")))
        .withColumn("before", F.lag("expected_at").over(in_turn))
        .filter("before > expected_at")
    )


def _partition(place: Column) -> Column:
    return F.shiftright(place, 44).bitwiseAND(F.lit(_PARTITION_BITS))


@dataclass(frozen=True)
class _Fault:
    """A record to show."""

    kind: str
    row: Any  # digest, n (equal records with the fault), at (the place of one)


def _worst(faults: DataFrame, kind: str) -> list[_Fault]:
    """The records with the most faults of a kind."""
    shown = F.col(kind).alias("n"), F.col(_PLACES[kind]).alias("at")
    return [
        _Fault(kind, row)
        for row in faults.filter(F.col(kind) > 0)
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
    layout: Layout,
) -> tuple[Offending, ...]:
    source_names, sink_names = layout.source_names, layout.sink_names
    # What is not lost is in the sink, and reading that again takes a fraction of the time of the transform.
    contents = _contents(expected, [f for f in faults if f.kind in _OF_SOURCE]) | _contents(
        actual, [f for f in faults if f.kind not in _OF_SOURCE]
    )
    offending = []
    for fault in faults:
        content, at = contents.get(bytes(fault.row["digest"]), _COMPACTED), int(fault.row["at"])
        number, offset = (at // _PARTITION) & _PARTITION_BITS, at & _OFFSET
        where = source_names[number] if fault.kind in _OF_SOURCE else f"{sink_names[number]}@{offset}"
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
