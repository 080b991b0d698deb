"""The judgement of joins without Spark. The comparison with Spark is in tests/integration/spark/test_joins.py."""

from __future__ import annotations

import pytest

from ackwright.planning.sql_joins import StateTerms
from ackwright.planning.transform_sql import judge
from sql_texts import JOIN, JOIN_COLUMNS, JOINS, REFUSED_JOINS, joined

TIMED = StateTerms("at", append=True)
VIEW = {**JOIN_COLUMNS, "kafka": ""}


@pytest.mark.parametrize("sql", JOINS)
def test_a_join_within_a_range_of_time_is_not_refused(sql: str) -> None:
    assert judge(sql, VIEW, TIMED).problems == ()


@pytest.mark.parametrize(("sql", "at", "problem"), REFUSED_JOINS)
def test_another_join_is_refused_at_its_place(sql: str, at: str, problem: str) -> None:
    problems = judge(sql, VIEW, TIMED).problems
    assert (sql.index(at), True) in [(p.offset, problem in p.problem) for p in problems], problems


@pytest.mark.parametrize(
    ("condition", "endless"),
    [
        ("p.at >= o.at", "the records of o forever"),
        ("p.at <= o.at + INTERVAL 1 HOUR", "the records of p forever"),
        ("p.amount > o.amount", "the records of o and p forever"),
    ],
)
def test_the_side_that_is_kept_for_ever_is_named_with_the_remedy(condition: str, endless: str) -> None:
    [problem] = judge(joined(condition), VIEW, TIMED).problems
    assert endless in problem.problem
    assert problem.remedy.endswith("p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR")


@pytest.mark.parametrize(
    "condition",
    [
        "(p.at >= o.at OR p.amount = 'x')",
        "p.at >= o.at AND unix_timestamp(p.at) <= unix_timestamp(o.at) + 60",
        "p.at >= o.at AND p.at <= date_trunc('hour', o.at) + INTERVAL 1 HOUR",
        "p.at >= o.at AND at <= o.at",
        "p.at >= o.at AND NOT (p.at > o.at)",
    ],
)
def test_conditions_that_are_not_simple_are_left_to_the_job(condition: str) -> None:
    assert judge(joined(condition), VIEW, TIMED).problems == ()


@pytest.mark.parametrize(
    ("terms", "problem", "remedy"),
    [
        (None, "relates records to each other", "declare spec.state"),
        (StateTerms(None, append=True), "without a watermark", "declare source.eventTime"),
        (StateTerms("at", append=False), "state.outputMode update", "write append"),
    ],
)
def test_a_join_needs_state_a_watermark_and_append(terms: StateTerms | None, problem: str, remedy: str) -> None:
    [refused] = judge(JOIN, VIEW, terms).problems
    assert problem in refused.problem
    assert remedy in refused.remedy
