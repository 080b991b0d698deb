"""The audit of a table reports each kind of damage, and none where there is none.

psql writes what a job would write.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.audit_report import Report
from ackwright_stream.audit_sinks.postgres import TableReader
from ackwright_stream.errors import JobError
from ackwright_stream.failures import cause
from ackwright_stream.jobspec import Format, Guarantee, JobSpec, Reason, Transform
from ackwright_stream.reports import Verdict
from integration.support.audited import Pipeline, Record
from integration.support.postgres import Database
from integration.support.postgres_stores import SESSION

POSITIONS = """
CREATE SCHEMA ackwright;
CREATE TABLE ackwright.positions ("group" text, topic text, partition int, "offset" bigint, first_offset bigint,
    recreated boolean NOT NULL DEFAULT false)
"""
ROWS = ["(1, 'a', 1.5, '2026-01-02 03:04:05.000006+00', '{\"x\": 1}')", "(2, 'ü', NULL, NULL, NULL)"]
SQL = """
SELECT CAST(CAST(key AS STRING) AS INT) AS id, CAST(value AS STRING) AS v,
    IF(value = X'61', CAST('1.5' AS DECIMAL(4, 1)), NULL) AS d,
    IF(value = X'61', TIMESTAMP '2026-01-02 03:04:05.000006Z', NULL) AS t,
    IF(value = X'61', '{"x":1}', NULL) AS j FROM source
"""


class Audited:
    """A pipeline into a table, whose job the tests play."""

    def __init__(self, kafka: EmbeddedKafka, spark: SparkSession, database: Database, columns: str, sql: str) -> None:
        self.source, self.spark, self.database = Pipeline(kafka.bootstrap_servers, spark), spark, database
        database.sql(f"{POSITIONS}; CREATE TABLE rows ({columns})")
        self.sql, self.sent = sql, 0

    def send(self, *records: tuple[str, str | None]) -> None:
        self.source.produce("in", [Record(k.encode(), None if v is None else v.encode()) for k, v in records])
        self.sent += len(records)

    def passed(self, offset: int) -> None:
        """Sets the position of the partition with the records."""
        topic = self.source.topic("in")
        values = f"('{self.source.name}', '{topic}', 0, {offset}, 0), ('{self.source.name}', '{topic}', 1, 0, 0)"
        self.database.sql(f"DELETE FROM ackwright.positions; INSERT INTO ackwright.positions VALUES {values}")  # noqa: S608

    def job(self, guarantee: Guarantee = Guarantee.EXACTLY_ONCE, **fields: Any) -> JobSpec:
        """fields: of the sink."""
        return replace(
            self.source.job,
            guarantee=guarantee,
            transform=Transform(sql=self.sql),
            sink=self.database.sink(session=SESSION, **fields),
        )

    def audit(self, guarantee: Guarantee = Guarantee.EXACTLY_ONCE, **fields: Any) -> Report:
        return audit(self.spark, self.job(guarantee, **fields))


def counts(report: Report) -> tuple[int, int, int, int, int]:
    return report.expected, report.delivered, report.lost, report.duplicated, report.unexpected


def test_rows_are_compared_by_their_content(kafka: EmbeddedKafka, spark: SparkSession, database: Database) -> None:
    columns = "id int, v text, d numeric(10, 2), t timestamptz, j jsonb, own int DEFAULT 7"
    audited = Audited(kafka, spark, database, columns, SQL)

    def write(*rows: str) -> None:
        database.sql(f"TRUNCATE rows; INSERT INTO rows VALUES {', '.join(rows)}")  # noqa: S608

    audited.send(("1", "a"), ("2", "ü"), ("2", "ü"))
    audited.passed(3)
    write(*ROWS, ROWS[1])
    assert audited.audit().verdict is Verdict.HELD
    assert counts(audited.audit()) == (3, 3, 0, 0, 0)
    write(*ROWS)
    report = audited.audit()
    assert (counts(report), report.verdict) == ((3, 2, 1, 0, 0), Verdict.BROKEN)
    assert '"id":2' in str(report.offending[0].value)
    write(*ROWS, ROWS[1], ROWS[0], "(9, 'z', NULL, NULL, NULL)")
    assert counts(audited.audit()) == (3, 5, 0, 1, 1)
    assert audited.audit(Guarantee.AT_LEAST_ONCE).verdict is Verdict.BROKEN
    write(*ROWS, ROWS[1], ROWS[0])
    assert audited.audit(Guarantee.AT_LEAST_ONCE).verdict is Verdict.HELD


def test_rows_that_the_position_has_not_passed_are_explained_only_under_at_least_once(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    audited = Audited(
        kafka, spark, database, "id int, v text", "SELECT 1 AS id, CAST(value AS STRING) AS v FROM source"
    )
    audited.send(("1", "a"), ("1", "b"))
    audited.passed(1)
    database.sql("INSERT INTO rows VALUES (1, 'a'), (1, 'b')")
    assert counts(audited.audit()) == (1, 2, 0, 0, 1)
    assert counts(audited.audit(Guarantee.AT_LEAST_ONCE)) == (1, 2, 0, 0, 0)


UPSERT = """
SELECT CAST(CAST(key AS STRING) AS INT) AS id, CAST(substr(CAST(value AS STRING), 1, 1) AS INT) AS at,
    substr(CAST(value AS STRING), 2) AS v, value IS NULL AS gone FROM source
"""


def test_an_upsert_is_compared_by_key(kafka: EmbeddedKafka, spark: SparkSession, database: Database) -> None:
    audited = Audited(kafka, spark, database, "id int PRIMARY KEY, at int, v text", UPSERT)
    fields: dict[str, Any] = {"upsert": True, "key": ("id",), "deleted_column": "gone"}

    def table(*rows: str) -> None:
        database.sql("TRUNCATE rows")
        database.sql(f"INSERT INTO rows VALUES {', '.join(rows)}")  # noqa: S608

    audited.send(("1", "2a"), ("1", "1b"), ("2", "1c"), ("3", "1d"), ("3", None))
    audited.passed(5)
    table("(1, 1, 'b')", "(2, 1, 'c')")
    report = audited.audit(**fields)
    assert (counts(report), report.verdict) == ((3, 2, 0, 0, 0), Verdict.HELD)
    table("(1, 2, 'a')", "(2, 1, 'c')", "(3, 1, 'd')")  # the last change of 1 and of 3 is missing
    assert counts(audited.audit(**fields)) == (3, 3, 2, 0, 0)
    table("(1, 1, 'b')", "(9, 9, 'z')")
    assert counts(audited.audit(**fields)) == (3, 2, 1, 0, 1)


def test_an_upsert_with_a_version_is_compared_by_the_newest(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    sql = UPSERT.replace(", value IS NULL AS gone", "")
    audited = Audited(kafka, spark, database, "id int PRIMARY KEY, at int, v text", sql)
    fields: dict[str, Any] = {"upsert": True, "key": ("id",), "version_column": "at"}
    audited.send(("1", "2a"), ("1", "1b"))
    audited.passed(2)
    database.sql("INSERT INTO rows VALUES (1, 2, 'a')")
    assert audited.audit(**fields).verdict is Verdict.HELD
    database.sql("UPDATE rows SET at = 1, v = 'b'")
    assert counts(audited.audit(**fields)) == (1, 1, 1, 0, 0)


ONE_COLUMN = "SELECT CAST(value AS STRING) AS v FROM source"


def test_a_float_is_compared_as_a_double_precision_holds_it(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    audited = Audited(kafka, spark, database, "f double precision", "SELECT CAST(0.1 AS FLOAT) AS f FROM source")
    audited.send(("1", "a"))
    audited.passed(1)
    database.sql("INSERT INTO rows VALUES (0.1::real)")
    assert counts(audited.audit()) == (1, 1, 0, 0, 0)


def test_times_are_compared_whatever_the_time_zone_of_the_session(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    sql = "SELECT TIMESTAMP '2026-03-08 07:30:00.000001Z' AS t, TIMESTAMP_NTZ '2026-03-08 02:30:00' AS n FROM source"
    audited = Audited(kafka, spark, database, "t timestamptz, n timestamp", sql)
    audited.send(("1", "a"))
    audited.passed(1)
    database.sql("INSERT INTO rows VALUES ('2026-03-08 07:30:00.000001+00', '2026-03-08 02:30:00')")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # where the clock has no 02:30 on that day
    try:
        assert counts(audited.audit()) == (1, 1, 0, 0, 0)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_rows_of_a_topic_that_was_recreated_are_not_judged(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    audited = Audited(kafka, spark, database, "v text", ONE_COLUMN)
    audited.send(("1", "a"))
    audited.passed(1)
    database.sql("UPDATE ackwright.positions SET recreated = true; INSERT INTO rows VALUES ('a'), ('old')")
    report = audited.audit()
    assert (counts(report), report.unjudged, report.verdict) == ((1, 2, 0, 0, 0), 1, Verdict.UNPROVEN)
    assert "may be output of the old one" in report.doubts[0]


def test_a_version_newer_than_those_that_are_left_is_not_judged(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    sql = UPSERT.replace(", value IS NULL AS gone", "")
    audited = Audited(kafka, spark, database, "id int PRIMARY KEY, at int, v text", sql)
    fields: dict[str, Any] = {"upsert": True, "key": ("id",), "version_column": "at"}
    audited.send(("1", "5e"), ("1", "2a"))
    audited.passed(2)
    audited.source.delete("in", 0, before=1)
    database.sql("INSERT INTO rows VALUES (1, 5, 'e')")
    report = audited.audit(**fields)
    assert (counts(report), report.unjudged, report.verdict) == ((1, 1, 0, 0, 0), 1, Verdict.UNPROVEN)
    database.sql("UPDATE rows SET at = 1")  # which the record that is left replaces
    report = audited.audit(**fields)
    assert (report.lost, report.verdict) == (1, Verdict.BROKEN)


def test_a_late_row_with_a_lower_version_does_not_stand_for_the_newest(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    sql = UPSERT.replace(", value IS NULL AS gone", "")
    audited = Audited(kafka, spark, database, "id int PRIMARY KEY, at int, v text", sql)
    fields: dict[str, Any] = {"upsert": True, "key": ("id",), "version_column": "at"}
    audited.send(("1", "2a"), ("1", "1b"), ("1", "3c"))
    audited.passed(1)
    database.sql("INSERT INTO rows VALUES (1, 1, 'b')")
    assert counts(audited.audit(Guarantee.AT_LEAST_ONCE, **fields)) == (1, 1, 1, 0, 0)
    database.sql("UPDATE rows SET at = 3, v = 'c'")
    assert counts(audited.audit(Guarantee.AT_LEAST_ONCE, **fields)) == (1, 1, 0, 0, 0)


def test_a_row_that_the_table_refuses_is_lost_or_not_judged(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    audited = Audited(kafka, spark, database, "v varchar(1)", ONE_COLUMN)
    audited.send(("1", "a"), ("1", "ab"), ("1", "c"))
    database.sql("INSERT INTO rows VALUES ('a'), ('c')")
    audited.passed(1)
    report = audited.audit(Guarantee.AT_LEAST_ONCE)
    assert (counts(report), report.verdict) == ((1, 2, 0, 0, 0), Verdict.UNPROVEN)
    assert "does not take 1 row" in report.doubts[0]
    audited.passed(3)
    report = audited.audit(Guarantee.AT_LEAST_ONCE)
    assert (counts(report), report.verdict) == ((3, 2, 1, 0, 0), Verdict.BROKEN)
    assert report.offending[0].value == '{"v": "ab"}'


def test_a_pipeline_that_never_ran_and_a_role_with_time_outs(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    audited = Audited(kafka, spark, database, "v text", ONE_COLUMN)
    database.sql("ALTER ROLE CURRENT_USER SET idle_in_transaction_session_timeout = 100")
    assert counts(audited.audit()) == (0, 0, 0, 0, 0)
    database.sql("DROP SCHEMA ackwright CASCADE; DROP TABLE rows")
    assert counts(audited.audit()) == (0, 0, 0, 0, 0)


def test_columns_have_any_name(kafka: EmbeddedKafka, spark: SparkSession, database: Database) -> None:
    sql = (
        """SELECT CAST(CAST(key AS STRING) AS INT) AS `größe "x"`, CAST(value AS STRING) AS `b``t %s {}` FROM source"""
    )
    key, value = '"größe ""x"""', '"b`t %s {}"'  # as PostgreSQL quotes them
    audited = Audited(kafka, spark, database, f"{key} int PRIMARY KEY, {value} text", sql)
    audited.send(("1", "a"), ("2", "b"))
    audited.passed(2)
    database.sql("INSERT INTO rows VALUES (1, 'a'), (2, 'b')")
    modes: list[dict[str, Any]] = [{}, {"upsert": True, "key": ('größe "x"',)}]
    for fields in modes:
        assert counts(audited.audit(**fields)) == (2, 2, 0, 0, 0)
    database.sql(f"UPDATE rows SET {value} = 'c' WHERE {key} = 1")  # noqa: S608
    for fields in modes:
        assert counts(audited.audit(**fields)) == (2, 2, 1, 0, 1)


TABLES = """
CREATE TABLE letters (
    pipeline text, source_topic text, source_partition int, source_offset bigint, key bytea, value bytea, headers text,
    reason text
);
CREATE TABLE ackwright.decisions ("group" text, batch bigint, decision text)
"""
# What docs/audit.md lists, each with what an audit without it reports.
PERMISSIONS = {
    "CONNECT ON DATABASE {database}": "User does not have CONNECT privilege",
    "TEMPORARY ON DATABASE {database}": "permission denied to create temporary tables in database",
    "USAGE ON SCHEMA ackwright": "permission denied for schema ackwright",
    "USAGE ON SCHEMA public": "permission denied for schema public",
    "SELECT ON ackwright.positions": "permission denied for table positions",
    "SELECT ON rows": "permission denied for table rows",
    "SELECT ON letters": "permission denied for table letters",
}
OF_DECISIONS = "SELECT ON ackwright.decisions"


class Permissions:
    """Those of a database's role, which owns nothing and at first has none, also none that everyone has."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._run(
            f"REASSIGN OWNED BY {database.role} TO admin",
            "REVOKE ALL ON DATABASE {database} FROM PUBLIC",
            "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        )

    def grant(self, *permissions: str) -> None:
        self._run(*(f"GRANT {permission} TO {self._database.role}" for permission in permissions))

    def revoke(self, permission: str) -> None:
        self._run(f"REVOKE {permission} FROM {self._database.role}")

    def _run(self, *statements: str) -> None:
        self._database.sql("; ".join(statements).format(database=self._database.name), admin=True)


def test_the_listed_permissions_are_sufficient_and_an_audit_without_one_names_it(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    audited = Audited(kafka, spark, database, "n bigint", "SELECT n FROM source")
    audited.source.job = replace(
        audited.source.job,
        source=replace(audited.source.job.source, format=Format.JSON, schema="n BIGINT", dead_letter_fraction=0.5),
    )
    audited.send(("k", '{"n": 1}'), ("k", "oops"))
    audited.passed(2)
    letter = f"'{audited.source.name}', '{audited.source.topic('in')}', 0, 1, 'k', 'oops', NULL, 'no JSON'"
    database.sql(f"{TABLES}; INSERT INTO rows VALUES (1); INSERT INTO letters VALUES ({letter})")  # noqa: S608
    permissions = Permissions(database)
    permissions.grant(*PERMISSIONS)

    def report() -> Report:
        return audited.audit(dead_letter_table="letters")

    full = report()
    assert (counts(full), full.dead_letters, full.verdict) == ((1, 1, 0, 0, 0), 1, Verdict.HELD)
    for permission, words in PERMISSIONS.items():
        permissions.revoke(permission)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the command reports the cause of any error
            report()
        failure = cause(caught.value)
        assert words in failure.message, permission
        assert failure.reason in (Reason.AUTHORIZATION_FAILED, Reason.SINK_LOGIN_REFUSED), permission
        permissions.grant(permission)


def test_the_decisions_of_a_stateful_pipeline_need_one_more_permission(
    kafka: EmbeddedKafka, spark: SparkSession, database: Database
) -> None:
    audited = Audited(kafka, spark, database, "v text", ONE_COLUMN)
    audited.passed(0)
    database.sql(f"{TABLES}; INSERT INTO ackwright.decisions VALUES ('{audited.source.name}', 0, 'a decision')")  # noqa: S608
    permissions = Permissions(database)
    permissions.grant(*PERMISSIONS)
    with pytest.raises(JobError, match="permission denied for table decisions"), TableReader(audited.job()) as reader:
        reader.decisions()
    permissions.grant(OF_DECISIONS)
    with TableReader(audited.job()) as reader:
        assert reader.decisions() == ["a decision"]
