"""A table as the store of rows and positions: tasks write files, and the driver commits both as a new version of it.

A commit compares the version of the table: it creates the one after that which was read, or fails. So what a driver has
read of a version, its generation and its positions, is so until its commit. If another program has created that version
first, the driver reads again, and continues only if generation and positions are as before (tests/model:
compare_and_set.py).
"""

from __future__ import annotations

import random
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ackwright_stream.errors import JobError, combined
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import DeadLetterTopic, Guarantee, JobSpec, Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Membership, Owner, Records, Rows, Staged, StagedRows
from ackwright_stream.sinks.letter_topic import LetterTopic
from ackwright_stream.sinks.staged import columns
from ackwright_stream.sinks.staged import positions as store
from ackwright_stream.sinks.staged.decisions import Decided, TableDecisions
from ackwright_stream.sinks.staged.log import F, Log, V
from ackwright_stream.sinks.staged.parquet import FileFormat
from ackwright_stream.sinks.staged.table import Place, Table
from ackwright_stream.sinks.staged.trial import RowTrial

_MEMBER_FOR_S = 5.0  # is_member() reads the table at most this often
_AGAIN_S = 0.05  # before a commit that was overtaken is repeated, at most


class StagingStore(ABC, Generic[V, F]):
    """The sink of one pipeline, in a driver or in a worker."""

    supports = frozenset(Guarantee)
    spark_writer = None
    takes_dead_letters = True
    keeps_numbers_apart = False  # whether another program can remove one number of the pipeline and leave the others
    marks_rows = True  # whether publish() writes a number that tells whether its rows are there; else append() tells
    compares = True  # False in a negative control: neither generation nor positions are compared

    def __init__(
        self, job: JobSpec, log: Log[V, F], place: Place, letters: DeadLetterTopic | None, *, create_table: bool
    ) -> None:
        self._letters = LetterTopic(job, letters)
        self.topics = self._letters.topics
        self.job, self._log, self._place, self._creates = job, log, place, create_table
        self.names = store.Names(job.group)
        self.decisions = TableDecisions(self, job.state) if job.state else None
        self._version: V | None = None  # the latest, as far as this driver knows; None: it has to read
        self._written: StructType | None = None  # the columns of the files that tasks write
        self._member: tuple[Membership, float] | None = None  # and when it was last known to be one
        self._watched: V | None = None  # by is_member(), which another thread calls than the batch's
        self._lanes: set[Lane] = set()  # that this driver has asked for
        self._has_settled = False  # whether this process has committed positions

    @abstractmethod
    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        """As in Sink."""

    @abstractmethod
    def stage(self, rows: Rows) -> tuple[int, Staged]:
        """As in Staging."""

    @abstractmethod
    def staged(self, of_tasks: Iterable[Staged]) -> Sequence[F]:
        """The files that stage() returned."""

    @abstractmethod
    def file_format(self, version: V) -> FileFormat:
        """How a version of the table has its rows."""

    @property
    def staging(self) -> Self:
        return self

    # ------------------------------------------------------------ the table

    def check(self, rows: DataFrame | None = None) -> None:
        version = self._log.read()
        if version is None:
            self._require_creation()
            return
        problems = list(self._log.problems(version))
        if unfit := version.table.problems(self._place, rows and rows.schema.fields):
            problems.append(self._place.unsuitable(unfit))
        if problems:
            raise combined(problems)

    def require_permission(self) -> None:
        self._log.require_permission(self._log.read())

    def require_sole_use(self) -> None:
        return  # nothing but a person's commit moves positions here

    def prepare(self, rows: DataFrame) -> None:
        self._suitable_table(rows)

    def worker_columns(self, rows: DataFrame) -> DataFrame:
        table = self._suitable_table(rows)  # for each query, since a driver that restarts may find another table
        written = columns.in_types_of(rows, table.schema)
        self._written = written.schema
        return written

    def _suitable_table(self, rows: DataFrame) -> Table:
        """The table, if rows with these columns can be written to it; created if the spec says so."""
        version = self._log.read()
        if version is None:
            self._require_creation()
            self._log.create(rows.schema)
            version = self._required()
        version.table.require(self._place, rows.schema.fields)
        return version.table

    def _require_creation(self) -> None:
        """Raises JobError(TABLE_UNSUITABLE) if a missing table is not to be created."""
        if not self._creates or self.job.expects_positions:
            raise self._place.missing(delivered=self.job.expects_positions)

    # ------------------------------------------------------------ the driver

    def join(self, lanes: Iterable[Lane]) -> Membership:
        self._lanes |= set(lanes)
        self._version = None  # of a commit before whose outcome is unknown, the latest version tells
        deadline = time.monotonic() + self.job.operation_timeout_ms / 1000
        while True:
            version = self._current()
            if self._has_settled and version.lookup(self.names.driver) is None:
                raise JobError(
                    Reason.POSITION_LOST,
                    f"the positions of {self.job.group} are no longer in the {self._place.kind} {self._place.name}, "
                    "so it is not known what was delivered; restore the table with them",
                )
            # Before the join, which writes the generation again. A log reads each record, and loses none alone.
            to_check = self._lanes if self.keeps_numbers_apart else ()
            store.require_complete(self.names, version.lookup, to_check, self.job.source.topics)
            # Another driver that reads the same version cannot raise it to the same generation: one of the two commits
            # is refused. If the outcome is unknown, a later join takes the next generation.
            generation = (version.lookup(self.names.generation) or 0) + 1
            if self._create(version, {self.names.generation: generation}):
                self._log.require_conditional(version)
                membership = str(generation).encode()
                self._member, self._watched = (membership, time.monotonic()), None
                return membership
            self._pause(deadline)

    def is_member(self) -> bool:
        if self._member is None or time.monotonic() - self._member[1] < _MEMBER_FOR_S:
            return self._member is not None
        membership = self._member[0]
        self._member = (membership, time.monotonic())
        with suppress(JobError):  # then it is not known, and a commit will tell
            self._watched = self._log.update(self._watched) if self._watched else self._required()
            if self._generation(self._watched) != membership:
                self._member = None
        return self._member is not None

    def member(self) -> str | None:
        return self._member[0].decode() if self._member else None

    def announce(self, address: str) -> None:
        return  # a pipeline with this sink has no standby (spec.standby)

    def owner(self) -> Owner | None:
        raise JobError(Reason.INVALID_SPEC, f"a pipeline with {self._place.spec} has no standby; remove spec.standby")

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        lanes = list(lanes)
        self._lanes |= set(lanes)
        return store.read(self.names, self._current().lookup, lanes, self.job.identity)

    def peek(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        self._version = None
        return self.read(lanes)

    def records(self) -> Records:
        """As far as lanes were asked for."""
        version = self._current()
        return Records(
            store.recorded_lanes(self.names, version.lookup, self._lanes),
            accepted=store.fingerprint(version.lookup(self.names.accepted)),
            driver=version.lookup(self.names.driver) or 0,
            joined=version.lookup(self.names.generation) is not None,
        )

    def settle(
        self,
        positions: Mapping[Lane, Position],
        records: Mapping[Lane, Mapping[str, Any] | None],
        membership: Membership,
        *,
        accepted: str | None = None,
    ) -> None:
        to_record = set(records)
        if self.keeps_numbers_apart:  # the next join requires them, also of new lanes whose position was set by hand
            to_record |= store.without_record(self.names, self._current().lookup, positions)
        numbers = {**self._settled(positions), **store.recorded(self.names, positions, to_record)}
        numbers[self.names.topics] = store.topics_number(self.job.source.topics)
        if accepted is not None:
            numbers[self.names.accepted] = store.accepted(accepted)
        self._commit(membership, numbers)
        self._has_settled = True

    def stop(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        if positions:
            self._commit(membership, self._settled(positions), self._as_read(positions))

    def _settled(self, positions: Mapping[Lane, Position]) -> store.Numbers:
        numbers = store.settled(self.names, positions)
        if self.decisions is None or not positions:
            return numbers
        [batch] = {position.batch for position in positions.values()}
        return {**numbers, **store.of_batch(self.names, batch)}

    def number(self, name: str) -> int | None:
        """One of the pipeline's numbers in the latest version, as far as this driver knows."""
        return self._current().lookup(name)

    def advance(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        self._commit(membership, store.moved(self.names, positions), self._as_read(positions))

    @contextmanager
    def trial(self) -> Iterator[RowTrial]:
        version = self._required()
        yield RowTrial(self._place, version.table, self.file_format(version))

    def output_ends(self) -> Mapping[str, Any]:
        return {}

    def write(self, lanes: Sequence[Lane], rows: Rows, letters: Rows = (), *, membership: Membership) -> int:
        raise JobError(
            Reason.UNEXPECTED, f"a task of {self._place.spec} stages its rows and never commits; report this"
        )

    def write_dead_letters(self, letters: pa.RecordBatch) -> None:
        self._letters.write(letters)

    def write_all_dead_letters(self, letters: Rows, lanes: Iterable[Lane]) -> None:
        """Writes the dead letters of a stateful batch; returns when all are durable. Raises JobError."""
        self._letters.write_all(letters, lanes)

    # ------------------------------------------------------------ rows

    def publish(self, rows: StagedRows, membership: Membership) -> None:
        numbers = {self.names.rows: secrets.randbits(62)} if self.marks_rows else {}
        self._commit(membership, numbers, added=self.staged(rows.of_tasks))

    def open(self, slot: int, lanes: Sequence[Lane], membership: Membership) -> StagedTransaction:
        return self.open_staged(lanes, membership, StagedRows((), 0))

    def open_staged(self, lanes: Sequence[Lane], membership: Membership, rows: StagedRows) -> StagedTransaction:
        self._require_member(self._current(), membership)
        return StagedTransaction(self, self.read(lanes), membership, rows)

    # ------------------------------------------------------------ commits

    def commit(
        self,
        membership: Membership,
        positions: Mapping[Lane, Position],
        read: Mapping[Lane, Position | None],
        rows: StagedRows,
        decision: Decided | None = None,
    ) -> None:
        """Commits positions and rows. read: the positions that the decision to do so was made from.

        decision: of a stateful pipeline.
        """
        unchanged: dict[str, int | None] = {
            self.names.lane(lane, position.topic_id): position.offset for lane, position in read.items() if position
        }
        unchanged |= self._as_read(read)
        numbers = store.moved(self.names, positions)
        if decision is not None:
            numbers = {**numbers, **decision.numbers}
            unchanged[self.names.decision] = decision.before
        note = {self.names.decision: decision.note} if decision else None
        self._commit(membership, numbers, unchanged, self.staged(rows.of_tasks), note)

    def _as_read(self, positions: Mapping[Lane, Position | None]) -> dict[str, int]:
        """That the positions are those of the driver that has committed these; all have the same one."""
        driver = next((position.driver for position in positions.values() if position), None)
        return {} if driver is None else {self.names.driver: driver}

    def _commit(
        self,
        membership: Membership,
        numbers: store.Numbers,
        unchanged: Mapping[str, int | None] | None = None,
        added: Sequence[F] = (),
        note: Mapping[str, str] | None = None,
    ) -> None:
        """Creates the next version of the table, with these numbers and files.

        unchanged: numbers that the version before must have. note: as Log.append() takes it. Raises
        JobError(POSITION_CONFLICT) if another driver has joined, or if one of them is another. After any other JobError
        the outcome may be unknown.
        """
        deadline = time.monotonic() + self.job.operation_timeout_ms / 1000
        while True:
            version = self._current()
            # Failure window: a newer driver has joined, and this one reads the table only now.
            self._require_member(version, membership)
            # Failure window: a commit of this driver whose outcome was unknown has arrived late.
            moved = [name for name, number in (unchanged or {}).items() if version.lookup(name) != number]
            if moved and self.compares:
                raise JobError(
                    Reason.POSITION_CONFLICT,
                    f"positions have moved since they were read ({', '.join(moved[:5])}); this driver restarts from "
                    "the positions",
                )
            if added:
                self._require_suitable(version, added)
            # With the generation, so that two commits of a pipeline conflict for each client of the table.
            if self._create(version, {self.names.generation: int(membership), **numbers}, added, note):
                return
            # Failure window: the client of a server has sent the request twice, and the second one was refused because
            # of the first. Another program may have rewritten the files since, so a table takes them again.
            mark = numbers.get(self.names.rows)
            if mark is not None and self._current().lookup(self.names.rows) == mark:
                return
            self._pause(deadline)

    def _require_suitable(self, version: V, added: Sequence[F]) -> None:
        """Raises JobError if the table does not take these files any more."""
        try:
            if self._written is not None:
                version.table.require_written(self._place, self._written)
            version.table.require_values(self._place, [file.nulls for file in added])
            self._log.require_files(version, added)
        except JobError:
            self._version = None  # somebody may change the table again
            raise

    def _create(
        self, version: V, numbers: store.Numbers, added: Sequence[F] = (), note: Mapping[str, str] | None = None
    ) -> bool:
        """Whether the version after this one could be created. If not, or after an error, the next step reads again."""
        self._version = None
        if not self._log.append(version, numbers, added, note):
            self._version = self._log.update(version)
            return False
        self._version = self._log.following(version, numbers)
        if self._version is not None:
            self._log.maintain(self._version)
        return True

    def _current(self) -> V:
        """The latest version, as far as this driver knows. Its commit fails if there is a later one."""
        if self._version is None:
            self._version = self._required()
        return self._version

    def _required(self) -> V:
        version = self._log.read()
        if version is None:
            raise self._place.missing()
        return version

    def _generation(self, version: V) -> Membership:
        return str(version.lookup(self.names.generation) or "").encode()

    def _require_member(self, version: V, membership: Membership) -> None:
        if self.compares and self._generation(version) != membership:
            raise JobError(Reason.POSITION_CONFLICT, "another driver has joined; it owns the pipeline")

    def _pause(self, deadline: float) -> None:
        """Waits before a commit that another one has overtaken is tried again."""
        if time.monotonic() > deadline:
            raise JobError(
                Reason.SINK_UNREACHABLE,
                f"other programs commit to {self._place.name} so often that no commit of this pipeline came through in "
                f"{self.job.operation_timeout_ms / 1000:.0f} s ({self._log.refusal}); let them commit less often",
            )
        time.sleep(random.uniform(0, _AGAIN_S))  # noqa: S311 (jitter)


class StagedTransaction:
    """Positions of a version of the table, to be moved in the next one."""

    def __init__(
        self,
        sink: StagingStore[Any, Any],
        positions: Mapping[Lane, Position | None],
        membership: Membership,
        rows: StagedRows,
    ) -> None:
        self._sink, self.positions, self._membership, self._rows = sink, positions, membership, rows

    def commit(self, positions: Mapping[Lane, Position], rows: Rows = (), letters: Rows = ()) -> int:
        if any(batch.num_rows for batch in rows):
            raise JobError(Reason.UNEXPECTED, "rows that were not staged reached a commit; report this")
        fault_point("before-commit", *positions)
        self._sink.commit(self._membership, positions, self.positions, self._rows)
        fault_point("after-commit", *positions)
        return self._rows.records

    def release(self) -> None:
        return
