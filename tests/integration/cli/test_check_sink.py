"""`ackwright check -f` for a table of a real PostgreSQL: what the job's own check says, and that nothing changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ackwright.cli import main
from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode
from integration.support.pipelines import create_topics, document
from integration.support.postgres import Database
from integration.support.run_cli import write_document

SCHEMA_OF_POSITIONS = "SELECT count(*) FROM pg_namespace WHERE nspname = 'ackwright'"


def check(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, database: Database, directory: Path, **sink: Any
) -> tuple[int, dict[str, str]]:
    """The exit code, and the check of the sink."""
    source = "orders"
    create_topics(kafka.bootstrap_servers, source, partitions=1)
    pipeline = document(kafka.bootstrap_servers, "to-table", "exactly-once", source, "not-used")
    pipeline["spec"]["sink"] = database.spec(**sink)
    file = write_document(directory, pipeline)
    capsys.readouterr()
    code = main.invoke(["check", "-f", str(file), "--secrets", str(database.secrets), "-o", "json"])
    checks = {c["name"]: c for c in json.loads(capsys.readouterr().out)}
    assert database.sql(SCHEMA_OF_POSITIONS) == [["0"]]
    return code, checks["sink table"]


def test_a_table_that_fits_is_ok(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    database.sql("CREATE TABLE rows (id bigserial, key bytea, value bytea)")
    _, sink = check(capsys, kafka, database, tmp_path)
    assert (sink["verdict"], sink["remedy"]) == ("ok", "")


def test_everything_that_is_wrong_with_a_table_is_reported_at_once(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    database.sql("CREATE UNLOGGED TABLE rows (key int, amount int NOT NULL)", admin=True)
    code, sink = check(capsys, kafka, database, tmp_path)
    assert (code, sink["verdict"]) == (ExitCode.UNAVAILABLE, "failed")
    for words in ("lacks INSERT", "UNLOGGED", "'key'", "'value'", "'amount'"):
        assert words in sink["remedy"]


def test_a_table_that_the_job_will_create_needs_the_permission(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    database.sql("CREATE SCHEMA reports", admin=True)
    code, sink = check(capsys, kafka, database, tmp_path, schema="reports", createTable=True)
    assert (code, sink["verdict"]) == (ExitCode.UNAVAILABLE, "failed")
    assert "GRANT CREATE, USAGE ON SCHEMA reports" in sink["remedy"]
    database.sql(f"GRANT CREATE, USAGE ON SCHEMA reports TO {database.role}", admin=True)
    _, sink = check(capsys, kafka, database, tmp_path, schema="reports", createTable=True)
    assert sink["verdict"] == "ok"


def test_a_wrong_password_is_reported_without_it(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    (database.credentials / "password").write_text("wrong-horse")
    code, sink = check(capsys, kafka, database, tmp_path)
    assert (code, sink["verdict"]) == (ExitCode.UNAVAILABLE, "failed")
    assert sink["found"].startswith("SinkLoginRefused: ")
    assert "wrong-horse" not in json.dumps(sink)


def test_without_secrets_the_table_is_not_checked_and_the_remedy_names_the_option(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    pipeline = document(kafka.bootstrap_servers, "to-table", "exactly-once", "orders", "not-used")
    pipeline["spec"]["sink"] = database.spec()
    main.invoke(["check", "-f", str(write_document(tmp_path, pipeline)), "-o", "json"])
    sink = next(c for c in json.loads(capsys.readouterr().out) if c["name"] == "sink table")
    assert sink["verdict"] == "warning"
    assert "--secrets" in sink["remedy"]


def test_an_upsert_needs_temporary_tables_and_an_insert_does_not(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    owner, everybody = f"ALTER DATABASE {database.name} OWNER TO admin", f"ON DATABASE {database.name} FROM PUBLIC"
    database.sql("CREATE TABLE rows (key bytea PRIMARY KEY, value bytea)")
    database.sql(
        f"{owner}; REVOKE TEMPORARY {everybody}; GRANT CREATE ON DATABASE {database.name} TO {database.role}",
        admin=True,
    )
    upsert = {"mode": "upsert", "key": ["key"]}
    for fields in (upsert, {**upsert, "table": "absent", "createTable": True}):
        code, sink = check(capsys, kafka, database, tmp_path, **fields)
        assert (code, sink["verdict"]) == (ExitCode.UNAVAILABLE, "failed")
        assert f"lacks TEMPORARY on database {database.name}" in sink["remedy"]
    _, sink = check(capsys, kafka, database, tmp_path)
    assert sink["verdict"] == "ok"
    database.sql(f"GRANT TEMPORARY ON DATABASE {database.name} TO {database.role}", admin=True)
    _, sink = check(capsys, kafka, database, tmp_path, **upsert)
    assert sink["verdict"] == "ok"
