"""The processors of a transform (transformWithState), read from its analysed plan: classes of Python with state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from ackwright_stream.spark_internals.logical_plan import class_name, nodes
from ackwright_stream.spark_internals.state_steps import PROCESSOR


@dataclass(frozen=True)
class Processor:
    """One processor."""

    name: str  # of the method that PySpark has for it
    grouped: bool  # by columns; otherwise all records are one group
    output_mode: str  # of its rows, as of a query: append, update or complete
    by_clock: bool  # whether its timers and expiries follow the clock, so that they come without records
    by_event_time: bool  # whether its timers follow the watermark
    initial_state: bool  # whether its state begins with rows of another frame


def processors(frame: DataFrame) -> list[Processor]:
    """Those of a frame, one before those in its input."""
    analyzed = nodes(frame._jdf.queryExecution().analyzed())
    return [_processor(node) for node in analyzed if class_name(node) == PROCESSOR]


def _processor(node: Any) -> Processor:
    of_pandas, time = str(node.userFacingDataType().toString()) == "pandas", str(node.timeMode().toString())
    return Processor(
        name="transformWithStateInPandas" if of_pandas else "transformWithState",
        grouped=int(node.groupingAttributesLen()) > 0,
        output_mode=str(node.outputMode().toString()).lower(),
        by_clock=time == "ProcessingTime",
        by_event_time=time == "EventTime",
        initial_state=bool(node.hasInitialState()),
    )
