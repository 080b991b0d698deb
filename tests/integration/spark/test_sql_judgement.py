"""What `ackwright plan` refuses in a transform without Spark, Spark and the job refuse, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

import spark_functions
from ackwright.planning.spark_functions import FUNCTIONS
from ackwright.planning.transform_sql import judge
from ackwright_stream import source, transform
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import REFUSED_FUNCTIONS, Transform
from ackwright_stream.spark_internals import logical_plan
from integration.support.raw_records import JOB
from sql_texts import ACCEPTED, REFUSED, mutations

VIEW = {"key": "BINARY", "value": "BINARY", "kafka": ""}
MUTATIONS = 400  # of texts that Spark accepts; most of them are wrong


@pytest.fixture(scope="module")
def refusal(spark: SparkSession) -> Callable[[str], str | None]:
    """Why the job refuses a text; None if it does not."""
    records = source.parse(source.read_stream(spark, JOB, "earliest"), JOB.source)

    def refusal_(sql: str) -> str | None:
        try:
            transform.run_transform(spark, records, Transform(sql=sql))
        except JobError as e:
            return e.message
        except Py4JJavaError as e:  # of an unknown collation, for instance
            return str(e)
        return None

    return refusal_


def test_the_list_of_functions_is_that_of_sparks_registry(spark: SparkSession) -> None:
    registered = spark_functions.registered(spark)
    # The job removes functions from the registry of the session; tests of this process may have done so.
    assert FUNCTIONS - registered <= set(REFUSED_FUNCTIONS)
    assert registered <= FUNCTIONS
    assert spark_functions.PLACE.read_text() == spark_functions.text(FUNCTIONS, spark.version)


def test_spark_parses_every_accepted_text(spark: SparkSession) -> None:
    wrong = []
    for sql in ACCEPTED:
        try:
            logical_plan.command_name(spark, sql)
        except ParseException as e:
            wrong.append((sql, (e.getMessage() or "").strip().splitlines()[0]))
    assert not wrong, "\n".join(map(str, wrong))


def test_the_job_refuses_every_refused_text(refusal: Callable[[str], str | None]) -> None:
    assert [sql for sql, _ in REFUSED if refusal(sql) is None] == []


def test_what_is_refused_without_spark_is_refused_by_the_job(refusal: Callable[[str], str | None]) -> None:
    """Control: of the mutations many are refused, and many are not."""
    texts = [*ACCEPTED, *mutations(MUTATIONS, seed=1)]
    refused = [sql for sql in texts if judge(sql, VIEW).problems]
    wrong = [(sql, judge(sql, VIEW).problems[0]) for sql in refused if refusal(sql) is None]
    assert not wrong, "\n".join(f"{sql}\n    {problem}" for sql, problem in wrong)
    assert len(refused) > MUTATIONS / 4
    assert len(texts) - len(refused) > MUTATIONS / 4


def _examples_of_functions(spark: SparkSession) -> Iterator[str]:
    """The examples in Spark's documentation of its functions, on the records of the source."""
    for [name] in spark.sql("SHOW SYSTEM FUNCTIONS").collect():
        if not name.isidentifier():
            continue  # operators
        usage = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED {name}").collect())
        for sql in re.findall(r"^\s*> (SELECT\b.*?);$", usage, re.DOTALL | re.MULTILINE):
            yield sql if re.search(r"\bFROM\b", sql) else f"{sql} FROM source"


def test_no_example_of_sparks_own_documentation_is_refused_that_the_job_accepts(
    spark: SparkSession, refusal: Callable[[str], str | None]
) -> None:
    """Control: the job accepts many of them."""
    texts = list(_examples_of_functions(spark))
    refused = [sql for sql in texts if judge(sql, VIEW).problems]
    wrong = [(sql, judge(sql, VIEW).problems[0]) for sql in refused if refusal(sql) is None]
    assert not wrong, "\n".join(f"{sql}\n    {problem}" for sql, problem in wrong)
    assert sum(refusal(sql) is None for sql in texts[::10]) > 30
