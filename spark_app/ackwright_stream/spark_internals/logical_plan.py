"""A frame's analysed logical plan, step by step: what a transform does, before any row is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.sql import Column, DataFrame, SparkSession

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_NOT_QUERIES = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement", f"{_LOGICAL}.CompoundBody")


@dataclass(frozen=True)
class Step:
    """One node of a logical plan."""

    java: Any  # org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

    @property
    def name(self) -> str:
        """The simple name of the node's class, such as Project."""
        return class_name(self.java)

    @property
    def inputs(self) -> int:
        return int(self.java.children().size())

    @property
    def has_subquery(self) -> bool:
        return int(self.java.subqueries().size()) > 0

    @property
    def in_one_group(self) -> bool:
        """Whether an Aggregate has no grouping."""
        return self.name == "Aggregate" and int(self.java.groupingExpressions().size()) == 0

    def expressions(self) -> Iterator[Expression]:
        """All expressions of the node, nested ones included."""
        remaining = elements(self.java.expressions())
        while remaining:
            expression = remaining.pop()
            yield Expression(expression)
            remaining.extend(elements(expression.children()))


@dataclass(frozen=True)
class Expression:
    """One node of an expression's tree."""

    java: Any  # org.apache.spark.sql.catalyst.expressions.Expression

    @property
    def name(self) -> str:
        """The simple name of the expression's class, such as CurrentTimestamp."""
        return class_name(self.java)

    @property
    def deterministic(self) -> bool:
        return bool(self.java.deterministic())


def steps(frame: DataFrame) -> Iterator[Step]:
    """The steps of a frame, a step before its inputs; those that read the source are last on their branch."""
    return (Step(node) for node in nodes(frame._jdf.queryExecution().analyzed()))


def command_name(spark: SparkSession, sql: str) -> str | None:
    """The name of the command that the text is, such as DropTable; None for a query.

    Raises PySparkException if it does not parse.
    """
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    gateway = spark.sparkContext._gateway
    return class_name(plan) if any(is_instance_of(gateway, plan, name) for name in _NOT_QUERIES) else None


def uses_source_column(frame: DataFrame, column: str) -> bool:
    """Whether a stateless frame uses a column of its source, after Spark's optimizer has removed unused columns."""
    optimizer = frame.sparkSession._jsparkSession.sessionState().optimizer()
    # Stateless, so the plan is one branch and the source is its last node.
    *plan, source = nodes(optimizer.execute(frame._jdf.queryExecution().analyzed()))
    attributes = [attribute for attribute in elements(source.output()) if attribute.name() == column]
    return any(node.references().contains(attribute) for attribute in attributes for node in plan)


def only_node(frame: DataFrame, name: str) -> Any:
    """The node of this class in a frame's analysed plan, which has one."""
    [node] = [node for node in nodes(frame._jdf.queryExecution().analyzed()) if class_name(node) == name]
    return node


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """The frame of a logical plan, which is no stream."""
    return DataFrame(spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def column_of(spark: SparkSession, expression: Any) -> Column:
    """The column that an expression of a plan is."""
    return Column(spark._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def id_of(expression: Any) -> int:
    """The number by which a plan refers to a column."""
    return int(expression.exprId().id())


def class_name(node: Any) -> str:
    """The simple name of the class of a node or an expression."""
    return str(node.getClass().getSimpleName())


def elements(sequence: Any) -> list[Any]:
    """Those of a Scala sequence."""
    return [sequence.apply(i) for i in range(sequence.size())]


def nodes(plan: Any) -> Iterator[Any]:
    """All nodes of a logical plan, a node before its children."""
    yield plan
    for child in elements(plan.children()):
        yield from nodes(child)
