"""The seam between the guarantees and the stores that rows are delivered to.

A sink keeps the rows and the positions in one store, so that both can change in one atomic step. It fences, reads and
moves positions; it never decides what a position means: that is lanes.py, the same for every sink. The order of writing
and moving is delivery/.

A new sink is its part of the jobspec (as jobspec.KafkaSink), a class with the methods of `Sink`, and one call of
registry.register(). Nothing here, and nothing in a sink, may ask which guarantee is declared: what it needs to know is
passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from ackwright_stream.jobspec import Guarantee
from ackwright_stream.positions import Lane, Position
from ackwright_stream.spark_internals.execution import Execution

Rows = Iterable[pa.RecordBatch]


class Transaction(Protocol):
    """Some lanes, fenced and read, for one commit or one release. Every method but `positions` ends it."""

    @property
    def positions(self) -> Mapping[Lane, Position | None]:
        """The positions as they were after the fencing; None where a lane has none.

        If another driver or task moves one from here on, this transaction cannot commit.
        """
        ...

    def commit(self, positions: Mapping[Lane, Position], rows: Rows = ()) -> int:
        """Writes the rows and moves the positions, both or neither; returns the number of rows.

        Raises JobError(POSITION_CONFLICT) if another owner was faster. After any other JobError the outcome may be
        unknown: the caller opens the lanes again, and the positions tell. An error that `rows` raises is passed on, and
        nothing is committed.
        """
        ...

    def initialise(self, positions: Mapping[Lane, Position], output_ends: Mapping[str, Any] | None = None) -> None:
        """Commits first positions together with the record that the lanes have one (docs/protocol.md#rule-4).

        output_ends: what Sink.output_ends() returned, for lanes of a topic that was recreated; None for other lanes.
        """
        ...

    def release(self) -> None:
        """Ends the transaction without a change."""
        ...


class SparkWriter(Protocol):
    """Spark's own writer for a store, for a guarantee that writes a whole batch before it moves positions."""

    def columns(self, output: DataFrame) -> DataFrame:
        """The columns that write() takes, of a frame that Sink.to_sink_columns() returned."""
        ...

    def write(self, rows: DataFrame, execution: Execution, lanes: Sequence[Lane]) -> None:
        """Returns when every row of the batch is durable.

        rows: the batch as foreachBatch passes it. execution: the running batch's own, which gives the same rows with
        less work. lanes: the lane of each task, by the task's number.
        """
        ...


class Sink(Protocol):
    """One store of rows and positions, for one pipeline and one process.

    A driver uses all methods, a task only open(), write() and read(). Every method raises JobError.
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
    def spark_writer(self) -> SparkWriter | None:
        """Spark's own writer for this store; None: tasks write with write()."""
        ...

    def check(self) -> None:
        """Raises JobError for the first thing that the store lacks.

        Called before the driver starts; changes nothing.
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

    def worker_columns(self, rows: DataFrame) -> DataFrame:
        """The columns of to_sink_columns() that a task needs."""
        ...

    def fence_drivers(self) -> None:
        """Ends what older drivers may still do by advance(). Called once, before the lanes are opened."""
        ...

    def open(self, lanes: Sequence[Lane]) -> Transaction:
        """Fences the lanes, then reads their positions.

        The order matters: nobody can move a position unnoticed after it was read.
        """
        ...

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        """The positions, without fencing."""
        ...

    def recorded_lanes(self) -> Mapping[Lane, str]:
        """The lanes that ever had a first position, each with the id that its topic had then."""
        ...

    def advance(self, positions: Mapping[Lane, Position]) -> None:
        """Moves the positions in one step, without rows, as the driver that called fence_drivers() last."""
        ...

    def write(self, lane: Lane, rows: Rows) -> int:
        """Writes the rows outside of a transaction; returns their number.

        It waits for the acknowledgement that the jobspec asks for.
        """
        ...

    def output_ends(self) -> Mapping[str, Any]:
        """Where the output ends now, open transactions included, for the audit of a topic that is recreated.

        JSON values.
        """
        ...
