"""The JVM classes and methods that ackwright_stream.spark_internals names exist in the supported Spark."""

from __future__ import annotations

import pyspark.daemon
import pytest
from pyspark.serializers import SpecialLengths
from pyspark.sql import SparkSession

from ackwright_stream import row_counts, transform
from ackwright_stream.spark_internals.state import closing_stores
from ackwright_stream.spark_internals.version import JVM_METHODS, require_supported_version


def methods(spark: SparkSession, name: str) -> set[str]:
    """The public methods of a class of the JVM. Raises Py4JJavaError if the class does not exist."""
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return {method.getName() for method in loader.loadClass(name).getMethods()}


def test_the_session_has_the_version(spark: SparkSession) -> None:
    require_supported_version(spark)


@pytest.mark.parametrize("name", sorted(JVM_METHODS))
def test_the_class_has_the_methods(spark: SparkSession, name: str) -> None:
    assert set(JVM_METHODS[name]) - methods(spark, name) == set()


def test_the_stores_of_ended_queries_can_be_closed(spark: SparkSession) -> None:
    """The names of those that are open are in a private field. test_stateful_replay.py closes some."""
    with closing_stores(spark) as close:
        close()


def test_control_a_method_that_does_not_exist_is_missed(spark: SparkSession) -> None:
    assert "plan" not in methods(spark, "org.apache.spark.sql.execution.QueryExecution")


def exists(spark: SparkSession, *names: str) -> bool:
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in names:
        try:
            loader.loadClass(name)
        except Exception:  # noqa: S112 (ClassNotFoundException, in py4j's wrapping)
            continue
        return True
    return False


LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"


@pytest.mark.parametrize("name", sorted(transform._STATELESS | set(transform._SQL_WORDS) | row_counts._KNOWN))
def test_the_step_of_a_logical_plan_exists(spark: SparkSession, name: str) -> None:
    assert exists(
        spark, f"{LOGICAL}.{name}", f"org.apache.spark.sql.catalyst.expressions.{name}"
    )  # PipeOperator is there


@pytest.mark.parametrize("name", sorted(transform._TIME))
def test_the_expression_exists(spark: SparkSession, name: str) -> None:
    assert exists(spark, f"org.apache.spark.sql.catalyst.expressions.{name}")


@pytest.mark.parametrize("name", sorted(row_counts._ROW_FOR_ROW))
def test_the_physical_step_exists(spark: SparkSession, name: str) -> None:
    execution = "org.apache.spark.sql.execution"
    assert exists(
        spark, *(f"{execution}{package}.{name}{suffix}" for package in ("", ".python") for suffix in ("Exec", ""))
    )


def test_the_python_side_exists() -> None:
    assert callable(pyspark.daemon.worker_main)
    assert callable(pyspark.daemon.manager)
    assert SpecialLengths.END_OF_STREAM < 0
