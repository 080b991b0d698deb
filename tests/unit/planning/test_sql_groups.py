"""The judgement of groups without Spark. The comparison with Spark is in tests/integration/spark/test_groups.py."""

from __future__ import annotations

import pytest

from ackwright.planning.sql_joins import StateTerms
from ackwright.planning.transform_sql import judge
from sql_texts import GROUP_COLUMNS, GROUPS, REFUSED_GROUPS, REFUSED_UPDATES

APPEND, UPDATE = StateTerms("at", append=True), StateTerms("at", append=False)


@pytest.mark.parametrize("sql", GROUPS)
def test_groups_that_the_watermark_ends_are_not_refused(sql: str) -> None:
    assert judge(sql, GROUP_COLUMNS, APPEND).problems == ()


@pytest.mark.parametrize(("sql", "at", "problem"), REFUSED_GROUPS)
def test_groups_that_no_watermark_ends_are_refused_at_their_place(sql: str, at: str, problem: str) -> None:
    [refused] = judge(sql, GROUP_COLUMNS, APPEND).problems
    assert problem in refused.problem
    assert sql[refused.offset :].startswith(at.split(" ", maxsplit=1)[0])


@pytest.mark.parametrize("sql", [sql for sql, *_ in REFUSED_GROUPS if "session_window" not in sql])
def test_with_update_they_are_not_refused(sql: str) -> None:
    assert judge(sql, GROUP_COLUMNS, UPDATE).problems == ()


@pytest.mark.parametrize(("sql", "at", "problem"), REFUSED_UPDATES)
def test_session_windows_need_append(sql: str, at: str, problem: str) -> None:
    [refused] = judge(sql, GROUP_COLUMNS, UPDATE).problems
    assert problem in refused.problem
    assert sql[refused.offset :].startswith(at)
    assert "append" in refused.remedy


@pytest.mark.parametrize("sql", [sql for sql in GROUPS if "(SELECT" not in sql])
def test_without_an_event_time_append_writes_nothing(sql: str) -> None:
    [refused] = judge(sql, GROUP_COLUMNS, StateTerms(None, append=True)).problems
    assert "no watermark ends its groups" in refused.problem
    assert "declare source.eventTime" in refused.remedy


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT key, CAST(count(*) AS STRING) AS value FROM (SELECT id AS key, sent FROM source) GROUP BY key",
        "SELECT id AS key, CAST(count(*) AS STRING) AS value FROM source GROUP BY ROLLUP(id)",
        "SELECT *, CAST(count(*) AS STRING) AS value FROM source GROUP BY 3",
    ],
)
def test_what_is_not_simple_is_left_to_the_job(sql: str) -> None:
    assert judge(sql, GROUP_COLUMNS, APPEND).problems == ()


def test_a_name_that_is_a_column_or_an_alias_is_left_to_the_job_if_the_columns_are_not_known() -> None:
    sql = "SELECT at AS id, CAST(count(*) AS STRING) AS value FROM source GROUP BY id"
    assert judge(sql, None, APPEND).problems == ()
    [refused] = judge(sql, GROUP_COLUMNS, APPEND).problems
    assert "no watermark ends its groups" in refused.problem
