"""What the audit's comparison counts, on records that no broker holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from kafka.partitioner.default import murmur2
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.audit_compare import actual_rows, compare, expected_rows
from ackwright_stream.audit_partitions import Layout
from ackwright_stream.audit_report import Comparison
from ackwright_stream.source import HEADERS

LANES = [("in", 0), ("in", 1)]
SINK = [("out", 0), ("out", 1), ("out", 2)]
PRESERVING = Layout(LANES, SINK)
BY_KEY = Layout(LANES, SINK, preserve=False)
SENT = [(0, b"a", b"1"), (0, None, b"2"), (0, b"c", b"3"), (1, b"d", b"4"), (1, None, b"5")]
_FIELDS = f"key BINARY, value BINARY, topic STRING, headers {HEADERS}"

Row = tuple[int, bytes | None, bytes]  # partition, key, value


def by_key(rows: Iterable[Row]) -> list[Row]:
    """The rows where the partitioner puts them; those without a key in partition 1."""
    return [(1 if key is None else (murmur2(key) & 0x7FFFFFFF) % len(SINK), key, value) for _, key, value in rows]


def key_for(partition: int, *, of_two: int | None = None) -> bytes:
    """A key that belongs to a partition of the sink, and to partition `of_two` while the sink had two."""
    hashes = ((f"key{n}".encode(), murmur2(f"key{n}".encode()) & 0x7FFFFFFF) for n in range(1000))
    return next(k for k, h in hashes if h % len(SINK) == partition and of_two in (None, h % 2))


def compared(
    spark: SparkSession,
    sent: Sequence[Row],
    sink: Sequence[Row],
    layout: Layout = PRESERVING,
    late: Sequence[Row] = (),
) -> Comparison:
    def expected_of(rows: Sequence[Row], *, is_late: bool) -> DataFrame:
        # Each lane is one Spark partition, as when Spark reads Kafka.
        lanes = spark.range(0, len(LANES), 1, len(LANES))
        records = F.array(*(F.array(*(_record(k, v) for n, k, v in rows if n == lane)) for lane in range(len(LANES))))
        typed = records.cast("array<array<struct<key: binary, value: binary>>>")
        output = lanes.select(F.inline(typed[F.col("id").cast("int")])).withColumns(
            {"topic": F.lit("out"), "headers": F.lit(None).cast(HEADERS)}
        )
        return expected_rows(output, range(len(LANES)), layout, late=is_late)

    offsets: dict[int, int] = {}
    rows: list[tuple[Any, ...]] = []
    for partition, key, value in sink:
        offsets[partition] = offsets.get(partition, -1) + 1
        rows.append((key, value, "out", None, partition, offsets[partition]))
    frame = spark.createDataFrame(rows, f"{_FIELDS}, partition INT, offset BIGINT").repartition(2, F.col("value"))
    expected = [expected_of(sent, is_late=False), *([expected_of(late, is_late=True)] if late else [])]
    return compare(expected, actual_rows(frame, layout), layout)


def _record(key: bytes | None, value: bytes) -> Column:
    return F.struct(F.lit(key).cast("binary").alias("key"), F.lit(value).alias("value"))


def counts(comparison: Comparison) -> dict[str, int]:
    """The counts that are not zero."""
    names = ("lost", "missing", "duplicated", "unexpected", "misplaced", "unjudged", "out_of_order")
    return {name: number for name in names if (number := getattr(comparison, name))}


def preserving(**changes: Any) -> Layout:
    return Layout(LANES, SINK, **changes)


def test_a_right_delivery_has_no_fault(spark: SparkSession) -> None:
    assert counts(compared(spark, SENT, SENT)) == {}
    assert counts(compared(spark, SENT, by_key(SENT), BY_KEY)) == {}
    right = compared(spark, SENT, SENT[3:] + SENT[:3])
    assert (right.expected, right.delivered, counts(right)) == (5, 5, {}), "between partitions there is no order"


# ---------------------------------------------------------------- records that no longer exist


def test_what_may_come_from_removed_records_is_unjudged_and_all_else_is_judged(spark: SparkSession) -> None:
    layout = preserving(incomplete={LANES[0]})
    sink = [*SENT, SENT[0], SENT[3], (0, b"x", b"stray0"), (1, b"x", b"stray1")]
    result = compared(spark, SENT, sink, layout)
    assert counts(result) == {"unjudged": 2, "duplicated": 1, "unexpected": 1}
    assert {(o.kind, o.where) for o in result.offending} == {
        ("unjudged", "out-0@3"),
        ("unjudged", "out-0@4"),
        ("duplicated", "out-1@2"),
        ("unexpected", "out-1@3"),
    }
    assert counts(compared(spark, SENT, SENT[1:3] + SENT[4:], layout)) == {"lost": 2}, "what is left has to be there"


def test_of_equal_records_each_partition_is_judged_by_itself(spark: SparkSession) -> None:
    twin = [(0, b"k", b"v"), (1, b"k", b"v")]
    layout = preserving(incomplete={LANES[0]})
    assert counts(compared(spark, twin, [*twin, twin[0]], layout)) == {"unjudged": 1}
    assert counts(compared(spark, twin, [*twin, twin[1]], layout)) == {"duplicated": 1}


def test_control_without_removed_records_the_same_sink_is_judged_in_full(spark: SparkSession) -> None:
    sink = [*SENT, SENT[0], SENT[3], (0, b"x", b"stray0"), (1, b"x", b"stray1")]
    assert counts(compared(spark, SENT, sink)) == {"duplicated": 2, "unexpected": 2}


def test_where_keys_decide_the_partition_any_unexpected_record_may_come_from_removed_ones(spark: SparkSession) -> None:
    layout = Layout(LANES, SINK, preserve=False, incomplete={LANES[0]})
    sink = by_key([*SENT, SENT[0], SENT[3], (0, b"x", b"stray")])
    assert counts(compared(spark, SENT, sink, layout)) == {"unjudged": 2, "duplicated": 1}


def test_what_the_sink_may_have_removed_is_missing_and_not_lost(spark: SparkSession) -> None:
    result = compared(spark, SENT, SENT[1:], preserving(trimmed={"out"}))
    assert counts(result) == {"missing": 1}
    assert [(o.kind, o.where) for o in result.offending] == [("missing", "in-0")]
    assert counts(compared(spark, SENT, SENT[1:], preserving(trimmed={"another"}))) == {"lost": 1}


# ---------------------------------------------------------------- order


@pytest.mark.parametrize(
    ("sink", "inversions"),
    [
        ([SENT[1], SENT[0], SENT[2], *SENT[3:]], 1),  # a null key and another one
        ([SENT[2], SENT[1], SENT[0], *SENT[3:]], 2),
        ([*SENT[:3], SENT[4], SENT[3]], 1),
    ],
)
def test_order_is_that_of_the_lane_whatever_the_keys(spark: SparkSession, sink: list[Row], inversions: int) -> None:
    assert counts(compared(spark, SENT, sink)) == {"out_of_order": inversions}


def test_lanes_that_share_a_sink_partition_may_be_interleaved(spark: SparkSession) -> None:
    sent = [(0, None, b"a1"), (0, None, b"a2"), (1, None, b"b1"), (1, None, b"b2")]
    one = [(0, None, value) for value in (b"b1", b"a1", b"a2", b"b2")]
    assert counts(compared(spark, sent, one, BY_KEY)) == {}
    turned = [(0, None, value) for value in (b"b1", b"a2", b"b2", b"a1")]
    assert counts(compared(spark, sent, turned, BY_KEY)) == {"out_of_order": 1}
    apart = [(0, None, b"a2"), (0, None, b"b1"), (1, None, b"a1"), (1, None, b"b2")]
    assert counts(compared(spark, sent, apart, BY_KEY)) == {}, "between sink partitions there is no order"


def test_records_of_one_key_that_come_from_two_lanes_are_in_order_per_lane(spark: SparkSession) -> None:
    """A key of two lanes has an order in each of them."""
    key = key_for(1)
    sent = [(0, key, b"a1"), (0, key, b"a2"), (1, key, b"b1")]
    assert counts(compared(spark, sent, by_key([sent[2], sent[1], sent[0]]), BY_KEY)) == {"out_of_order": 1}


def test_equal_records_are_matched_in_turn(spark: SparkSession) -> None:
    ping, other = (0, None, b"ping"), (0, None, b"other")
    assert counts(compared(spark, [ping, other, ping], [ping, other, ping])) == {}
    assert counts(compared(spark, [ping, other, ping], [other, ping, ping])) == {"out_of_order": 1}
    # The copies are in two partitions, so that it is not known which is which.
    apart = [(0, None, b"other"), (0, None, b"ping"), (1, None, b"ping")]
    assert counts(compared(spark, [ping, other, ping], apart, BY_KEY)) == {}
    # They come from two lanes.
    both = [ping, other, (1, None, b"ping")]
    assert counts(compared(spark, both, [(0, None, v) for v in (b"other", b"ping", b"ping")], BY_KEY)) == {}


# ---------------------------------------------------------------- partitions


def test_a_preserving_pipeline_keeps_each_record_in_its_partition(spark: SparkSession) -> None:
    result = compared(spark, SENT, [(2, b"a", b"1"), *SENT[1:]])
    assert counts(result) == {"misplaced": 1}
    assert [(o.kind, o.where) for o in result.offending] == [("misplaced", "out-2@0")]
    twin = [(0, b"k", b"v"), (1, b"k", b"v")]
    assert counts(compared(spark, twin, [(0, b"k", b"v"), (0, b"k", b"v")])) == {"misplaced": 1}
    assert counts(compared(spark, twin, [(0, b"k", b"v")])) == {"lost": 1}
    assert counts(compared(spark, twin[:1], [(0, b"k", b"v"), (1, b"k", b"v")])) == {"duplicated": 1}


def test_a_key_is_in_the_partition_of_the_partitioner_and_a_null_key_anywhere(spark: SparkSession) -> None:
    key = key_for(0)
    sent = [(0, key, b"1"), (0, None, b"2"), (1, None, b"3")]
    right = [(0, key, b"1"), (0, None, b"2"), (2, None, b"3")]
    assert counts(compared(spark, sent, right, BY_KEY)) == {}
    assert counts(compared(spark, sent, [(2, key, b"1"), *right[1:]], BY_KEY)) == {"misplaced": 1}


def test_a_key_where_fewer_partitions_would_put_it_is_not_judged(spark: SparkSession) -> None:
    """Partitions may have been added since; Kafka does not record when."""
    key = key_for(2, of_two=1)
    assert counts(compared(spark, [(0, key, b"1")], [(1, key, b"1")], BY_KEY)) == {"unjudged": 1}
    key = key_for(2, of_two=0)
    assert counts(compared(spark, [(0, key, b"1")], [(1, key, b"1")], BY_KEY)) == {"misplaced": 1}


def test_records_that_the_position_has_not_passed_may_be_absent(spark: SparkSession) -> None:
    late = [(0, b"late", b"6"), (1, b"late", b"7")]
    assert counts(compared(spark, SENT, SENT, late=late)) == {}
    assert counts(compared(spark, SENT, [*SENT, late[1]], late=late)) == {}
    assert counts(compared(spark, SENT, [*SENT, (0, b"late", b"7")], late=late)) == {"misplaced": 1}
