"""The guarantees with rows and positions in a real PostgreSQL over TLS: real brokers, real Spark, and processes that
are killed. psql reads what is there.

tests/integration/postgres proves the transactions without Spark, with their control.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode
from integration.support.postgres import Database, Postgres
from integration.support.postgres_pipelines import EACH, PARTITIONS, TABLE, Pipeline, pipeline
from integration.support.produce import produce
from waiting import WAIT, wait_until

pytestmark = pytest.mark.usefixtures("rows_table")


def test_killed_between_copy_and_commit_and_after_the_commit_exactly_once(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    p = pipeline(kafka, database, tmp_path, "exactly-once")
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        p.kill_tasks(job, "before-commit", "after-commit")
        p.assert_exactly_once()
        hit = job.arm("before-commit", lane=f"{p.source}-0")  # the whole driver, in the middle of a batch
        p.feed()
        job.arrived(hit)
        job.job.kill()
    assert p.positions() != [p.fed] * PARTITIONS
    with p.life() as job:
        p.caught_up(job)
        p.drain(job)
    p.assert_exactly_once()


def test_an_overtaken_driver_ends_and_writes_nothing_exactly_once(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    """It is suspended in the middle of a transaction, with the rows of its positions locked."""
    p = pipeline(kafka, database, tmp_path, "exactly-once")
    p.feed()
    with p.overtaken("before-commit", lane=f"{p.source}-0") as driver:
        p.feed()
        p.caught_up(driver)
        p.drain(driver)
    p.assert_exactly_once()


@pytest.mark.parametrize(
    ("guarantee", "point", "lost", "duplicated"),
    [
        ("at-least-once", "before-advance", {0}, PARTITIONS * EACH),
        # Spark cancels the other task, which may have claimed its range as well.
        ("at-most-once", "claimed", {EACH, PARTITIONS * EACH}, 0),
    ],
)
def test_the_other_guarantees_keep_their_order(
    kafka: EmbeddedKafka,
    database: Database,
    tmp_path: Path,
    *,
    guarantee: str,
    point: str,
    lost: set[int],
    duplicated: int,
) -> None:
    """One process is killed between the two steps; a bounded run completes."""
    p = pipeline(kafka, database, tmp_path, guarantee, trigger={"availableNow": True})
    p.feed()
    p.complete_after_kill(point)
    verdict = p.verdict()
    assert verdict.lost in lost
    assert (verdict.duplicated, verdict.unexpected) == (duplicated, 0)
    assert p.positions() == [p.fed] * PARTITIONS


def test_what_was_claimed_when_the_server_is_killed_counts_as_abandoned_at_most_once(
    kafka: EmbeddedKafka, fragile_postgres: Postgres, tmp_path: Path
) -> None:
    """The driver can count it only when the server answers again: until then nobody knows which lanes were claimed."""
    database = Database(fragile_postgres, tmp_path / "fragile")
    database.sql(TABLE)
    p = pipeline(kafka, database, tmp_path, "at-most-once")
    with p.life() as job:
        p.caught_up(job)
        hit = job.arm("claimed")
        p.feed()
        job.arrived(hit)
        fragile_postgres.kill()
        job.release("claimed")
        job.until(lambda now: now["restarts"], "the batch fails")
        fragile_postgres.start()
        p.caught_up(job)
        abandoned = job.progress()["abandonedRecords"]
        p.drain(job)
    verdict = p.verdict()
    assert 0 < verdict.lost <= abandoned, "the rows of the other task may have been written"
    assert (verdict.duplicated, verdict.unexpected) == (0, 0)


def test_rows_of_a_batch_that_is_repeated_are_there_once_by_key_at_least_once(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    """With a version each key has its latest row. In the test above, the same kill duplicates rows without a key."""
    database.sql("CREATE TABLE latest (id text PRIMARY KEY, at bigint NOT NULL, text text)")
    sink = database.spec("latest", mode="upsert", key=["id"], versionColumn="at")
    sql = (
        "SELECT concat(CAST(key AS STRING), '-', CAST(kafka.offset % 10 AS STRING)) AS id, kafka.offset AS at, "
        "CAST(value AS STRING) AS text FROM source"
    )
    more = {"sink": sink, "transform": {"sql": sql}, "trigger": {"availableNow": True}}
    p = pipeline(kafka, database, tmp_path, "at-least-once", **more)
    p.feed()
    p.complete_after_kill("before-advance")
    latest = [[f"p{p}-{n % 10}", str(n), f"{p}:{n}"] for p in range(PARTITIONS) for n in range(EACH - 10, EACH)]
    assert database.sql("SELECT id, at, text FROM latest ORDER BY id") == latest
    assert p.positions() == [p.fed] * PARTITIONS


# A table that counts how often each row was written.
COUNTED = """
CREATE TABLE counted (id text PRIMARY KEY, at bigint NOT NULL, text text, writes int);
CREATE FUNCTION count_writes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.writes := CASE WHEN TG_OP = 'UPDATE' THEN OLD.writes + 1 ELSE 1 END;
    RETURN NEW;
END $$;
CREATE TRIGGER writes BEFORE INSERT OR UPDATE ON counted FOR EACH ROW EXECUTE FUNCTION count_writes()
"""
ROW_OF_RECORD = (
    "SELECT concat(CAST(key AS STRING), '-', CAST(kafka.offset AS STRING)) AS id, kafka.offset AS at, "
    "CAST(value AS STRING) AS text FROM source"
)


def upserting(kafka: EmbeddedKafka, database: Database, directory: Path, guarantee: str, **more: Any) -> Pipeline:
    """A pipeline that upserts a row for each record, each with another key, into the table that counts."""
    database.sql(COUNTED)
    version = {} if guarantee == "exactly-once" else {"versionColumn": "at"}
    sink = database.spec("counted", mode="upsert", key=["id"], **version)
    return pipeline(kafka, database, directory, guarantee, sink=sink, transform={"sql": ROW_OF_RECORD}, **more)


def writes(database: Database) -> dict[str, int]:
    """How often each row was written, by its text."""
    return {text: int(n) for text, n in database.sql("SELECT text, writes FROM counted")}


def assert_each_is_written_once(p: Pipeline) -> None:
    """Control: a row that is written again is counted."""
    assert writes(p.database) == {f"{lane}:{n}": 1 for lane in range(PARTITIONS) for n in range(p.fed)}
    assert p.positions() == [p.fed] * PARTITIONS
    again = "INSERT INTO counted SELECT * FROM counted ON CONFLICT (id) DO UPDATE SET text = EXCLUDED.text"
    p.database.sql(again)
    assert set(writes(p.database).values()) == {2}


def test_upserts_of_a_task_that_is_killed_after_its_commit_are_written_once_exactly_once(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    """Spark runs the task again."""
    p = upserting(kafka, database, tmp_path, "exactly-once", trigger={"availableNow": True})
    p.feed()
    p.complete_after_kill("after-commit")
    assert_each_is_written_once(p)


def test_upserts_are_written_once_across_kills_exactly_once(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    """Tasks and then the driver are killed before and after the commit."""
    p = upserting(kafka, database, tmp_path, "exactly-once")
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        p.kill_tasks(job, "after-read", "before-commit", "after-commit")
        hit = job.arm("after-commit", lane=f"{p.source}-0")
        p.feed()
        job.arrived(hit)
        job.job.kill()
    with p.life() as job:
        p.caught_up(job)
        p.drain(job)
    assert_each_is_written_once(p)


def test_upserts_of_a_claim_whose_task_is_killed_are_lost_at_most_once(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    p = upserting(kafka, database, tmp_path, "at-most-once", trigger={"availableNow": True})
    p.feed()
    p.complete_after_kill("claimed")
    written = writes(database)
    # Spark cancels the other task, which may have claimed its range as well.
    assert len(written) in ((PARTITIONS - 1) * EACH, 0)
    assert set(written.values()) <= {1}
    assert p.positions() == [p.fed] * PARTITIONS

    p.feed()
    with p.life() as job:
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
    later = {f"{lane}:{n}": 1 for lane in range(PARTITIONS) for n in range(EACH, p.fed)}
    assert writes(database) == {**written, **later}


def test_a_permission_that_is_revoked_stops_and_returns_exactly_once(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    p = pipeline(kafka, database, tmp_path, "exactly-once")
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        database.sql("REVOKE INSERT ON rows FROM CURRENT_USER")
        p.feed()
        job.until(lambda now: "permission denied for table rows" in str(now), "the refusal is reported", WAIT)
        database.sql("GRANT INSERT ON rows TO CURRENT_USER")
        wait_until(lambda: p.positions() == [p.fed] * PARTITIONS, "the pipeline continues", WAIT)
    p.assert_exactly_once()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_the_record_whose_row_is_refused_is_named_with_the_column_and_the_value(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path, guarantee: str
) -> None:
    """The transform drops records, and returns two rows for each of the others, without their offsets."""
    database.sql("CREATE TABLE narrow (text varchar(5), twice int)")
    sql = "SELECT CAST(value AS STRING) AS text, explode(array(1, 2)) AS twice FROM source WHERE kafka.offset % 2 = 0"
    sink, trigger = database.spec("narrow"), {"availableNow": True}
    p = pipeline(kafka, database, tmp_path, guarantee, sink=sink, transform={"sql": sql}, trigger=trigger)
    p.feed()
    produce(kafka.bootstrap_servers, p.source, b"too long", partition=1)
    with p.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason == "RowRefused"
    assert failure.message.startswith(
        f"record {p.source}-1@{EACH}: table public.narrow refuses its row: value too long"
    )
    assert "(text = 'too long'); change the transform" in failure.message
    assert database.sql("SELECT text FROM narrow WHERE text LIKE '1:%'") == []
    assert p.positions()[1] == (p.fed + 1 if guarantee == "at-most-once" else 0)


def test_a_column_named_partition_holds_what_the_transform_returns(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    """Only one partition has records, so Spark's number of it is another one than Kafka's."""
    database.sql("CREATE TABLE numbered (partition int)")
    p = pipeline(
        kafka,
        database,
        tmp_path,
        "exactly-once",
        sink=database.spec("numbered"),
        transform={"sql": "SELECT kafka.partition AS partition FROM source"},
        trigger={"availableNow": True},
    )
    produce(kafka.bootstrap_servers, p.source, b"a", partition=1)
    with p.life() as job:
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
    assert database.sql("SELECT * FROM numbered") == [["1"]]


def test_at_a_server_without_its_positions_a_pipeline_that_has_delivered_creates_nothing(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    """As after an edit of the address. Each record would be delivered again."""
    p = pipeline(kafka, database, tmp_path, "exactly-once", sink=database.spec("created", createTable=True))
    p.spec = replace(p.spec, expects_positions=True)
    p.feed()
    with p.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason == "PositionLost"
    assert "its address probably leads to another server" in failure.message
    assert database.sql("SELECT to_regnamespace('ackwright') IS NULL AND to_regclass('created') IS NULL") == [["t"]]


def test_a_table_is_created_if_asked_to_and_refused_if_it_does_not_fit(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    bounded = {"trigger": {"availableNow": True}}
    created = pipeline(
        kafka, database, tmp_path / "a", "exactly-once", sink=database.spec("created", createTable=True), **bounded
    )
    created.feed()
    with created.life() as job:
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
    assert database.sql("SELECT count(DISTINCT value) FROM created") == [[str(PARTITIONS * EACH)]]
    database.sql("CREATE TABLE narrow (key int)")
    unfit = pipeline(kafka, database, tmp_path / "b", "exactly-once", sink=database.spec("narrow"), **bounded)
    unfit.feed()
    with unfit.life() as job:
        assert job.job.wait(WAIT) == ExitCode.UNAVAILABLE
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason == "TableUnsuitable"
    for words in ("'key' is binary in the output and integer in the table", "no column 'value'"):
        assert words in failure.message
    assert database.sql(f"SELECT * FROM ackwright.positions WHERE topic = '{unfit.source}'") == []  # noqa: S608
