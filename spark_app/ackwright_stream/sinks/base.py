"""The seam between the guarantees and the stores that rows are delivered to.

A sink keeps the rows and the positions in one store, so that both can change in one atomic step. It fences, reads and
moves positions; it never decides what a position means: that is lanes.py, the same for every sink. The order of writing
and moving is delivery/.

docs/design.md lists the parts of a new sink. Nothing here, and nothing in a sink, may depend on the declared guarantee:
what it needs to know is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee
from ackwright_stream.positions import Lane, Position
from ackwright_stream.spark_internals.execution import Execution

Rows = Iterable[pa.RecordBatch]
Staged = bytes  # what Staging.stage() returned: which files hold the rows of a task
Membership = bytes  # what the store accepts commits of: the latest that Sink.join() returned, and no earlier one


@dataclass(frozen=True)
class Owner:
    """The driver that joined last."""

    member: str  # Sink.member() of that driver
    address: str | None  # as passed to its announce(); None: it has not settled its lanes yet, or announces none
    stopped: bool  # whether the last driver that settled its lanes has drained and stopped since


class Transaction(Protocol):
    """Some lanes of one task, read, for one commit or one release. Every method but `positions` ends it."""

    @property
    def positions(self) -> Mapping[Lane, Position | None]:
        """The positions as they are after the store ended what the task's earlier attempts left open.

        None where a lane has none. If a later attempt of the task opens its slot, or another driver joins, this
        transaction cannot commit.
        """
        ...

    def commit(self, positions: Mapping[Lane, Position], rows: Rows = (), letters: Rows = ()) -> int:
        """Writes the rows and moves the positions, both or neither; returns the number of rows.

        letters: dead letters (dead_letters.COLUMNS), written in the same step, or durable in another store before it;
        they are read after the rows have ended.

        Raises JobError(POSITION_CONFLICT) if another owner was faster, and TRANSACTION_TIMED_OUT if the store may have
        ended the transaction because its rows took too long. After any other JobError the outcome may be unknown: the
        caller opens the lanes again, and the positions tell. An error that `rows` or `letters` raise is passed on, and
        nothing is committed.
        """
        ...

    def release(self) -> None:
        """Ends the transaction without a change."""
        ...


@dataclass(frozen=True)
class StagedRows:
    """The rows of all tasks of a batch, as a sink with Sink.staging takes them."""

    of_tasks: tuple[Staged, ...]
    records: int


class Staging(Protocol):
    """Rows in two steps, for a store that takes a whole batch in one commit: tasks write files, the driver commits.

    No reader sees a file before the driver has committed it. Files that are never committed remain until somebody
    removes them.
    """

    def stage(self, rows: Rows) -> tuple[int, Staged]:
        """Writes the rows durably, in a task; returns their number and what a commit needs. Raises JobError."""
        ...

    def open_staged(self, lanes: Sequence[Lane], membership: Membership, rows: StagedRows) -> Transaction:
        """As Sink.open(), in the driver. Its commit() moves the positions and makes these rows visible, in one step.

        commit() gets no further rows, and reads the iterator that it gets to its end.
        """
        ...

    def publish(self, rows: StagedRows, membership: Membership) -> None:
        """Commits rows without a position, in the driver. Raises JobError; the outcome may then be unknown."""
        ...


class BatchTransaction(Protocol):
    """All lanes of a stateful pipeline, read, for one commit or one release. Either ends it."""

    @property
    def positions(self) -> Mapping[Lane, Position | None]:
        """As Transaction.positions."""
        ...

    def commit(self, positions: Mapping[Lane, Position], rows: Rows, decision: str, letters: Rows = ()) -> int:
        """Writes the rows and the decision and moves the positions, all or nothing; returns the number of rows.

        There are no rows and no dead letters if they are written before or after. letters: as Transaction.commit()
        takes them.

        Raises JobError as Transaction.commit() does.
        """
        ...

    def release(self) -> None:
        """Ends the transaction without a change."""
        ...


class OutputWriter(Protocol):
    """Writes rows outside of the commit of a decision, in the driver."""

    def write(self, rows: Rows, letters: Rows = (), *, acknowledged: bool) -> int:
        """Writes the rows and the dead letters (dead_letters.COLUMNS); returns the number of rows.

        acknowledged: returns when all are durable, and raises JobError otherwise: some may be there then. Without
        it each row is sent once at most, and nothing is known of it.
        """
        ...


class Decisions(Protocol):
    """The decisions of a stateful pipeline, in the driver."""

    @property
    def writer(self) -> OutputWriter | None:
        """Writes output that is not in the commit of its decision.

        None: the store takes output and decision in one commit, which is no more work than two steps, so each guarantee
        is delivered by it.
        """
        ...

    def last(self) -> str | None:
        """The last decision of the pipeline; None if there is none.

        Waits for a transaction of this pipeline that has not ended. Raises JobError.
        """
        ...

    def earlier(self) -> Iterable[str]:
        """The decisions before the last one that are still there, newest first. Raises JobError."""
        ...

    def open(self, lanes: Sequence[Lane], membership: Membership) -> BatchTransaction:
        """As Sink.open(), for all lanes of the pipeline."""
        ...


class SparkWriter(Protocol):
    """Spark's own writer for a store, for a guarantee that writes a whole batch before it moves positions."""

    def columns(self, output: DataFrame) -> DataFrame:
        """The columns that write() takes, of a frame that Sink.to_sink_columns() returned.

        May ask the store what has to exist for that. Raises JobError.
        """
        ...

    def write(self, rows: DataFrame, execution: Execution, lanes: Sequence[Lane]) -> None:
        """Returns when every row of the batch is durable.

        rows: the batch as foreachBatch passes it. execution: the running batch's own, which gives the same rows with
        less work. lanes: the lane of each value of the column SOURCE.
        """
        ...


class Trial(Protocol):
    """Rows that are written and rolled back, to learn which of them the store refuses."""

    def refusal(self, rows: pa.Table) -> JobError | None:
        """Why the store refuses these rows of worker_columns(), with the values if there is one row.

        None if it takes them; then it has them when it takes the next ones. Raises JobError for anything else.
        """
        ...


@dataclass
class Records:
    """What a store says of one pipeline beside its positions."""

    lanes: dict[Lane, str] = field(default_factory=dict)  # that ever had a position, with the id of their topic then
    # What the last stop() recorded; empty if a driver has taken the pipeline since.
    final: dict[Lane, Position] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)  # of the last driver that announced one, by its member()
    accepted: str = ""  # the last settle()'s `accepted`, if there was one
    driver: int = 0  # number of the last driver that settled, or a higher one; 0 if the store does not record it
    source: str = ""  # id of the source's cluster, as that driver read it; empty if the store does not record it
    joined: bool = False  # whether a driver of the pipeline has ever joined; False if the store does not record it


class Sink(Protocol):
    """One store of rows and positions, for one pipeline and one process.

    A driver uses all methods, a task only open() and write(). Every method raises JobError.
    """

    @property
    def supports(self) -> frozenset[Guarantee]:
        """The guarantees that it can deliver."""
        ...

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics on the source's cluster that the sink uses; they are checked together with the source's."""
        ...

    @property
    def takes_dead_letters(self) -> bool:
        """Whether it writes dead letters; if not, they are refused when the driver starts."""
        ...

    @property
    def spark_writer(self) -> SparkWriter | None:
        """Spark's own writer for this store; None: tasks write with write()."""
        ...

    @property
    def staging(self) -> Staging | None:
        """How rows are staged, if the driver commits each batch; None: tasks commit.

        With it open() is called in the driver alone, and write() never.
        """
        ...

    @property
    def decisions(self) -> Decisions | None:
        """Where decisions are; None: the sink takes no stateful pipeline, and it is refused when the driver starts."""
        ...

    def check(self, rows: DataFrame | None = None) -> None:
        """Raises JobError with what the store lacks.

        Called before the driver starts, and for `ackwright check`; changes nothing. rows: columns of to_sink_columns()
        that the store has to take as well, as far as it can say so before prepare().
        """
        ...

    def require_permission(self) -> None:
        """Raises JobError if the job may not write, as far as a request tells that changes nothing.

        For `ackwright check`, if check() does not know it.
        """
        ...

    def require_sole_use(self) -> None:
        """Raises JobError(GROUP_IN_USE) if another program moves the positions as well.

        Part of check(), repeated before a restart.
        """
        ...

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        """The transform's output in the sink's columns.

        Contacts no server. Raises JobError(INVALID_TRANSFORM) with every problem at once.
        """
        ...

    def prepare(self, rows: DataFrame) -> None:
        """Raises JobError if the store does not take the columns of to_sink_columns(), with every problem at once.

        Called once by a driver, before it takes the pipeline. Creates what the spec requires the sink to create.
        """
        ...

    def worker_columns(self, rows: DataFrame) -> DataFrame:
        """The columns of to_sink_columns() that a task needs."""
        ...

    def join(self, lanes: Iterable[Lane]) -> Membership:
        """Makes this driver the only one that can move positions, until another one joins.

        What an older driver's transactions have not yet moved they cannot move any more; what they have moved and not
        yet committed, read() waits for. Each query joins again, also one that the same driver restarts. lanes: those
        that an older release of Ackwright may still work on.
        """
        ...

    def is_member(self) -> bool:
        """Whether the membership of the last join() is still accepted, as far as this process knows."""
        ...

    def member(self) -> str | None:
        """The name of the membership of the last join(), another one after each; None before the first."""
        ...

    def announce(self, address: str) -> None:
        """Makes each later settle() publish the address of this driver, host:port, for owner() of another driver."""
        ...

    def owner(self) -> Owner | None:
        """The driver that joined last; None if the store knows that there is none any more. Joins nothing."""
        ...

    def open(self, slot: int, lanes: Sequence[Lane], membership: Membership) -> Transaction:
        """Ends what earlier attempts with this slot left open, then reads the lanes' positions.

        The order matters: an earlier attempt cannot move a position after it was read. slot: the number of the task in
        its batch; no two tasks of a batch have the same.
        """
        ...

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        """The positions. Waits for those of transactions that have not ended."""
        ...

    def peek(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        """The positions as they are now, without waiting. Good for a refusal only."""
        ...

    def settle(
        self,
        positions: Mapping[Lane, Position],
        records: Mapping[Lane, Mapping[str, Any] | None],
        membership: Membership,
        *,
        accepted: str | None = None,
    ) -> None:
        """Commits the positions of a driver that takes its lanes, and records lanes, in one step.

        records: lanes that get the record that they have a position (docs/protocol.md#rule-4), each with what
        output_ends() returned if the lane's topic was recreated, else None. accepted: the fingerprint of positions that
        another program has set and that this step takes over.
        """
        ...

    def records(self) -> Records:
        """What is recorded of the pipeline beside its positions."""
        ...

    def stop(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        """Records that these positions are final, in one step with the positions themselves.

        settle() removes that record, so it exists only as long as no driver has taken the pipeline since.
        """
        ...

    def advance(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        """Moves the positions in one step, without rows."""
        ...

    def write(self, lanes: Sequence[Lane], rows: Rows, letters: Rows = (), *, membership: Membership) -> int:
        """Writes the rows of these lanes apart from positions; returns their number.

        It waits for the acknowledgement that the jobspec sets. letters: as Transaction.commit() takes them. membership:
        of the driver, which may have been replaced. Rows and positions are to be in the same store, so a sink raises
        JobError(POSITION_CONFLICT) if the driver has joined another one than it would write to.
        """
        ...

    def write_dead_letters(self, letters: pa.RecordBatch) -> None:
        """Writes dead letters (dead_letters.COLUMNS) outside of a transaction, and returns when they are durable.

        Only for a sink with a spark_writer or with staging, in a task, and for the driver of a stateful pipeline.
        """
        ...

    def trial(self) -> AbstractContextManager[Trial] | None:
        """Rows to try after JobError(ROW_REFUSED); None: that error names the record, or is never raised."""
        ...

    def output_ends(self) -> Mapping[str, Any]:
        """Where the output ends now, open transactions included, for the audit of a topic that is recreated.

        JSON values.
        """
        ...
