"""How many rows of a batch left the transform, where Spark's own sink writes them and reports no number.

Spark counts the rows that leave certain steps of a physical plan anyway (numOutputRows of SQLMetrics; a failed
attempt's rows are not added, and of two attempts one counts). The topmost of these steps has the number, if all steps
above it return one row for each row. Where the transform has other steps, Dataset.observe counts the rows, which costs
more.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from ackwright_stream.spark_internals import execution, logical_plan
from ackwright_stream.spark_internals.execution import Execution

# Steps of the analysed plan whose physical steps are known here. Functions of Python are among their expressions, and
# become BatchEvalPython and ArrowEvalPython.
_KNOWN = frozenset({"Project", "Filter", "Generate", "SubqueryAlias", "View", "CollectMetrics"})
_ROW_FOR_ROW = frozenset(
    {"WholeStageCodegen", "InputAdapter", "Project", "CollectMetrics", "BatchEvalPython", "ArrowEvalPython"}
)


def counted_by_spark(output: DataFrame) -> bool:
    """Whether rows_written() will know the number for a stream of this frame."""
    for step in logical_plan.steps(output):
        if step.inputs == 0:
            break
        if step.inputs > 1 or step.name not in _KNOWN:
            return False
    return True


def rows_written(batch: Execution) -> int | None:
    """Rows that left the transform in an executed batch; None if its physical plan has an unknown step."""
    return execution.output_rows(batch, _ROW_FOR_ROW)
