"""Positions that were set by a statement, or by another pipeline of the same name: nothing is written over them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackwright_stream import ownership
from ackwright_stream.cluster import Cluster, Topology
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres import positions as store
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.postgres import Database, Postgres
from integration.support.postgres_pipelines import TABLE
from integration.support.postgres_stores import IDS, A, B, Driver, job, offsets, position, rows

pytestmark = pytest.mark.usefixtures("rows_table")
SET_BY_HAND = 'UPDATE ackwright.positions SET "offset" = 7, driver = 0'  # as docs/postgres.md has it


def take(spec: JobSpec, previous: int | None = None) -> Ownership:
    """What a driver has that takes the pipeline. previous: its number if it had the pipeline before."""
    topology = Topology(IDS, {A: 0, B: 0}, {A: 100, B: 100})
    return ownership.take(
        spec, cast(Cluster, SimpleNamespace(topology=lambda: topology)), PostgresStore(spec), previous
    )


def moved(call: Any) -> JobError:
    """The JobError(POSITIONS_MOVED) that the call raises."""
    with pytest.raises(JobError) as caught:
        call()
    assert caught.value.reason is Reason.POSITIONS_MOVED, caught.value
    assert "group" not in caught.value.message, "the offsets of the consumer group mean nothing here"
    return caught.value


def test_positions_that_were_set_by_hand_halt_until_they_are_accepted_once(database: Database, tmp_path: Path) -> None:
    spec = job(tmp_path, database)
    running = take(spec)
    database.sql(SET_BY_HAND)
    refused = moved(lambda: running.lanes.advance(0, [Range(A, 0, 10)], rows(A, 0, 10)))
    assert "in-0: 7" in refused.message
    error = moved(lambda: take(spec))
    assert f"ackwright accept-positions {spec.name} {error.fingerprint} -n {spec.namespace}" in error.message
    assert "set the positions back by hand" in error.message
    assert (offsets(database), position(database)) == ([], 7)
    accepting = replace(spec, accepted_positions=error.fingerprint)
    assert take(accepting).positions == {A: 7, B: 7}
    assert take(spec).positions == {A: 7, B: 7}
    database.sql(SET_BY_HAND)  # the same offsets once more
    assert moved(lambda: take(accepting)).fingerprint != error.fingerprint


def test_positions_of_another_pipeline_of_the_same_name_are_refused(database: Database, tmp_path: Path) -> None:
    """In another cluster, or one that was deleted while its driver could not stop in order."""
    spec = job(tmp_path, database)
    owned = take(spec)
    owned.lanes.settle({A: 5, B: 5}, [], None, ())
    other = replace(spec, identity="another")
    error = moved(lambda: take(other))
    assert f"the pipeline of the same name with the id {spec.identity}" in error.message
    assert (position(database), position(database, B)) == (5, 5)
    task = Driver(spec).task()
    database.sql("UPDATE ackwright.positions SET pipeline = 'another'")
    moved(lambda: task.advance(0, [Range(A, 5, 10)], rows(A, 5, 10)))
    assert offsets(database) == []


def test_a_topic_id_that_was_changed_is_refused(database: Database, tmp_path: Path) -> None:
    spec = job(tmp_path, database)
    owned = take(spec)
    database.sql("UPDATE ackwright.positions SET topic_id = 'another'")
    for call in (lambda: owned.lanes.advance(0, [Range(A, 0, 10)], rows(A, 0, 10)), lambda: take(spec)):
        with pytest.raises(JobError) as caught:
            call()
        assert caught.value.reason is Reason.TOPIC_REPLACED
        assert "group" not in caught.value.message
    assert offsets(database) == []


@pytest.mark.parametrize("recorded", [True, False])
def test_a_zombie_does_not_take_the_pipeline_back_after_all_positions_were_set(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, recorded: bool
) -> None:
    """The number of the next driver is higher than that of any before, which no position tells any more.

    Without the number that the database records, the control, the zombie takes the pipeline back.
    """
    spec = job(tmp_path, database)
    take(spec)
    zombie = take(spec)
    database.sql(SET_BY_HAND)
    if not recorded:
        records = store.records
        monkeypatch.setattr(store, "records", lambda *names: replace(records(*names), driver=0))
    fingerprint = moved(lambda: take(spec)).fingerprint
    newer = take(replace(spec, accepted_positions=fingerprint))
    if recorded:
        assert newer.driver > zombie.driver
        with pytest.raises(JobError) as caught:
            take(spec, zombie.driver)
        assert caught.value.reason is Reason.SUPERSEDED
    else:
        assert newer.driver < zombie.driver
        assert take(spec, zombie.driver).driver == zombie.driver


def test_a_server_without_the_positions_of_a_pipeline_that_has_delivered_is_refused(
    postgres: Postgres, database: Database, tmp_path: Path
) -> None:
    """As after an edit of the address, which leads to another server with the same tables."""
    elsewhere = Database(postgres, tmp_path / "elsewhere")
    elsewhere.sql(TABLE)
    moved = replace(job(tmp_path / "moved", elsewhere), expects_positions=True)
    with pytest.raises(JobError, match=r"test\.p has delivered, and sink\.postgres has no positions of it") as caught:
        ownership.require_known(moved, PostgresStore(moved), [A, B])
    assert caught.value.reason is Reason.POSITION_LOST
    assert elsewhere.sql("SELECT to_regnamespace('ackwright') IS NULL") == [["t"]], "nothing is created there"

    assert take(job(tmp_path / "control", elsewhere)).positions == {A: 0, B: 0}, "control: it starts again"
    ownership.require_known(moved, PostgresStore(moved))


def test_positions_that_a_person_has_set_at_another_server_count(database: Database, tmp_path: Path) -> None:
    spec = replace(job(tmp_path, database), expects_positions=True)
    PostgresStore(spec).join([A])
    database.sql("TRUNCATE ackwright.pipelines")
    with pytest.raises(JobError, match="has no positions"):
        ownership.require_known(spec, PostgresStore(spec), [A])
    columns = '"group", topic, partition, "offset", topic_id, driver, pipeline'
    database.sql(f"INSERT INTO ackwright.positions ({columns}) VALUES ('test.p', 'in', 0, 7, '', 0, '')")  # noqa: S608
    ownership.require_known(spec, PostgresStore(spec), [A])
