"""For the audit: which columns and rows of an output depend on aggregate functions, as its analysed plan says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.spark_internals.logical_plan import (
    Step,
    class_name,
    column_of,
    elements,
    frame_of,
    id_of,
    only_node,
)
from ackwright_stream.spark_internals.rounding import rounds

# Functions whose result is the same in whatever order the records come, or whose difference rounding.py judges.
_ANY_ORDER = frozenset(
    (
        "Average",
        "BitAndAgg",
        "BitOrAgg",
        "BitXorAgg",
        "BitmapConstructAgg",
        "BitmapOrAgg",
        "BoolAnd",
        "BoolOr",
        "Count",
        "CountIf",
        "CountMinSketchAgg",
        "HyperLogLogPlusPlus",
        "Max",
        "Median",
        "Min",
        "Percentile",
        "RegrCount",
        "Sum",
    )
)
_BY = frozenset({"MaxBy", "MinBy"})  # of equal values the last one, unless there are none


@dataclass(frozen=True)
class Dependent:
    """What of an output depends on some functions."""

    columns: frozenset[str]  # whose values do
    rows: bool  # whether a condition does, so that the functions say which rows there are


_NOTHING = Dependent(frozenset(), rows=False)


def of_order(spark: SparkSession, output: DataFrame) -> Dependent:
    """What depends on the order of the records: first, collect_list, max_by of equal values and the like.

    Sums of fractions are rounding's. output: no stream, with one Aggregate.
    """

    def depends(function: Any) -> bool:
        return class_name(function) not in {*_ANY_ORDER, *_BY} and not rounds(function)

    without_ties = _dependent(output, depends)
    if _dependent(output, lambda function: class_name(function) in _BY) == _NOTHING or not _has_ties(spark, output):
        return without_ties
    return _dependent(output, lambda function: depends(function) or class_name(function) in _BY)


def of_results(output: DataFrame) -> Dependent:
    """What depends on the result of any aggregate function. Its rows do with HAVING."""
    return _dependent(output, lambda _: True)


def without_conditions(spark: SparkSession, output: DataFrame) -> DataFrame:
    """The same frame with all groups, also those that a condition behind the Aggregate drops. output: no stream."""
    return frame_of(spark, _without_conditions(spark, output._jdf.queryExecution().analyzed()))


def _without_conditions(spark: SparkSession, node: Any) -> Any:
    children = elements(node.children())
    if class_name(node) == "Aggregate" or not children:
        return node
    children = [_without_conditions(spark, child) for child in children]
    if class_name(node) == "Filter":
        return children[0]
    return node.withNewChildren(spark._jvm.PythonUtils.toSeq(children).toIndexedSeq())


def _has_ties(spark: SparkSession, output: DataFrame) -> bool:
    """Whether a group has different values to choose from for a max_by or min_by."""
    aggregate = only_node(output, "Aggregate")
    functions = [e.java for e in Step(aggregate).expressions() if class_name(e.java) in _BY]
    keys = [column_of(spark, key).alias(f"k{i}") for i, key in enumerate(elements(aggregate.groupingExpressions()))]
    names = [f"k{i}" for i in range(len(keys))]
    below = frame_of(spark, aggregate.child())
    for function in functions:
        value, by = (column_of(spark, child) for child in elements(function.children()))
        choose = F.max_by if class_name(function) == "MaxBy" else F.min_by
        text = F.to_json(F.struct(value.alias("v"))).alias("v")  # which also maps have
        rows = below.select(*keys, text, by.alias("o")).filter("o IS NOT NULL")
        several = (F.count_distinct("v") > 1).alias("several")
        of_order = rows.groupBy(*names, "o").agg(several)
        chosen = of_order.groupBy(*names).agg(choose("several", "o").alias("several"))
        if chosen.filter("several").first() is not None:
            return True
    return False


def _dependent(output: DataFrame, chosen: Callable[[Any], bool]) -> Dependent:
    plan = output._jdf.queryExecution().analyzed()
    ids, rows = _of_node(plan, chosen)
    return Dependent(frozenset(str(a.name()) for a in elements(plan.output()) if id_of(a) in ids), rows)


def _of_node(node: Any, chosen: Callable[[Any], bool]) -> tuple[frozenset[int], bool]:
    """The ids of the columns of a node that depend on the functions, and whether its rows do."""
    below = [_of_node(child, chosen) for child in elements(node.children())]
    ids, rows = frozenset[int]().union(*(of_child for of_child, _ in below)), any(of_rows for _, of_rows in below)
    match class_name(node):
        case "Aggregate":
            named = elements(node.aggregateExpressions())
        case "Project":
            named = elements(node.projectList())
        case _:  # it passes columns on as they are, and may choose rows by them
            chooses = bool(ids) and any(_depends(e, ids, chosen) for e in elements(node.expressions()))
            return ids, rows or chooses
    return ids.union(id_of(e) for e in named if _depends(e, ids, chosen)), rows


def _depends(expression: Any, ids: frozenset[int], chosen: Callable[[Any], bool]) -> bool:
    match class_name(expression):
        case "AttributeReference":
            return id_of(expression) in ids
        case "AggregateExpression":
            return chosen(expression.aggregateFunction())
        case _:
            return any(_depends(child, ids, chosen) for child in elements(expression.children()))
