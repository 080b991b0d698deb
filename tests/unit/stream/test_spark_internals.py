"""Only one package uses Spark's unpublished interfaces; it names Spark's version and the methods."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException, QueryContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from ackwright_stream.errors import JobError
from ackwright_stream.formats import format_of
from ackwright_stream.jobspec import Format, Reason
from ackwright_stream.spark_internals.version import JVM_METHODS, SPARK_VERSION, require_supported_version

ROOT = Path(__file__).parents[3]
JOB = ROOT / "spark_app" / "ackwright_stream"
INTERNALS = JOB / "spark_internals"
# Attributes of PySpark's objects that hold objects of the JVM, and modules that Spark does not document.
_PRIVATE_ATTRIBUTE = re.compile(r"^(_j(?!(obs?|oined|ava_flags)$)[a-z]\w*|_gateway|_sc|_to_java|_from_java)$")
_PRIVATE_MODULE = re.compile(r"^(py4j|pyspark\.(daemon|worker\w*|serializers|java_gateway|sql\.pandas|sql\.classic))\b")
_IN_TEXT = re.compile(r"\.(\w+)\b|^\s*(?:import|from)\s+([\w.]+)", re.MULTILINE)  # a program as a string
_PUBLISHED = (
    Column,
    DataFrame,
    SparkSession,
    SparkSession.Builder,
    DataStreamWriter,
    StreamingQuery,
    PySparkException,
    QueryContext,
)  # PySpark's classes
CHECKED = ("operator", "spark_app", "bench", "tools", "examples", "docs")


def private_uses(source: str) -> list[str]:
    """Names of Spark's unpublished interfaces in the text of a module."""
    return list(_private_uses(ast.parse(source)))


def _private_uses(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _PRIVATE_ATTRIBUTE.match(node.attr):
            yield node.attr
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _PRIVATE_MODULE.match(alias.name))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if _PRIVATE_MODULE.match(f"{node.module}.{alias.name}"):
                    yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for attribute, module in _IN_TEXT.findall(node.value):
                if _PRIVATE_ATTRIBUTE.match(attribute) or _PRIVATE_MODULE.match(module):
                    yield attribute or module


def test_only_spark_internals_uses_them() -> None:
    modules = [path for place in CHECKED for path in (ROOT / place).rglob("*.py")]
    outside = [path for path in modules if not path.is_relative_to(INTERNALS)]
    assert {path.relative_to(ROOT).parts[0] for path in outside} == set(CHECKED)
    uses = {str(path.relative_to(ROOT)): private_uses(path.read_text()) for path in outside}
    # py4j's published interface, for a JVM without Spark.
    without_spark = {"bench/kafka_streams.py": ["py4j.java_gateway.JavaGateway"]}
    assert {name: private for name, private in uses.items() if private} == without_spark


@pytest.mark.parametrize(
    "source",
    [
        "df._jdf.queryExecution()",
        "spark._jvm.scala.Option",
        "spark.sparkContext._gateway",
        "from py4j.protocol import Py4JJavaError",
        "import pyspark.daemon",
        "from pyspark import worker",
        "from pyspark.sql.pandas.types import from_arrow_schema",
        "PROGRAM = 'frame._jdf.queryExecution()'",
        'PROGRAM = """\nimport sys\nfrom py4j.protocol import Py4JJavaError\n"""',
    ],
)
def test_control_each_use_is_recognised(source: str) -> None:
    assert private_uses(source)
    assert not private_uses("from pyspark.sql import DataFrame\nfrom pyspark.errors import PySparkException\ndf.schema")


def test_every_java_method_that_is_called_is_named_with_its_class() -> None:
    """Covers names in camel case, which mark a call into the JVM; the integration test asks the JVM for all."""
    named = {method for methods in JVM_METHODS.values() for method in methods}
    in_every_object = {"getClass", "getDeclaredField", "getSimpleName", "setAccessible", "toString"}
    called = set()
    for path in INTERNALS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called.add(node.func.attr)
    python = {"getLogger", "setLevel"} | {name for kind in _PUBLISHED for name in dir(kind)}
    java = {name for name in called if re.match(r"^[a-z]+[A-Z]", name)} - python - in_every_object
    scala = {"isDefined", "toIndexedSeq", "toSeq"}  # of Option, Seq and Map
    assert {"queryExecution", "numOutputRows"} & java == {"queryExecution"}
    assert java - scala <= named


def test_the_version_is_the_pinned_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"pyspark=={SPARK_VERSION}" in project["optional-dependencies"]["spark"]


@pytest.mark.parametrize("module", ["spark", "pyspark"])
def test_another_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    class Session:
        version = SPARK_VERSION

    session: Any = Session()
    require_supported_version(session)
    if module == "spark":
        session.version = "4.0.2"
    else:
        monkeypatch.setattr(pyspark, "__version__", "4.0.2")
    with pytest.raises(JobError, match=rf"4\.0\.2.*install pyspark=={re.escape(SPARK_VERSION)}") as e:
        require_supported_version(session)
    assert e.value.reason is Reason.UNEXPECTED


def test_every_format_has_a_module_and_an_unknown_one_falls_through_to_none() -> None:
    modules = {name: getattr(format_of(name), "__name__", "") for name in Format}
    assert modules == {name: f"ackwright_stream.formats.{name.name.lower()}" for name in Format}
    unknown: Any = "thrift"
    with pytest.raises(AssertionError, match="thrift"):
        format_of(unknown)
