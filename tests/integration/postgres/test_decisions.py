"""Decisions of stateful pipelines in a real PostgreSQL: one transaction with rows and positions. psql reads them.

See docs/protocol.md#stateful-pipelines-into-postgresql.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ackwright_stream.decisions import last_decision
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres import decisions
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.postgres import PASSWORD, Database
from integration.support.postgres_proxy import cutting_commits
from integration.support.postgres_stores import A, B, Driver, job, offsets, position, rows, with_session
from integration.support.stateful_pipelines import with_state
from waiting import ANSWER, WAIT, wait_until

pytestmark = pytest.mark.usefixtures("rows_table")


def stateful(directory: Path, database: Database, **fields: Any) -> JobSpec:
    """A jobspec that only the sink and the lanes read, with state."""
    return with_state(job(directory, database, **fields), directory / "state")


def driver_of(spec: JobSpec) -> Driver:
    """A driver that has taken the pipeline."""
    return Driver(spec, [A, B])


def batches(driver: Driver) -> list[int | None]:
    """The last batch, as the position of each lane has it."""
    return [p.batch if p else None for p in driver.sink.read([A, B]).values()]


def decide(driver: Driver, batch: int, start: int, until: int, parts: Any = None) -> int:
    """Decides a batch that moves lane A, with a row for each offset. parts: in place of these rows."""
    output = parts if parts is not None else rows(A, start, until)
    return driver.lanes.decide_batch({A: start, B: 0}, {A: until, B: 0}, output, batch, f"decision {batch}")


def stored(database: Database) -> list[list[str]]:
    return database.sql("SELECT batch, decision FROM ackwright.decisions ORDER BY batch")


def last(driver: Driver) -> str | None:
    assert driver.sink.decisions is not None
    return driver.sink.decisions.last()


def test_rows_positions_and_decision_change_together(database: Database, tmp_path: Path) -> None:
    """Each position has the number of the batch, also that of a lane that does not move."""
    driver = driver_of(stateful(tmp_path, database))
    assert (last(driver), batches(driver)) == (None, [None, None])
    assert decide(driver, 0, 0, 10) == 10
    assert decide(driver, 1, 10, 15) == 5
    assert last(driver) == "decision 1"
    assert batches(driver) == [1, 1]
    assert (offsets(database), position(database), position(database, B)) == (list(range(15)), 15, 0)
    assert stored(database) == [["0", "decision 0"], ["1", "decision 1"]]


def test_earlier_decisions_are_read_newest_first(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "_AT_ONCE", 3)
    driver = driver_of(stateful(tmp_path, database))
    assert driver.sink.decisions is not None
    assert list(driver.sink.decisions.earlier()) == []
    for batch in range(8):
        decide(driver, batch, batch, batch + 1)
    assert list(driver.sink.decisions.earlier()) == [f"decision {batch}" for batch in range(6, -1, -1)]


def test_an_error_of_the_rows_leaves_nothing(database: Database, tmp_path: Path) -> None:
    driver = driver_of(stateful(tmp_path, database))

    def broken() -> Iterator[Any]:
        yield from rows(A, 0, 10)
        raise JobError(Reason.TOPIC_REPLACED, "the last one")

    with pytest.raises(JobError, match="the last one"):
        decide(driver, 0, 0, 10, broken())
    assert (offsets(database), position(database), stored(database), batches(driver)) == ([], 0, [], [None, None])


def test_a_second_decision_of_a_batch_leaves_nothing(database: Database, tmp_path: Path) -> None:
    """Positions and decisions that do not belong together, as after half a restore."""
    driver = driver_of(stateful(tmp_path, database))
    decide(driver, 0, 0, 10)
    decide(driver, 1, 10, 15)
    with pytest.raises(JobError, match="decisions_pkey"):
        decide(driver, 1, 15, 20)
    assert (offsets(database), position(database), last(driver)) == (list(range(15)), 15, "decision 1")


def test_a_second_decision_of_batch_0_is_refused_by_the_positions(database: Database, tmp_path: Path) -> None:
    """The table does not refuse it: the first decision of a new state deletes those before."""
    driver = driver_of(stateful(tmp_path, database))
    decide(driver, 0, 0, 10)
    driver.lanes.batch = None
    with pytest.raises(JobError, match=r"batch=0.*expects.*batch=None") as caught:
        decide(driver, 0, 10, 15)
    assert caught.value.reason is Reason.POSITION_CONFLICT
    assert (offsets(database), batches(driver), stored(database)) == (list(range(10)), [0, 0], [["0", "decision 0"]])


@pytest.mark.parametrize("arrives", [True, False], ids=["committed", "lost"])
def test_after_an_unknown_outcome_positions_and_decision_are_of_one_batch(
    database: Database, tmp_path: Path, arrives: bool
) -> None:
    spec = stateful(tmp_path, database)
    decide(driver_of(spec), 0, 0, 10)
    cut = driver_of(spec)
    with cutting_commits(database.server.host, database.server.port, arrives=arrives) as port:
        cut.lanes.sink = PostgresStore(stateful(tmp_path, database, port=port))
        with pytest.raises(JobError) as caught:
            decide(cut, 1, 10, 15)
    assert caught.value.reason is Reason.SINK_UNREACHABLE, caught.value
    next_one = driver_of(spec)
    number, end = (1, 15) if arrives else (0, 10)
    assert (last(next_one), batches(next_one)) == (f"decision {number}", [number, number])
    assert (offsets(database), position(database)) == (list(range(end)), end)
    decide(next_one, number + 1, end, 20)
    assert offsets(database) == list(range(20))


class Paused:
    """A driver in another thread that stops in the middle of its rows until release()."""

    def __init__(self, driver: Driver, batch: int, start: int, until: int) -> None:
        self.outcome: Any = None
        self._arrived, self._release = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(driver, batch, start, until), daemon=True)
        self._thread.start()
        wait_until(lambda: self._arrived.is_set() or self.outcome, "the transaction is open")

    def _run(self, driver: Driver, batch: int, start: int, until: int) -> None:
        def slow() -> Iterator[Any]:
            for i, part in enumerate(rows(A, start, until, batch=1)):
                yield part
                if i == 0:
                    self._arrived.set()
                    self._release.wait(WAIT)

        try:
            self.outcome = decide(driver, batch, start, until, slow())
        except JobError as e:
            self.outcome = e

    def release(self) -> Any:
        """What became of the batch."""
        self._release.set()
        self._thread.join(ANSWER)
        return self.outcome


def test_a_driver_that_holds_the_positions_is_ended_by_the_next_one(database: Database, tmp_path: Path) -> None:
    spec = stateful(tmp_path, database)
    decide(driver_of(spec), 0, 0, 10)
    zombie = Paused(driver_of(spec), 1, 10, 20)
    decide(driver_of(spec), 1, 10, 17)
    error = zombie.release()
    assert isinstance(error, JobError)
    assert error.reason is Reason.SINK_UNREACHABLE, error
    assert (offsets(database), position(database)) == (list(range(17)), 17)
    assert stored(database) == [["0", "decision 0"], ["1", "decision 1"]]


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "control"])
def test_a_driver_that_was_overtaken_is_refused(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    """Also by a batch that moves no lane. Control: without locks one that has compared the generation continues."""
    monkeypatch.setattr(PostgresStore, "locks", locks)
    spec = stateful(tmp_path, database)
    decide(driver_of(spec), 0, 0, 10)
    older = driver_of(spec)
    if locks:
        driver_of(spec)
        with pytest.raises(JobError, match="another driver has joined"):
            decide(older, 1, 10, 10, ())
        assert last(older) == "decision 0"
        return
    monkeypatch.setattr("ackwright_stream.sinks.postgres.positions.terminate", lambda *_, **__: None)
    zombie = Paused(older, 2, 10, 15)  # not batch 1, of which the primary key would refuse a second decision
    decide(driver_of(spec), 1, 10, 17)
    assert zombie.release() == 5
    assert offsets(database) != list(range(position(database)))


def test_a_new_state_begins_with_its_own_decisions(database: Database, tmp_path: Path) -> None:
    """Its loss was accepted; the positions remain."""
    driver = driver_of(stateful(tmp_path, database))
    decide(driver, 0, 0, 10)
    decide(driver, 1, 10, 15)
    decide(driver, 0, 15, 20)
    assert (stored(database), batches(driver)) == ([["0", "decision 0"]], [0, 0])


def test_lanes_of_a_recreated_topic_forget_the_batch_of_the_old_one(database: Database, tmp_path: Path) -> None:
    """Both losses were accepted: the lanes begin again, behind no batch."""
    spec = stateful(tmp_path, database)
    decide(driver_of(spec), 0, 0, 10)
    driver = driver_of(spec)
    driver.lanes.batch = None
    driver.lanes.settle({A: 0, B: 0}, [A, B], None, ["in"])
    assert batches(driver) == [None, None]
    decide(driver, 0, 0, 5)
    assert (batches(driver), position(database)) == ([0, 0], 5)


def test_old_decisions_are_deleted(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "RETAINED", 2)
    driver = driver_of(stateful(tmp_path, database))
    for batch in range(5):
        decide(driver, batch, batch, batch + 1)
    assert [batch for batch, _ in stored(database)] == ["3", "4"]


def test_decisions_that_were_deleted_are_noticed_by_the_positions(database: Database, tmp_path: Path) -> None:
    spec = stateful(tmp_path, database)
    decide(driver_of(spec), 0, 0, 10)
    database.sql("DROP TABLE ackwright.decisions")
    next_one = driver_of(spec)
    with pytest.raises(JobError, match="behind batch 0, and there is no decision of a batch") as caught:
        last_decision(last(next_one), next_one.sink.read([A, B]))
    assert caught.value.reason is Reason.STATE_LOST


@pytest.fixture
def other(database: Database, tmp_path: Path) -> Driver:
    """A driver of a stateless pipeline of the same database, which has created the tables of positions."""
    spec, group = job(tmp_path, database), {"group.id": "test.other"}
    return Driver(
        replace(
            spec,
            group="test.other",
            positions_consumer={**spec.positions_consumer, **group},
            topic_consumer={**spec.topic_consumer, **group},
        )
    )


@contextmanager
def positions_in_use(database: Database) -> Iterator[None]:
    """A transaction that has read positions and stays open, as that of an audit does."""
    place = f"host={database.server.host} port={database.server.port} dbname={database.name}"
    with psycopg.connect(f"{place} user={database.role} password={PASSWORD}") as audit:
        audit.execute("SELECT FROM ackwright.positions")
        yield


def test_the_first_stateful_pipeline_of_a_database_alters_no_table(
    database: Database, tmp_path: Path, other: Driver
) -> None:
    with positions_in_use(database):
        decide(driver_of(stateful(tmp_path, database)), 0, 0, 10)
        other.lanes.advance_all([Range(A, 0, 5)])
    groups = database.sql('SELECT "offset", batch FROM ackwright.positions WHERE partition = 0 ORDER BY "offset"')
    assert groups == [["5", ""], ["10", "0"]]


NO_COLUMN = "ALTER TABLE ackwright.positions DROP COLUMN batch"  # as an earlier release has created the table


def test_other_pipelines_continue_while_the_column_cannot_be_added(
    database: Database, tmp_path: Path, other: Driver
) -> None:
    """Its driver tries again and again. Without a dedicated limit the first attempt would stop the others."""
    database.sql(NO_COLUMN)
    spec = with_session(stateful(tmp_path, database), lock_timeout="0")
    spec = replace(spec, operation_timeout_ms=int(1000 * WAIT))
    drivers: list[Driver] = []
    joining = threading.Thread(target=lambda: drivers.append(driver_of(spec)), daemon=True)
    waiting = "SELECT pid FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted"
    sessions: set[str] = set()

    def attempts() -> int:
        sessions.update(pid for (pid,) in database.sql(waiting, admin=True))
        return len(sessions)

    with positions_in_use(database):
        joining.start()
        wait_until(lambda: attempts() > 0, "an attempt to add the column")
        other.lanes.advance_all([Range(A, 0, 5)])
        wait_until(lambda: attempts() > 1 or not joining.is_alive(), "a second attempt")
        assert joining.is_alive()
    joining.join(ANSWER)
    decide(drivers[0], 0, 0, 10)
    assert batches(drivers[0]) == [0, 0]


def test_a_column_that_was_lost_is_added(database: Database, tmp_path: Path) -> None:
    """As after a restore of the tables of positions alone."""
    spec = stateful(tmp_path, database)
    decide(driver_of(spec), 0, 0, 10)
    database.sql(NO_COLUMN)
    driver = driver_of(spec)
    decide(driver, 0, 10, 15)
    assert batches(driver) == [0, 0]


@pytest.mark.parametrize(
    ("name", "drop"), list(zip(decisions.CREATIONS, [f"DROP TABLE {decisions.NAME}", NO_COLUMN], strict=True))
)
def test_a_role_that_may_not_create_what_is_missing_is_shown_the_statements(
    database: Database, tmp_path: Path, name: str, drop: str
) -> None:
    spec = stateful(tmp_path, database)
    store = driver_of(spec).sink
    store.check()
    database.sql(drop)
    database.sql("ALTER SCHEMA ackwright OWNER TO CURRENT_USER", admin=True)
    database.sql("ALTER TABLE ackwright.positions OWNER TO CURRENT_USER", admin=True)
    database.sql(f"GRANT USAGE ON SCHEMA ackwright TO {database.role}", admin=True)
    database.sql(f"GRANT SELECT, INSERT, UPDATE ON ackwright.positions TO {database.role}", admin=True)
    with pytest.raises(JobError, match=rf"has no {name}, .* the role may not create it") as caught:
        store.check()
    assert caught.value.reason is Reason.TABLE_UNSUITABLE
    assert decisions.CREATIONS[name] in str(caught.value)
    database.sql(decisions.CREATIONS[name], admin=True)
    if name == decisions.NAME:
        with pytest.raises(JobError, match="lacks SELECT, INSERT, DELETE on the table of decisions") as caught:
            store.check()
        assert caught.value.reason is Reason.AUTHORIZATION_FAILED
        database.sql(f"GRANT SELECT, INSERT, DELETE ON ackwright.decisions TO {database.role}", admin=True)
    store.check()
    decide(driver_of(spec), 0, 0, 10)
    assert offsets(database) == list(range(10))
