"""The joins of a stateful transform, read from its plans: of which kind, by what, and what bounds their state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from ackwright_stream.spark_internals.logical_plan import class_name, elements, nodes

_HELPER = (
    "org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper$"  # of Spark 4.1
)
_EQUALITIES = "org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$"
_METADATA = "kafka"  # the column of the view with topic, partition and offset
_WATERMARK, _WINDOWS = "spark.watermarkDelayMs", ("spark.timeWindow", "spark.sessionWindow")
# Milliseconds since 1970. The gateway passes a smaller number as an Integer, and Spark requires a Long.
ANY_WATERMARK = 1 << 40


@dataclass(frozen=True)
class Join:
    """One join as the transform has it."""

    kind: str  # in the words of SQL, such as INNER or LEFT OUTER
    of_streams: bool  # whether both of its inputs are streams
    # Whether a part of its condition is on the metadata of records of the left, or the right, input alone.
    left_metadata: bool
    right_metadata: bool


@dataclass(frozen=True)
class JoinState:
    """How Spark keeps the state of a join of two streams."""

    kind: str  # as the optimizer leaves it: conditions behind an outer join may make it an inner one
    by_equality: bool  # whether a record is stored by values that are equal on both sides; Spark requires it
    by_window: bool  # whether one of its inputs has a window of the event time
    # With a watermark of ANY_WATERMARK, the event time up to which Spark removes records of the left, or the right,
    # input: in microseconds since 1970. None: it removes none.
    left_end: int | None
    right_end: int | None
    # The equality of which both values may be null: Spark's state has keys of any values, so that it matches null with
    # null, unlike = of SQL. None: there is none.
    nulls: str | None = None


def joins(frame: DataFrame) -> list[Join]:
    """Those of a frame's analysed plan, an outer join before those in its inputs."""
    return [
        Join(
            str(node.joinType().sql()),
            all(bool(child.isStreaming()) for child in elements(node.children())),
            _metadata_alone(node, node.left()),
            _metadata_alone(node, node.right()),
        )
        for node in nodes(frame._jdf.queryExecution().analyzed())
        if class_name(node) == "Join"
    ]


def watermarks(frame: DataFrame) -> int:
    """How many different watermarks a frame sets; several uses of a frame with a watermark set the same one."""
    analyzed = nodes(frame._jdf.queryExecution().analyzed())
    return len({str(node.nodeId().toString()) for node in analyzed if class_name(node) == "EventTimeWatermark"})


def sources(frame: DataFrame) -> int:
    """How many different sources Spark reads for a stream, each with separate offsets."""
    different: list[Any] = []
    for node in nodes(frame._jdf.queryExecution().analyzed()):
        if class_name(node) == "StreamingRelationV2" and not any(bool(node.equals(other)) for other in different):
            different.append(node)
    return len(different)


def join_state(frame: DataFrame) -> JoinState | None:
    """The state of the only join of a stream; None if Spark's optimizer has removed the join.

    Spark itself judges it, by the optimized plan, as it does when it runs the query.
    """
    session = frame.sparkSession
    plan = session._jsparkSession.sessionState().optimizer().execute(frame._jdf.queryExecution().analyzed())
    optimized = [node for node in nodes(plan) if class_name(node) == "Join"]
    if len(optimized) != 1:
        return None
    [join] = optimized
    by_window = any(
        bool(attribute.metadata().contains(window))
        for side in (join.left(), join.right())
        for attribute in elements(side.output())
        for window in _WINDOWS
        if bool(attribute.metadata().contains(_WATERMARK))
    )
    jvm: Any = session._jvm
    kind = str(join.joinType().sql())
    keys = _singleton(jvm, _EQUALITIES).unapply(join)
    if keys.isEmpty():
        return JoinState(kind, False, by_window, None, None)
    left_keys, right_keys, condition = (keys.get().productElement(i) for i in range(1, 4))
    ends = _singleton(jvm, _HELPER).getStateWatermarkPredicates(
        _sequence(jvm, join.left().output()),
        _sequence(jvm, join.right().output()),
        _sequence(jvm, left_keys),
        _sequence(jvm, right_keys),
        condition,
        jvm.scala.Option.apply(ANY_WATERMARK),
        False,  # of several event times the last one in the list of columns, as Spark runs it; there is one
    )
    conditions = _conjuncts(condition)
    left_constraints, right_constraints = (
        [*conditions, *elements(side.constraints().toSeq())] for side in (join.left(), join.right())
    )
    nulls = [
        f"{left.sql()} = {right.sql()}"
        for left, right in zip(elements(left_keys), elements(right_keys), strict=True)
        if _may_be_null(jvm, left, left_constraints) and _may_be_null(jvm, right, right_constraints)
    ]
    return JoinState(kind, True, by_window, _end(ends.left()), _end(ends.right()), next(iter(nulls), None))


def _end(predicate: Any) -> int | None:
    if not predicate.isDefined():
        return None
    _time, end = elements(predicate.get().expr().children())
    return int(end.value())


def _conjuncts(condition: Any) -> list[Any]:
    """The expressions of an optional condition that are all required."""
    remaining, parts = ([] if condition.isEmpty() else [condition.get()]), []
    while remaining:
        part = remaining.pop()
        if class_name(part) == "And":
            remaining += [part.right(), part.left()]
        else:
            parts.append(part)
    return parts


def _of_side(part: Any, side: Any) -> bool:
    """Whether an expression has columns, and all are of this input of a join."""
    references = part.references()
    return int(references.size()) > 0 and bool(references.subsetOf(side.outputSet()))


def _metadata_alone(join: Any, side: Any) -> bool:
    return any(
        _of_side(part, side) and any(a.name() == _METADATA for a in elements(part.references().toSeq()))
        for part in _conjuncts(join.condition())
    )


def _may_be_null(jvm: Any, expression: Any, constraints: list[Any]) -> bool:
    """Whether an expression may be null for records of which the constraints are true."""
    if not expression.nullable():
        return False
    if any(class_name(c) == "IsNotNull" and bool(c.child().semanticEquals(expression)) for c in constraints):
        return False
    inputs = elements(expression.children())
    if not inputs or not expression.nullIntolerant() or any(_may_be_null(jvm, i, constraints) for i in inputs):
        return True
    # Also of inputs that are not null some expressions are null, such as TRY_CAST and the value of a key in a map.
    known = jvm.org.apache.spark.sql.catalyst.expressions.KnownNotNull
    not_null = [known(i) if i.nullable() else i for i in inputs]
    return bool(expression.withNewChildren(jvm.PythonUtils.toSeq(not_null).toIndexedSeq()).nullable())


def _singleton(jvm: Any, name: str) -> Any:
    return jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)


def _sequence(jvm: Any, sequence: Any) -> Any:
    return jvm.PythonUtils.toSeq(elements(sequence)).toIndexedSeq()
