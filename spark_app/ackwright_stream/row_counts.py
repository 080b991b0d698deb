"""How many rows left the transform in a batch, when Spark's own sink writes them and does not tell.

Spark counts the rows that leave certain steps of a physical plan anyway (SQLMetrics.numOutputRows; a failed attempt's are not added, and of
two attempts one counts). The topmost of these steps has the number, if all above it give one row for each. Where the transform has
other steps, the rows are counted on their way (Dataset.observe), which costs more.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

_ROWS = "numOutputRows"
# Steps of the analysed plan whose physical ones are known here. Functions of Python are among their expressions, and become BatchEvalPython
# and ArrowEvalPython.
_KNOWN = frozenset({"Project", "Filter", "Generate", "SubqueryAlias", "View", "CollectMetrics"})
_ROW_FOR_ROW = frozenset(
    {"WholeStageCodegen", "InputAdapter", "Project", "CollectMetrics", "BatchEvalPython", "ArrowEvalPython"}
)


def told_by_the_plan(out: DataFrame) -> bool:
    """Whether rows_out() will know the number for a stream of this frame."""
    plan = out._jdf.queryExecution().analyzed()
    while True:
        children = plan.children()
        if children.isEmpty():
            return True
        if children.size() > 1 or plan.nodeName() not in _KNOWN:
            return False
        plan = children.head()


def rows_out(plan: Any) -> int | None:
    """The number of rows that left an executed physical plan (Java's SparkPlan) so far; None: it has a step that is not known here."""
    while plan.nodeName().split(" ")[0] in _ROW_FOR_ROW:
        plan = plan.children().head()
    counted = plan.metrics().get(_ROWS)
    return int(counted.get().value()) if counted.isDefined() else None
