"""PostgreSQL as a sink: rows go to a table, positions to `ackwright.positions` of the same database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField

from ackwright_stream.errors import JobError, combined
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import Guarantee, JobSpec, PostgresSink, Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.postgres_connection import Connection, connect, translate
from ackwright_stream.sinks.base import Membership, Owner, Records, Rows
from ackwright_stream.sinks.postgres import columns, dead_letters, decisions
from ackwright_stream.sinks.postgres import positions as store
from ackwright_stream.sinks.postgres import table as tables
from ackwright_stream.sinks.postgres.decisions import DecisionTable
from ackwright_stream.sinks.postgres.positions import Statements
from ackwright_stream.sinks.postgres.trial import TableTrial

T = TypeVar("T")
_OLDEST_SERVER = 12_00_00  # docs/compatibility.md
_MEMBER_FOR_S = 5.0  # is_member() queries the server at most this often
_PAUSE_S = 0.5  # between two attempts to join, so that others get the locks meanwhile


class PostgresStore:
    """The sink of one pipeline, in a driver or in a worker. A task's connection stays open for the next task."""

    supports = frozenset(Guarantee)
    topics = ()
    spark_writer = None
    takes_dead_letters = True
    staging = None
    locks = True  # False in a negative control: nothing is locked

    def __init__(self, job: JobSpec) -> None:
        self.job, self.sink = job, job.sink_of(PostgresSink)
        self._letters = self.sink.of_dead_letters
        deciding = DecisionTable(job.group, self._driver_transaction, partial(self.open, "driver"))
        self.decisions = deciding if job.state else None
        self._connection: Connection | None = None  # of the tasks
        self._has_settled = False  # whether this process has committed positions
        self._member: tuple[Membership, float] | None = None  # and when it was last known to be one

    # ------------------------------------------------------------ the driver

    def check(self, rows: DataFrame | None = None) -> None:
        with self._driver_transaction() as cursor:
            self._require_version(cursor.connection.info.server_version)
            problems = [*store.problems(cursor), *(decisions.problems(cursor) if self.decisions else ())]
            fields = rows and rows.schema.fields
            problems += [*tables.problems(cursor, self.sink, fields, repeats=self.job.may_repeat_rows)]
            if self._letters:
                repeats = self.job.may_repeat_rows
                problems += tables.problems(cursor, self._letters, dead_letters.fields(), repeats=repeats)
        if problems:
            raise combined(problems)

    def _require_version(self, server: int) -> None:
        """Raises JobError(TABLE_UNSUITABLE) for a server that is too old. server: as libpq has it, 150018 for 15.18."""
        if server < _OLDEST_SERVER:
            raise JobError(
                Reason.TABLE_UNSUITABLE,
                f"PostgreSQL at {self.sink.host}:{self.sink.port} has the version {server // 10_000}, and this sink "
                f"needs {_OLDEST_SERVER // 10_000} or newer; upgrade the server",
            )

    def require_permission(self) -> None:
        return  # check() reads the permissions

    def require_sole_use(self) -> None:
        return  # nothing but a person's statement moves positions here

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        return columns.to_sink_columns(output, self.sink)

    def prepare(self, rows: DataFrame) -> None:
        fields = rows.schema.fields
        with self._driver_transaction() as cursor:
            if self.sink.create_table:
                self._create_missing(cursor, fields)
            # What was created is rolled back with the error.
            tables.require(cursor, self.sink, fields, repeats=self.job.may_repeat_rows)
            if self._letters:
                tables.require(cursor, self._letters, dead_letters.fields(), repeats=self.job.may_repeat_rows)

    def _create_missing(self, cursor: Statements, fields: Sequence[StructField]) -> None:
        tables.lock_creation(cursor)  # two drivers may start at once
        # Also if there are positions: dead letters may have been declared since.
        if self._letters and tables.read(cursor, self._letters) is None:
            tables.create(cursor, self._letters, dead_letters.fields())
        if tables.read(cursor, self.sink) is not None:
            return
        if store.has_any(cursor, self.job.group):
            raise JobError(
                Reason.TABLE_UNSUITABLE,
                f"the database {self.sink.database} has no table {self._name}, and positions in ackwright.positions, "
                "so rows that were delivered are gone; restore the table, or create it by hand to continue without "
                "them",
            )
        tables.create(cursor, self.sink, fields)

    def worker_columns(self, rows: DataFrame) -> DataFrame:
        self.prepare(rows)  # for each query, since a driver that restarts may find another table
        return rows

    def join(self, lanes: Iterable[Lane]) -> Membership:
        deadline = time.monotonic() + self.job.operation_timeout_ms / 1000
        while True:
            try:
                self._create_positions()
                with self._driver_transaction() as cursor:
                    # For liveness alone: the tasks of an older driver hold the locks for as long as they hang.
                    store.terminate(cursor, self.job.group)
                    joined = store.join(cursor, self.job.group)
            except JobError as e:
                # A task of the older driver started in between, another driver joined at the same time, or a
                # transaction of another pipeline uses a table of positions that has to be altered.
                if e.reason is not Reason.POSITION_CONFLICT or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
            else:
                self._member = (joined, time.monotonic())
                return joined

    def _create_positions(self) -> None:
        """Creates the tables of positions and decisions if they are missing. Raises JobError."""
        with self._driver_transaction() as cursor:
            if self._has_settled and not store.has_any(cursor, self.job.group):
                raise JobError(
                    Reason.POSITION_LOST,
                    f"the positions of {self.job.group} are no longer in ackwright.positions of the database "
                    f"{self.sink.database}, so it is not known what was delivered; restore schema ackwright and table "
                    f"{self._name} from one backup",
                )
            store.create(cursor)
            if self.decisions:
                decisions.create(cursor)

    def is_member(self) -> bool:
        if self._member is None or time.monotonic() - self._member[1] < _MEMBER_FOR_S:
            return self._member is not None
        membership = self._member[0]
        self._member = (membership, time.monotonic())
        with suppress(JobError), self._driver_transaction() as cursor:
            if store.membership(cursor, self.job.group, lock=False) != membership:
                self._member = None
        return self._member is not None

    def member(self) -> str | None:
        return self._member[0].decode(errors="replace") if self._member else None

    def announce(self, address: str) -> None:
        return  # a pipeline with this sink has no standby (spec.standby)

    def owner(self) -> Owner | None:
        raise JobError(Reason.INVALID_SPEC, "a pipeline with sink.postgres has no standby; remove spec.standby")

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        lanes = list(lanes)
        with self._driver_transaction() as cursor:
            if not store.exist(cursor):
                return dict.fromkeys(lanes)
            return store.read(cursor, self.job.group, lanes, lock=False)

    def peek(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        return self.read(lanes)  # a transaction that has not ended hides nothing of what was committed

    def records(self) -> Records:
        with self._driver_transaction() as cursor:
            return store.records(cursor, self.job.group) if store.exist(cursor) else Records()

    def settle(
        self,
        positions: Mapping[Lane, Position],
        records: Mapping[Lane, Mapping[str, Any] | None],
        membership: Membership,
        *,
        accepted: str | None = None,
    ) -> None:
        with self._driver_transaction(membership) as cursor:
            self.move(cursor, positions)
            store.record(cursor, self.job.group, {lane: ends is not None for lane, ends in records.items()})
            if accepted is not None:
                store.accept(cursor, self.job.group, accepted)
        self._has_settled = True

    def stop(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        self.advance(positions, membership)

    def advance(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        with self._driver_transaction(membership) as cursor:
            self.move(cursor, positions)

    def output_ends(self) -> Mapping[str, Any]:
        return {}

    def trial(self) -> AbstractContextManager[TableTrial] | None:
        return None if self.job.state else self._trial()  # a row of the output of state is not of one record

    @contextmanager
    def _trial(self) -> Iterator[TableTrial]:
        connection = connect(self.sink)
        try:
            with translating("trying rows"), connection.cursor() as cursor:
                _begin(cursor, self.sink, store.session(self.job.group, "trial"))  # ended by a driver that joins
                yield TableTrial(cursor, self.sink)
        finally:
            connection.close()  # which rolls back

    @contextmanager
    def _driver_transaction(self, membership: Membership | None = None) -> Iterator[Statements]:
        """A transaction over a separate connection. membership: it fails unless this is still the latest."""
        connection = connect(self.sink)
        try:
            with (
                translating("moving positions" if membership else f"reading from {self.sink.host}"),
                connection.cursor() as c,
            ):
                _begin(c, self.sink, "ackwright")
                if membership is not None:
                    store.require_member(c, self.job.group, membership, lock=self.locks)
                yield c
                connection.commit()
        finally:
            connection.close()

    # ------------------------------------------------------------ the tasks

    def open(self, slot: int | str, lanes: Sequence[Lane], membership: Membership) -> PostgresTransaction:
        def begin(cursor: Statements) -> Mapping[Lane, Position | None]:
            _begin(cursor, self.sink, store.session(self.job.group, slot))
            if self.locks:
                store.terminate(cursor, self.job.group, slot, member=membership)
            store.require_member(cursor, self.job.group, membership, lock=self.locks)
            return store.read(cursor, self.job.group, lanes, lock=self.locks)

        return PostgresTransaction(self, lambda: self._on_open_connection(begin))

    def write(self, lanes: Sequence[Lane], rows: Rows, letters: Rows = (), *, membership: Membership) -> int:
        rows = fetched(rows)

        def begin(cursor: Statements) -> None:
            _begin(cursor, self.sink, "ackwright")
            store.require_same_server(cursor, membership)  # on which the rows are claimed, or the positions will move

        self._on_open_connection(begin)
        return self.finish(lambda cursor: self.insert(cursor, rows, letters))

    def insert(self, cursor: Statements, rows: Rows, letters: Rows) -> int:
        """Writes the rows, and then the dead letters; returns the number of rows."""
        written = tables.write(cursor, self.sink, rows)
        if self._letters:
            tables.write(cursor, self._letters, dead_letters.rows(letters, self.job.group))
        return written

    def move(self, cursor: Statements, positions: Mapping[Lane, Position]) -> None:
        """Sets positions."""
        store.move(cursor, self.job.group, positions, decides=self.decisions is not None)

    def write_dead_letters(self, letters: Any) -> None:
        raise JobError(Reason.UNEXPECTED, "sink.postgres writes dead letters with the rows; report this")

    def finish(self, write: Callable[[Statements], T]) -> T:
        """What `write` returns, once the open transaction is committed. After any error it is over."""
        connection = self._connection
        if connection is None:
            raise JobError(Reason.SINK_UNREACHABLE, "the transaction is over; the next attempt reads the positions")
        try:
            what = f"writing to table {self._name}"
            with connection.cursor() as cursor:
                with translating(what, no_answer=Reason.TRANSACTION_TIMED_OUT):  # of fewer rows it may be in time
                    result = write(cursor)
                with translating(what):
                    connection.commit()
                return result
        except BaseException:
            self.close()  # it may be in any state
            raise

    def close(self) -> None:
        """Closes the tasks' connection; an open transaction is rolled back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _on_open_connection(self, begin: Callable[[Statements], T]) -> T:
        """What `begin` returns, in a new transaction. The connection of the last task may be broken: then a new one."""
        if self._connection is not None and self._connection.info.transaction_status is not TransactionStatus.IDLE:
            self.close()  # of a task that neither committed nor released
        reused = self._connection is not None
        if self._connection is None:
            self._connection = connect(self.sink)
        try:
            with translating("locking the positions"), self._connection.cursor() as cursor:
                return begin(cursor)
        except JobError as e:
            self.close()
            if reused and e.reason is Reason.SINK_UNREACHABLE:
                return self._on_open_connection(begin)
            raise

    @property
    def idle_s(self) -> float:
        """For how long a transaction may be silent, with a margin."""
        return self.sink.transaction_timeout_ms / 2000

    @property
    def _name(self) -> str:
        return f"{self.sink.schema}.{self.sink.table}"


class PostgresTransaction:
    """A transaction that has locked the positions of some lanes."""

    def __init__(self, sink: PostgresStore, begin: Callable[[], Mapping[Lane, Position | None]]) -> None:
        """begin: locks the positions in a new transaction and returns them."""
        self._sink, self._begin, self.positions = sink, begin, begin()

    def commit(
        self,
        positions: Mapping[Lane, Position],
        rows: Rows = (),
        letters: Rows = (),
        *,
        also: Callable[[Statements], None] | None = None,  # what else is done in the transaction, if anything
    ) -> int:
        try:
            started = time.monotonic()
            rows = fetched(rows)
            # The server ends a transaction that is silent for long.
            if time.monotonic() - started > self._sink.idle_s and self._begin() != self.positions:
                raise JobError(Reason.POSITION_CONFLICT, "the positions moved while the rows were computed")
        except BaseException:
            self._sink.close()
            raise

        def write(cursor: Statements) -> int:
            written = self._sink.insert(cursor, rows, letters)
            self._sink.move(cursor, positions)
            if also:
                also(cursor)
            fault_point("before-commit", *positions)
            return written

        written = self._sink.finish(write)
        fault_point("after-commit", *positions)
        return written

    def release(self) -> None:
        self._sink.finish(lambda cursor: cursor.connection.rollback())


def fetched(rows: Rows) -> Rows:
    """The rows, of which the first batch is computed already: no transaction has to wait for it."""
    batches = iter(rows)
    return chain(list(islice(batches, 1)), batches)


def _begin(cursor: Statements, sink: PostgresSink, application_name: str) -> None:
    """Begins a transaction with the job's settings, and a name by which others can end it."""
    settings = {**sink.session, "application_name": application_name}
    calls = ", ".join("set_config(%s, %s, true)" for _ in settings)
    cursor.execute(f"SELECT {calls}", [part for setting in settings.items() for part in setting])


@contextmanager
def translating(what: str, *, no_answer: Reason = Reason.SINK_UNREACHABLE) -> Iterator[None]:
    """Raises JobError in place of the errors of psycopg. no_answer: the reason if the server does not answer."""
    try:
        yield
    except psycopg.Error as e:
        raise translate(e, what, no_answer=no_answer) from None  # a log of the error would quote values of rows
