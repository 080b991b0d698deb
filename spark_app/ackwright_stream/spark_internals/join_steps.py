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
_WATERMARK, _WINDOWS = "spark.watermarkDelayMs", ("spark.timeWindow", "spark.sessionWindow")
# Milliseconds since 1970. The gateway passes a smaller number as an Integer, and Spark requires a Long.
_ANY_WATERMARK = 1 << 40


@dataclass(frozen=True)
class Join:
    """One join as the transform has it."""

    kind: str  # in the words of SQL, such as INNER or LEFT OUTER
    of_streams: bool  # whether both of its inputs are streams


@dataclass(frozen=True)
class JoinState:
    """How Spark keeps the state of a join of two streams."""

    by_equality: bool  # whether a record is stored by values that are equal on both sides; Spark requires it
    by_window: bool  # whether one of its inputs has a window of the event time
    left_ends: bool  # whether the watermark ends what is stored of the left input
    right_ends: bool


def joins(frame: DataFrame) -> list[Join]:
    """Those of a frame's analysed plan, an outer join before those in its inputs."""
    return [
        Join(str(node.joinType().sql()), all(bool(child.isStreaming()) for child in elements(node.children())))
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
    keys = _singleton(jvm, _EQUALITIES).unapply(join)
    if keys.isEmpty():
        return JoinState(False, by_window, False, False)
    left_keys, right_keys, condition = (keys.get().productElement(i) for i in range(1, 4))
    ends = _singleton(jvm, _HELPER).getStateWatermarkPredicates(
        _sequence(jvm, join.left().output()),
        _sequence(jvm, join.right().output()),
        _sequence(jvm, left_keys),
        _sequence(jvm, right_keys),
        condition,
        jvm.scala.Option.apply(_ANY_WATERMARK),
        False,  # of several event times the last one in the list of columns, as Spark runs it; there is one
    )
    return JoinState(True, by_window, bool(ends.left().isDefined()), bool(ends.right().isDefined()))


def _singleton(jvm: Any, name: str) -> Any:
    return jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)


def _sequence(jvm: Any, sequence: Any) -> Any:
    return jvm.PythonUtils.toSeq(elements(sequence)).toIndexedSeq()
