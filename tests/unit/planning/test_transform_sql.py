"""The judgement of transform.sql without Spark. The comparison with Spark is in tests/integration/spark."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from ackwright.planning import sql_parser
from ackwright.planning.sql_joins import StateTerms
from ackwright.planning.transform_sql import judge
from sql_texts import ACCEPTED, NOT_BUILT, REFUSED, REFUSED_JOINS, REFUSED_UPDATES, mutations
from unit.documents import ROOT

VIEW = {"key": "BINARY", "value": "BINARY", "kafka": ""}


@pytest.mark.parametrize("sql", ACCEPTED)
def test_what_spark_parses_is_not_refused(sql: str) -> None:
    assert judge(sql, None).problems == ()


@pytest.mark.parametrize(("sql", "at"), REFUSED)
def test_what_is_wrong_is_refused_at_its_place(sql: str, at: str) -> None:
    offsets = [problem.offset for problem in judge(sql, VIEW).problems]
    assert sql.index(at) in offsets or sql.rindex(at) in offsets


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("conct", "did you mean concat?"), ("Uper", "did you mean upper?"), ("zzzz", "use a function of Spark SQL")],
)
def test_a_misspelt_function_gets_a_suggestion(name: str, remedy: str) -> None:
    [problem] = judge(f"SELECT {name}(key, 'x') AS value FROM source", VIEW).problems  # noqa: S608
    assert (problem.problem, problem.remedy) == (f"calls {name}, and Spark has no such function", remedy)
    assert problem.offset == len("SELECT ")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT /*+ COALESCE2(3) */ value FROM source",
        "SELECT catalog.schema.my_udf(value) AS value FROM source",
        "SELECT timestampadd(HOUR, 1, kafka.timestamp) AS value FROM source",
    ],
)
def test_what_is_no_function_of_the_registry_and_may_be_right_is_not_refused(sql: str) -> None:
    assert judge(sql, None).problems == ()


def test_of_unknown_columns_there_is_no_finding() -> None:
    assert judge("SELECT nothing AS value FROM source", None).problems == ()
    assert judge("SELECT nothing AS value FROM source", VIEW).problems != ()


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT key, value FROM source", ["key", "value"]),
        ("SELECT * FROM source", ["key", "value", "kafka"]),
        ("SELECT s.Value AS V FROM source s", ["v"]),
        ("SELECT * FROM (SELECT key AS k FROM source)", ["k"]),
        ("WITH c(a, b, d) AS (SELECT * FROM source) SELECT * FROM c", ["a", "b", "d"]),
        ("SELECT value || 'x' FROM source", [None]),
        ("SELECT my_catalog.db.my_function(value) FROM source", None),  # it may return several columns
        ("SELECT * EXCEPT (kafka) FROM source", None),
        ("SELECT kafka.* FROM source", None),
        ("SELECT * FROM source LATERAL VIEW explode(array(1)) t AS x", None),
        ("SELECT CAST(value AS STRING) FROM source", ["value"]),
        ("SELECT s.value::string, try_cast(key AS INT) AS n FROM source s", ["value", "n"]),
        ("SELECT CAST(kafka.topic AS STRING) FROM source", None),
        ("SELECT explode(array(key)) FROM source", None),
    ],
)
def test_columns_of_the_output(sql: str, names: list[str | None] | None) -> None:
    output = judge(sql, VIEW).output
    assert (None if output is None else [column.name for column in output]) == names


def test_aggregates_have_no_name_of_their_own() -> None:
    sql = "SELECT key, concat_ws(' ', key, 'x'), count(*), max(value) FILTER (WHERE true) AS m FROM source GROUP BY key"
    output = judge(sql, VIEW, StateTerms(None, append=False)).output
    assert output is not None
    assert [column.name for column in output] == ["key", None, None, "m"]


def test_types_of_plain_columns_are_known() -> None:
    output = judge("SELECT id AS key, id + 1 AS n, kafka.offset AS o FROM source", {"id": "BIGINT", "kafka": ""}).output
    assert output is not None
    assert [column.type for column in output] == ["BIGINT", "", ""]


def _texts_of_tests() -> Iterator[str]:
    """Every SELECT that stands in a test or a page."""
    query = re.compile(r"\s*(SELECT|WITH \w+ AS|FROM source)\b.*\bsource\b", re.DOTALL)
    for file in sorted((ROOT / "tests").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        texts = (node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in parts)
        yield from (text for text in texts if isinstance(text, str) and query.match(text))
    for page in sorted((ROOT / "docs").rglob("*.md")):
        blocks = re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL)
        yield from (block for block in blocks if query.match(block))  # others are for a database


def test_no_transform_of_the_repository_is_refused_but_those_that_the_job_refuses() -> None:
    registered_by_a_test = "thrice("
    texts = {sql for sql in _texts_of_tests() if registered_by_a_test not in sql}
    terms = (None, StateTerms("at", append=True), StateTerms("at", append=False))
    refused = {sql for sql in texts if all(judge(sql, None, of_state).problems for of_state in terms)}
    # Their tests say that the job refuses them.
    assert refused - {sql for sql, *_ in (*REFUSED, *NOT_BUILT, *REFUSED_JOINS, *REFUSED_UPDATES)} == set()
    assert len(texts - refused) > 100


def test_every_text_is_judged_without_a_crash() -> None:
    """Control: sqlglot itself crashes at one of them, with too few arguments of map()."""
    for sql in ("SELECT map('a', 1, 'b') AS value FROM source", *mutations(2_000, seed=2)):
        judge(sql, VIEW)


# Short texts for which sqlglot takes minutes or more, or which return more columns than fit into memory.
HOSTILE = (
    "SELECT " + "struct(" * 40,
    "SELECT " + "struct(" * 40 + "value" + ")" * 40 + " AS value FROM source",
    "SELECT value FROM source " + "JOIN source " * 60,
    "SELECT CAST(value AS " + "MAP<INT, " * 300 + "INT" + ">" * 300 + ") AS value FROM source",
    "SELECT " + "(" * 3_000 + "value" + ")" * 3_000 + " AS value FROM source",
    "SELECT " + "value || " * 10_000 + "value AS value FROM source",
)


@pytest.mark.parametrize("sql", HOSTILE, ids=range(len(HOSTILE)))
def test_a_text_that_takes_too_much_work_is_not_judged(sql: str) -> None:
    judgement = judge(sql, VIEW)
    assert judgement.problems == ()
    assert judgement.unread is not None
    assert "too long" in judgement.unread.problem or "too deeply" in judgement.unread.problem


def test_without_the_limit_of_work_the_text_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the limit, and nothing else, ends the work on such a text."""
    sql = "SELECT " + "struct(" * 10 + "value" + ")" * 10 + " AS value FROM source"
    assert judge(sql, VIEW).unread is not None
    monkeypatch.setattr(sql_parser, "_STEPS", 1_000_000)
    assert judge(sql, VIEW).unread is None


def test_columns_that_each_query_doubles_are_not_known() -> None:
    """Control: those of a few such queries are."""

    def doubled(times: int) -> str:
        queries = ("c0 AS (FROM source SELECT *)", *(f"c{i + 1} AS (FROM c{i} SELECT *, *)" for i in range(times)))
        return f"WITH {', '.join(queries)} FROM c{times} SELECT *"

    assert judge(doubled(400), VIEW).output is None
    output = judge(doubled(3), VIEW).output
    assert output is not None
    assert len(output) == 3 * 2**3


def test_a_text_has_at_most_ten_problems() -> None:
    for column in ("max(value)", "unknown"):
        assert len(judge("SELECT " + f"{column}, " * 500 + "key FROM source", VIEW).problems) == 10


@pytest.mark.parametrize("sql", ["SELECT key, value FROM source", *(sql for sql, _ in REFUSED)])
def test_what_is_judged_has_no_warning(sql: str) -> None:
    assert judge(sql, VIEW).unread is None
