"""The steps of a stateful transform that keep state, read from its analysed plan: by what, and with which windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.column_names import named
from ackwright_stream.spark_internals.logical_plan import Step, class_name, elements, frame_of, nodes
from ackwright_stream.spark_internals.rounding import rounds

PROCESSOR = "TransformWithStateInPySpark"  # a class of Python
_STATEFUL = frozenset({"Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "Join", PROCESSOR})
_WATERMARK, _WINDOW, _SESSION = "spark.watermarkDelayMs", "spark.timeWindow", "spark.sessionWindow"


@dataclass(frozen=True)
class StateKey:
    """One of the columns by which a step keeps its state."""

    name: str
    timed: bool  # whether it is the event time or a window of it, so that the watermark ends it
    window: bool
    session: bool


@dataclass(frozen=True)
class StateStep:
    """One step that keeps state."""

    kind: str  # the simple name of its class, such as Aggregate
    keys: tuple[StateKey, ...]  # of a join: the event time alone; of a processor: none
    # Whether its result may depend on the order of the records, by the rounding of fractions or of large averages.
    rounds: bool
    overlapping: bool  # whether a record may belong to several of its windows or groups
    java: Any  # org.apache.spark.sql.catalyst.plans.logical.LogicalPlan


def state_steps(frame: DataFrame) -> list[StateStep]:
    """Those of a frame's analysed plan, a step before its inputs."""
    return [_step(node) for node in nodes(frame._jdf.queryExecution().analyzed()) if class_name(node) in _STATEFUL]


def window_size(spark: SparkSession, step: StateStep, key: StateKey) -> tuple[int, int] | None:
    """The length of a step's windows and the start of one of them, in microseconds; None if there are no records.

    step: of a frame that is no stream. key: a window that does not overlap with another one.
    """
    below = frame_of(spark, step.java.children().head())
    window = named(key.name)
    ends = [F.unix_micros(window[name]).alias(name) for name in ("start", "end")]
    first = below.filter(window.isNotNull()).select(*ends).first()
    return None if first is None else (first["end"] - first["start"], first["start"])


def without_deduplication(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The same frame with every row, where it keeps one of each key. frame: no stream."""
    plan = _without_deduplication(spark, frame._jdf.queryExecution().analyzed())
    return frame_of(spark, plan)


def _without_deduplication(spark: SparkSession, node: Any) -> Any:
    children = [_without_deduplication(spark, child) for child in elements(node.children())]
    if class_name(node) in ("Deduplicate", "Distinct"):
        return children[0]
    if not children:
        return node
    return node.withNewChildren(spark._jvm.PythonUtils.toSeq(children).toIndexedSeq())


def _step(node: Any) -> StateStep:
    kind = class_name(node)
    overlapping = any(class_name(below) == "Expand" for below in nodes(node))
    if kind == "Join":
        timed = [a for a in elements(node.left().output()) if a.metadata().contains(_WATERMARK)]  # as on the right
        return StateStep(kind, tuple(map(_key, timed[:1])), rounds=False, overlapping=overlapping, java=node)
    if kind == PROCESSOR:
        return StateStep(kind, (), rounds=False, overlapping=overlapping, java=node)
    if kind == "Aggregate":
        keys, rounded = node.groupingExpressions(), any(rounds(e.java, large=True) for e in Step(node).expressions())
    else:
        keys, rounded = (node.output() if kind == "Distinct" else node.keys()), False
    return StateStep(kind, tuple(map(_key, elements(keys))), rounded, overlapping, node)


def _key(expression: Any) -> StateKey:
    if class_name(expression) != "AttributeReference":
        return StateKey(str(expression.toString()), timed=False, window=False, session=False)
    metadata = expression.metadata()
    return StateKey(
        str(expression.name()),
        timed=bool(metadata.contains(_WATERMARK)),
        window=bool(metadata.contains(_WINDOW)),
        session=bool(metadata.contains(_SESSION)),
    )
