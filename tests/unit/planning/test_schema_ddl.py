"""The judgement of source.schema without Spark."""

from __future__ import annotations

import pytest

from ackwright.planning.schema_ddl import read


@pytest.mark.parametrize(
    ("ddl", "columns"),
    [
        ("id BIGINT, name STRING", {"id": "BIGINT", "name": "STRING"}),
        ("id: long not null comment 'the id', `my col` decimal(10, 2)", {"id": "BIGINT", "my col": "DECIMAL"}),
        ("a STRUCT<b: INT, c: ARRAY<MAP<STRING, INT>>>, d DATE", {"a": "", "d": "DATE"}),
        ("date DATE, value VARCHAR(10)", {"date": "DATE", "value": "STRING"}),
    ],
)
def test_columns(ddl: str, columns: dict[str, str]) -> None:
    assert read(ddl).columns == columns
    assert read(ddl).problems == ()


@pytest.mark.parametrize(
    ("ddl", "at", "words"),
    [
        ("id INTT", "INTT", "did you mean INT?"),
        ("id BIGINT, name STRNG", "STRNG", "did you mean STRING?"),
        ("a ARRAY<STRUCT<b: DUOBLE>>", "DUOBLE", "did you mean DOUBLE?"),
        ("id, name STRING", "id", "write id STRING"),
        ("id BIGINT name STRING", "name", "no comma"),
        ("kafka STRING", "kafka", "rename it"),
        ("INT", "INT", "write columns"),
    ],
)
def test_what_spark_refuses(ddl: str, at: str, words: str) -> None:
    [problem] = read(ddl).problems
    assert problem.offset == ddl.index(at)
    assert words in f"{problem.problem}; {problem.remedy}"


@pytest.mark.parametrize(
    "ddl",
    [
        "a POINT3D",
        "a STRING COLLATE UTF8_LCASE",
        "a INTERVAL DAY TO SECOND",
        "a DATE DEFAULT DATE '2026-01-01'",
        "a (",
        "a STRING, b INT, `a` INT",
        "",
    ],
)
def test_what_is_not_understood_passes(ddl: str) -> None:
    schema = read(ddl)
    assert (schema.columns, schema.problems) == (None, ())
