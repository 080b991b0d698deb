"""For the audit: which rows without a match an outer join has written, by its condition and the watermark.

Spark writes such a row when the watermark has passed the end of the row's range, so that every record that would match
it is late. It writes a row at once whose own columns alone make the condition false. What the job reads of a join is in
join_steps.py, and nothing of it is used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.spark_internals.logical_plan import class_name, column_of, elements, frame_of, nodes, only_node

_WATERMARK = "spark.watermarkDelayMs"
# By the type of a join, its inputs of which it writes rows without a match.
_PRESERVED = {"LEFT OUTER": (0,), "RIGHT OUTER": (1,), "FULL OUTER": (0, 1)}
# By class of a comparison: whether its operands are the other way round, and whether they may be equal.
_COMPARISONS = {
    "LessThan": (False, False),
    "LessThanOrEqual": (False, True),
    "GreaterThan": (True, False),
    "GreaterThanOrEqual": (True, True),
}
_MS = 1_000  # microseconds
_MARK = "ackwright_side"
_CONVERTER = "org.apache.spark.sql.classic.ColumnNodeToExpressionConverter$"


@dataclass(frozen=True)
class RowEnd:
    """When a join writes the rows of one of its inputs that have no match."""

    input: int  # 0: the left one, 1: the right one
    time: int  # the index of its event time among its columns
    microseconds: int  # from the event time of a row to the watermark at which it is written


def row_ends(stream: DataFrame) -> tuple[RowEnd, ...] | None:
    """Those of the only join of a stream; none of an inner or semi join. None: one is not known."""
    join, parts = only_node(stream, "Join"), _parts(stream)
    times = [_times(child) for child in elements(join.children())]
    ends: list[RowEnd] = []
    for number in _PRESERVED.get(str(join.joinType().sql()), ()):
        if any(len(of_input) != 1 for of_input in times):
            return None
        [(index, this)], [(_, other)] = times[number].items(), times[1 - number].items()
        if (end := _end(parts, this, other)) is None:
            return None
        ends.append(RowEnd(number, index, end))
    return tuple(ends)


def without_later_rows(spark: SparkSession, frame: DataFrame, ends: Sequence[RowEnd], watermark: int) -> DataFrame:
    """The same frame without those rows of its join that have no match yet and may have one later.

    frame: no stream, of the transform that has these row_ends(). watermark: in microseconds since 1970.
    """
    if not ends:
        return frame
    join, parts = only_node(frame, "Join"), _parts(frame)
    children = elements(join.children())
    # A column of each input that is null only where the join has no row of it.
    marks = [_expression(spark, F.lit(True).alias(f"{_MARK}_{number}")) for number in range(2)]
    inputs = [
        _project(spark, [*elements(child.output()), mark], child) for child, mark in zip(children, marks, strict=True)
    ]
    present = [column_of(spark, mark.toAttribute()).isNotNull() for mark in marks]
    due = present[0] & present[1]
    for end in ends:
        child = children[end.input]
        time = column_of(spark, child.output().apply(end.time)).cast("timestamp")
        ended = F.unix_micros(time) + F.lit(end.microseconds) <= F.lit(watermark)
        alone = (p for p in parts if p.references().size() > 0 and p.references().subsetOf(child.outputSet()))
        may_match = reduce(Column.__and__, (column_of(spark, part) for part in alone), F.lit(True))
        due |= present[end.input] & (F.coalesce(ended, F.lit(False)) | ~F.coalesce(may_match, F.lit(False)))
    marked = join.withNewChildren(_sequence(spark, inputs))
    filtered = spark._jvm.org.apache.spark.sql.catalyst.plans.logical.Filter(_expression(spark, due), marked)
    written = _project(spark, elements(join.output()), filtered)
    plan = _with_join(spark, frame._jdf.queryExecution().analyzed(), written)
    return frame_of(spark, plan)


def _parts(frame: DataFrame) -> list[Any]:
    """The conditions of a frame's join that are all required, as the optimizer leaves them.

    The optimizer takes them apart and computes intervals. In place of the inputs it has leaves with the same columns:
    of the inputs themselves it removes aliases, and the conditions would name columns that no input of the join has.
    """
    spark, join = frame.sparkSession, only_node(frame, "Join")
    leaf = spark._jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation
    none = spark._jvm.scala.Option.apply(None)
    # Streams, because the optimizer removes a join with an empty table.
    leaves = [leaf(child.output(), _sequence(spark, []), True, none) for child in elements(join.children())]
    optimizer = spark._jsparkSession.sessionState().optimizer()
    plan = optimizer.execute(join.withNewChildren(_sequence(spark, leaves)))
    [optimized] = [node for node in nodes(plan) if class_name(node) == "Join"]
    remaining, parts = [optimized.condition().get()] if optimized.condition().isDefined() else [], list[Any]()
    while remaining:
        part = remaining.pop()
        if class_name(part) == "And":
            remaining += elements(part.children())
        else:
            parts.append(part)
    return parts


def _times(child: Any) -> dict[int, Any]:
    """The event times among the columns of an input, by their index. A frame that is no stream does not mark them."""
    columns = enumerate(elements(child.output()))
    return {index: column for index, column in columns if column.metadata().contains(_WATERMARK)}


def _end(parts: list[Any], this: Any, other: Any) -> int | None:
    """Microseconds from the event time of one side to the watermark at which Spark removes its record. None: not known.

    With an event time in an equality Spark compares the key of the join with the watermark. The key is the event time
    of both sides only if their event times are equal, and neither is shifted.
    """
    equalities = [_operands(part, this, other) for part in parts if class_name(part) == "EqualTo"]
    if timed := [operands for operands in equalities if any(operands)]:
        return 0 if all(set(operands) == {("this", 0), ("other", 0)} for operands in timed) else None
    ends: list[int] = []
    for part in parts:
        references = part.references()
        if class_name(part) not in _COMPARISONS or not (references.contains(this) and references.contains(other)):
            continue
        turned, may_be_equal = _COMPARISONS[class_name(part)]
        operands = _operands(part, this, other)
        lesser, greater = reversed(operands) if turned else operands
        if lesser is None or greater is None:
            return None  # Spark may know the limit, and keep records longer by it
        if greater[0] == "this":
            milliseconds = -(-(greater[1] - lesser[1]) // _MS)  # Spark counts watermarks in milliseconds
            ends.append((milliseconds + may_be_equal) * _MS)
    return max(ends, default=None)  # of several limits Spark takes the one that keeps records longest


def _operands(part: Any, this: Any, other: Any) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """Of each operand of a comparison, which event time it is, and by how many microseconds it is shifted."""
    left, right = (_shifted(operand, this, other) for operand in elements(part.children()))
    return left, right


def _shifted(expression: Any, this: Any, other: Any) -> tuple[str, int] | None:
    shift = 0
    while class_name(expression) == "TimestampAddInterval":
        expression, interval = elements(expression.children())
        if class_name(interval) != "Literal" or not isinstance(microseconds := interval.value(), int):
            return None
        shift += microseconds
    for name, time in (("this", this), ("other", other)):
        if expression.semanticEquals(time):
            return name, shift
    return None


def _with_join(spark: SparkSession, node: Any, join: Any) -> Any:
    if class_name(node) == "Join":
        return join
    children = [_with_join(spark, child, join) for child in elements(node.children())]
    return node.withNewChildren(_sequence(spark, children)) if children else node


def _project(spark: SparkSession, columns: list[Any], child: Any) -> Any:
    return spark._jvm.org.apache.spark.sql.catalyst.plans.logical.Project(_sequence(spark, columns), child)


def _sequence(spark: SparkSession, values: list[Any]) -> Any:
    return spark._jvm.PythonUtils.toSeq(values).toIndexedSeq()


def _expression(spark: SparkSession, column: Column) -> Any:
    return spark._jvm.java.lang.Class.forName(_CONVERTER).getField("MODULE$").get(None).apply(column._jc.node())
