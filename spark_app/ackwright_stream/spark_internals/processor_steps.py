"""The stateful processors of a transform, read from its analysed plan: functions of Python that keep state by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from ackwright_stream.spark_internals.logical_plan import class_name, elements, nodes
from ackwright_stream.spark_internals.state_steps import PROCESSORS

_CLOCK = frozenset({"ProcessingTime", "ProcessingTimeTimeout"})
_EVENT_TIME = frozenset({"EventTime", "EventTimeTimeout"})


@dataclass(frozen=True)
class Processor:
    """One stateful processor."""

    name: str  # of the method that PySpark has for it
    grouped: bool  # by columns; otherwise all records are one group
    output_mode: str  # of its rows, as of a query: append, update or complete
    by_clock: bool  # whether its timers and expiries follow the clock, so that they come without records
    by_event_time: bool  # whether its timers follow the watermark
    initial_state: bool  # whether its state begins with rows of another frame
    describes_state: bool  # whether Spark stores a description of its state, see state_types.py


def processors(frame: DataFrame) -> list[Processor]:
    """Those of a frame, one before those in its input."""
    analyzed = nodes(frame._jdf.queryExecution().analyzed())
    return [_processor(node) for node in analyzed if class_name(node) in PROCESSORS]


def _processor(node: Any) -> Processor:
    described = class_name(node) == "TransformWithStateInPySpark"
    if not described:
        time, columns = str(node.timeout().toString()), len(elements(node.groupingAttributes()))
        name, initial_state = "applyInPandasWithState", False
    else:
        time, columns = str(node.timeMode().toString()), int(node.groupingAttributesLen())
        of_pandas = str(node.userFacingDataType().toString()) == "pandas"
        name = "transformWithStateInPandas" if of_pandas else "transformWithState"
        initial_state = bool(node.hasInitialState())
    output_mode = str(node.outputMode().toString()).lower()
    return Processor(
        name, columns > 0, output_mode, time in _CLOCK, time in _EVENT_TIME, initial_state, describes_state=described
    )
