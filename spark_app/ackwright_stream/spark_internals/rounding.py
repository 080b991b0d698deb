"""For the audit: which columns of an output are sums or averages of fractions, and how far two runs may differ in them.

Numbers of type DOUBLE are rounded at each addition, so their sum depends on the order. The sum of n numbers x differs
from the exact one, whatever the order, by at most n u Σ|x|, where u = 2⁻⁵³ (Higham, Accuracy and Stability of Numerical
Algorithms, chapter 4). So two runs differ by at most 2 n u Σ|x|, and relative to the sum by 2 n u Σ|x| / |Σx|.

Spark's average of whole numbers is that of their sum as a DOUBLE, which is exact up to 2⁵³.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
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

# The largest relative difference of two numbers that are taken for equal.
TOLERANCE = 1e-9
# Of FLOAT: two numbers within TOLERANCE may be rounded to neighbours, which differ by at most 2⁻²³.
TOLERANCE_OF_FLOAT = 2.0**-23
_UNIT = 2.0**-53
_FRACTIONS = frozenset({"float", "double"})
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_EXACT = 2.0**53  # up to which a DOUBLE is every whole number
# Their result depends on the order of their input, if that has fractions. The first two are sums.
_SUMS = ("Sum", "Average")
_ROUNDED = frozenset({*_SUMS, "StddevPop", "StddevSamp", "VariancePop", "VarianceSamp", "Corr", "Skewness"})
# Expressions whose result has their operands as they are.
_CARRIERS = frozenset({"Alias", "Coalesce", "CreateNamedStruct", "StructsToJson"})
_OF_CAST = {"float": TOLERANCE_OF_FLOAT, **dict.fromkeys(("double", "string", "binary"), 0.0)}  # at least

# By the id of a column, its tolerance.
_Columns = Mapping[int, float]


def rounds(expression: Any, *, large: bool = False) -> bool:
    """Whether a function's result depends on the order of its input. expression: an AggregateFunction.

    large: whether averages of whole numbers do, as have_large_averages() returns.
    """
    kind = class_name(expression)
    types = {str(child.dataType().typeName()) for child in elements(expression.children())}
    return (kind in _ROUNDED and bool(types & _FRACTIONS)) or (large and kind == "Average" and bool(types & _INTEGERS))


def have_large_averages(spark: SparkSession, output: DataFrame) -> bool:
    """Whether averages of whole numbers in an output with an Aggregate are of sums that a DOUBLE may round."""
    aggregate = only_node(output, "Aggregate")
    averages = [e.java for e in Step(aggregate).expressions() if rounds(e.java, large=True) and not rounds(e.java)]
    if not averages:
        return False
    numbers = [column_of(spark, average.child()).cast("double") for average in averages]
    sizes = [F.sum(F.abs(number)).alias(f"size{i}") for i, number in enumerate(numbers)]
    largest = _groups(spark, aggregate).agg(*sizes).agg(*(F.max(f"size{i}") for i in range(len(sizes)))).first()
    return largest is not None and any(size is not None and not size <= _EXACT for size in largest)


def rounded_columns(output: DataFrame, *, large: bool = False) -> Mapping[str, float] | None:
    """The columns of an output that are sums or averages of fractions, with their relative tolerances. large: as for
    rounds().

    A column may have such numbers within a struct, or within text of JSON. None if it is not known how far two runs
    differ: another function uses such a number, or a condition compares it.
    """
    plan = output._jdf.queryExecution().analyzed()
    columns = _of_node(plan, large=large)
    if columns is None:
        return None
    tolerances = {str(a.name()): columns.get(id_of(a), 0.0) for a in elements(plan.output())}
    return {name: tolerance for name, tolerance in tolerances.items() if tolerance}


def largest_difference(spark: SparkSession, output: DataFrame, *, large: bool = False) -> float:
    """The bound of the relative difference of two runs, over all groups and all sums of an output with an Aggregate.

    It is infinite, or no number, if numbers of both signs cancel, or are not finite. large: as for rounds().
    """
    aggregate = only_node(output, "Aggregate")
    functions = [e.java for e in Step(aggregate).expressions() if rounds(e.java, large=large)]
    of_group = _groups(spark, aggregate).agg(
        F.count(F.lit(1)).alias("n"),
        *(named for i, function in enumerate(functions) for named in _with_size(spark, function, i)),
    )
    differences = [_difference(i) for i in range(len(functions))]
    largest = F.greatest(*differences) if len(differences) > 1 else differences[0]
    row = of_group.agg(F.max(largest)).first()
    return 0.0 if row is None or row[0] is None else float(row[0])


def _groups(spark: SparkSession, aggregate: Any) -> GroupedData:
    """The input of an Aggregate in its groups."""
    keys = [column_of(spark, expression) for expression in elements(aggregate.groupingExpressions())]
    return frame_of(spark, aggregate.child()).groupBy(*keys)


def _with_size(spark: SparkSession, function: Any, number: int) -> Sequence[Column]:
    """The sum or average, and that of the numbers without their signs."""
    value = column_of(spark, function.child()).cast("double")
    of_all = F.sum if class_name(function) == "Sum" else F.avg
    return of_all(value).alias(f"result{number}"), of_all(F.abs(value)).alias(f"size{number}")


def _difference(number: int) -> Column:
    result, size = F.abs(f"result{number}"), F.col(f"size{number}")
    relative = F.when(size == 0, 0.0).when(result == 0, float("inf")).otherwise(F.try_divide(size, result))
    return F.coalesce(2 * F.col("n") * F.lit(_UNIT) * relative, F.lit(0.0))


def _of_node(node: Any, *, large: bool) -> _Columns | None:
    """Of the output of a node; None as in rounded_columns()."""
    below: dict[int, float] = {}
    for child in elements(node.children()):
        of_child = _of_node(child, large=large)
        if of_child is None:
            return None
        below |= of_child
    match class_name(node):
        case "Aggregate":
            return None if below else _of_expressions(elements(node.aggregateExpressions()), {}, large=large)
        case _ if not below:
            return {}
        case "Project":
            return _of_expressions(elements(node.projectList()), below, large=large)
        case "Filter":
            return below if _of_expression(node.condition(), below, large=large) == 0 else None
        case "SubqueryAlias":
            return below
        case _:
            return None


def _of_expressions(expressions: Sequence[Any], below: _Columns, *, large: bool) -> _Columns | None:
    columns: dict[int, float] = {}
    for expression in expressions:
        tolerance = _of_expression(expression, below, large=large)
        if tolerance is None:
            return None
        if tolerance:
            columns[id_of(expression)] = tolerance
    return columns


def _of_expression(expression: Any, below: _Columns, *, large: bool) -> float | None:
    """The tolerance of its value; 0: it depends on no such number. None as in rounded_columns()."""
    kind = class_name(expression)
    if kind == "AttributeReference":
        return below.get(id_of(expression), 0.0)
    if kind == "AggregateExpression":
        function = expression.aggregateFunction()
        if not rounds(function, large=large):
            return 0.0
        one_sum = class_name(function) in _SUMS and not expression.isDistinct() and not expression.filter().isDefined()
        return TOLERANCE if one_sum else None
    tolerance = 0.0
    for child in elements(expression.children()):
        of_child = _of_expression(child, below, large=large)
        if of_child is None:
            return None
        tolerance = max(tolerance, of_child)
    if not tolerance:
        return 0.0
    if kind == "Cast":
        at_least = _OF_CAST.get(str(expression.dataType().typeName()))
        return None if at_least is None else max(tolerance, at_least)
    return tolerance if kind in _CARRIERS else None
