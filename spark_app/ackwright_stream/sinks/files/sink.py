"""Parquet files as a sink: a task creates one for each range of a lane, and that file is also the lane's new position.

A file is named by the beginning of its range, and created only if none has its name. So a lane's position moves by a
compare-and-set: of all programs that deliver from one offset, the first decides where the range ends, and its rows are
the right ones, also those of a driver that was replaced. Another one meets the file and reads the position again
(tests/model: named_files.py). Generations only keep drivers from getting in each other's way.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ackwright_stream.errors import JobError, combined
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import FilesSink, Guarantee, JobSpec, Reason
from ackwright_stream.positions import LANE, Lane, Position
from ackwright_stream.sinks.base import Membership, Owner, Records, Rows
from ackwright_stream.sinks.files import columns, layout
from ackwright_stream.sinks.files import storage as storages
from ackwright_stream.sinks.files.batches import Batches, BatchTransaction, FileDecisions
from ackwright_stream.sinks.files.chain import Chains
from ackwright_stream.sinks.files.rows import RowFiles
from ackwright_stream.sinks.files.state import Entry, LaneState, State, StateLog
from ackwright_stream.sinks.files.trial import RowTrial
from ackwright_stream.sinks.letter_topic import LetterTopic
from ackwright_stream.spark_internals.arrow import arrow_schema

log = logging.getLogger(__name__)

_MEMBER_FOR_S = 5.0  # is_member() reads the state at most this often
_RECORDED_EVERY_S = 900.0  # the positions, which are in files, in the state as well
_AGAIN_S = 0.05  # before an entry that another one has overtaken is written again, at most


class FilesStore:
    """The sink of one pipeline, in a driver or in a worker."""

    supports = frozenset(Guarantee)
    spark_writer = None
    takes_dead_letters = True
    staging = None
    compares = True  # False in a control: generations are not compared

    def __init__(self, job: JobSpec) -> None:
        self.job, self.sink = job, job.sink_of(FilesSink)
        self._letters = LetterTopic(job, self.sink.dead_letters)
        self.topics = self._letters.topics
        self._opened: storages.Storage | None = None
        self._log = StateLog(self.sink, job.group)
        self.batches = Batches(self.sink) if job.state else None
        self.decisions = FileDecisions(self, self.batches, self._storage) if self.batches else None
        self._chains: Chains | Batches = self.batches or Chains(self.sink)
        # Of is_member(), which another thread calls than the batch's.
        self._watched = StateLog(self.sink, job.group)
        self._watched_chains: Chains | Batches = Batches(self.sink) if job.state else Chains(self.sink)
        self._recorded = time.monotonic()  # when the positions were recorded last
        self._member: tuple[Membership, float] | None = None  # and when it was last known to be one
        self._has_settled = False  # whether this process has committed positions

    def _storage(self) -> storages.Storage:
        self._opened = storages.of(self.sink, self._opened)
        return self._opened

    # ------------------------------------------------------------ the columns

    def check(self, rows: DataFrame | None = None) -> None:
        entry = self._log.latest(self._storage())
        problems = list(self._storage().problems())
        if rows is not None and entry and (unfit := columns.problems_with(rows.schema.fields, entry.state.columns)):
            problems.append(self._unsuitable(unfit))
        if problems:
            raise combined(problems)

    def require_permission(self) -> None:
        storage = self._storage()
        entry = self._log.latest(storage)
        storage.require_permission(self._log.path(entry.number) if entry else None)

    def require_sole_use(self) -> None:
        return  # nothing but a person's change of the state moves positions here

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        return columns.to_sink_columns(output)

    def prepare(self, rows: DataFrame) -> None:
        self.check(rows)

    def worker_columns(self, rows: DataFrame) -> DataFrame:
        """With the column LANE, unless the driver writes the rows."""
        self.record_columns(rows.schema)
        return rows if self.batches else rows.withColumn(LANE, F.spark_partition_id())

    def record_columns(self, output: StructType) -> None:
        """Records the columns, which files without rows have as well. Raises JobError if they do not fit."""

        def recorded(state: State) -> State:
            if unfit := columns.problems_with(output.fields, state.columns):
                raise self._unsuitable(unfit)
            return replace(state, columns=columns.with_columns(state.columns, output.fields))

        if self._member is not None:
            self._record(self._member[0], recorded)

    def _unsuitable(self, problems: Sequence[str]) -> JobError:
        return JobError(Reason.TABLE_UNSUITABLE, f"the output does not fit to {self.sink.path}: {'; '.join(problems)}")

    # ------------------------------------------------------------ the driver

    def join(self, lanes: Iterable[Lane]) -> Membership:
        lanes = list(lanes)
        self._log.forget()  # of an entry before whose outcome is unknown, the latest one tells
        storage = self._storage()
        deadline = time.monotonic() + self.job.operation_timeout_ms / 1000
        while True:
            entry = self._log.latest(storage)
            if entry is None:
                self._require_new(storage, lanes)
                entry = Entry(0, State(self.job.group))
            joined = replace(entry.state, generation=entry.state.generation + 1)
            # Another driver that reads the same entry cannot raise it to the same generation: one of the two is
            # refused. If the outcome is unknown, a later join takes the next generation.
            if self._log.append(storage, entry.number + 1, joined) and self._is_last(storage, entry.number + 1):
                storage.require_conditional(self._log.path(entry.number + 1))
                membership = str(joined.generation).encode()
                self._member, self._recorded = (membership, time.monotonic()), time.monotonic()
                storage.tidy()
                return membership
            self._pause(deadline)

    def _is_last(self, storage: storages.Storage, number: int) -> bool:
        """Whether no later entry than this one exists.

        Failure window: this driver has slept since it read the entry before, and the one that followed was removed for
        its age. Then its generation is one that another driver has had.
        """
        entry = self._log.latest(storage)
        return entry is not None and entry.number == number

    def _require_new(self, storage: storages.Storage, lanes: Sequence[Lane]) -> None:
        """Raises JobError(POSITION_LOST) if lanes have files, and the state where their chains begin is gone."""
        prefixes = (layout.BATCHES, *(layout.directory(lane, "") for lane in lanes))
        directories = [name for name in storage.directories() if name.startswith(prefixes)]
        if directories or self._has_settled:
            raise JobError(
                Reason.POSITION_LOST,
                f"{self.sink.path} has no entry in {layout.STATE}, and files of earlier drivers "
                f"({', '.join(directories[:5]) or 'which are gone'}), so it is not known what was delivered; restore "
                "the entries (docs/files.md), or create another pipeline with another path",
            )

    def is_member(self) -> bool:
        if self._member is None or time.monotonic() - self._member[1] < _MEMBER_FOR_S:
            return self._member is not None
        membership = self._member[0]
        self._member = (membership, time.monotonic())
        with suppress(JobError):  # then it is not known, and the next task will tell
            entry = self._watched.latest(self._storage())
            if entry is not None and _generation(entry.state) != membership:
                self._member = None
            elif time.monotonic() - self._recorded > _RECORDED_EVERY_S:
                self._try_to_record_positions(membership)
        return self._member is not None

    def _try_to_record_positions(self, membership: Membership) -> None:
        try:
            self._record_positions(membership)
        except JobError as e:
            log.warning("the positions could not be recorded, so no newest file may be removed: %s", e.message)
        else:
            self._recorded = time.monotonic()

    def _record_positions(self, membership: Membership) -> None:
        """Records the ends of the chains.

        Failure window: the files of an idle lane are removed for their age. Without the record nothing would tell that
        they were there, and its records would be delivered again.
        """

        def moved(state: State) -> State:
            ends = self._watched_chains.positions(self._storage(), state, state.lanes)
            moved = state.moved({lane: end for lane, end in ends.items() if end and end != state.lanes[lane].position})
            return self._watched_chains.recorded(moved)

        self._record(membership, moved, self._watched)

    def member(self) -> str | None:
        return self._member[0].decode() if self._member else None

    def announce(self, address: str) -> None:
        return  # a pipeline with this sink has no standby (spec.standby)

    def owner(self) -> Owner | None:
        raise JobError(Reason.INVALID_SPEC, "a pipeline with sink.files has no standby; remove spec.standby")

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        storage = self._storage()
        entry = self._log.latest(storage)
        return self._chains.positions(storage, entry.state if entry else State(self.job.group), lanes)

    def peek(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        self._log.forget()
        return self.read(lanes)

    def records(self) -> Records:
        entry = self._log.latest(self._storage())
        if entry is None:
            return Records()
        # A driver joins before it settles, so no driver before the last one to join has had a higher number.
        return Records(
            {lane: of_lane.recorded for lane, of_lane in entry.state.lanes.items() if of_lane.recorded},
            accepted=entry.state.accepted,
            driver=entry.state.generation - 1,
            joined=True,
        )

    def settle(
        self,
        positions: Mapping[Lane, Position],
        records: Mapping[Lane, Mapping[str, Any] | None],
        membership: Membership,
        *,
        accepted: str | None = None,
    ) -> None:
        def settled(state: State) -> State:
            state = self._chains.recorded(state.moved(positions))
            first_states = {
                lane: LaneState(
                    positions[lane],
                    positions[lane].topic_id,
                    positions[lane].offset,
                    recreated=state.lanes[lane].recreated or ends is not None,
                )
                for lane, ends in records.items()
            }
            state = replace(state, lanes={**state.lanes, **first_states})
            return state if accepted is None else replace(state, accepted=accepted)

        self._record(membership, settled)
        self._has_settled = True

    def stop(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        self.advance(positions, membership)

    def advance(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        self._record(membership, lambda state: self._chains.recorded(state.moved(positions)))

    @contextmanager
    def trial(self) -> Iterator[RowTrial]:
        yield RowTrial()

    def output_ends(self) -> Mapping[str, Any]:
        return {}

    def _record(self, membership: Membership, change: Callable[[State], State], log: StateLog | None = None) -> None:
        """Writes the next entry, with this change of the state; none if it changes nothing.

        Raises JobError(POSITION_CONFLICT) if another driver has joined. After any other JobError the outcome may be
        unknown.
        """
        storage, log = self._storage(), log or self._log
        deadline = time.monotonic() + self.job.operation_timeout_ms / 1000
        while True:
            entry = self._required(storage, log)
            # Failure window: a newer driver has joined, and this one reads the state only now.
            self._require_member(entry.state, membership)
            changed = change(entry.state)
            if changed == entry.state or log.append(storage, entry.number + 1, changed):
                return
            self._pause(deadline)

    def _required(self, storage: storages.Storage, log: StateLog | None = None) -> Entry:
        entry = (log or self._log).latest(storage)
        if entry is None:
            raise JobError(
                Reason.POSITION_LOST,
                f"the entries in {self.sink.path}/{layout.STATE} are gone, so it is not known what was delivered; "
                "restore them",
            )
        return entry

    def _require_member(self, state: State, membership: Membership) -> None:
        if self.compares and _generation(state) != membership:
            raise JobError(Reason.POSITION_CONFLICT, "another driver has joined; it owns the pipeline")

    def _pause(self, deadline: float) -> None:
        """Waits before an entry that another one has overtaken is written again."""
        if time.monotonic() > deadline:
            raise JobError(
                Reason.SINK_UNREACHABLE,
                f"other programs write to {self.sink.path}/{layout.STATE} so often that no entry of this pipeline came "
                f"through in {self.job.operation_timeout_ms / 1000:.0f} s",
            )
        time.sleep(random.uniform(0, _AGAIN_S))  # noqa: S311 (jitter)

    # ------------------------------------------------------------ the tasks

    def open(self, slot: int, lanes: Sequence[Lane], membership: Membership) -> FilesTransaction:
        storage = self._storage()
        entry = self.member_entry(storage, membership)
        positions = self._chains.positions(storage, entry.state, lanes)
        return FilesTransaction(self, storage, positions, membership)

    def open_batch(self, lanes: Sequence[Lane], membership: Membership) -> BatchTransaction:
        """All lanes of a stateful pipeline, for its next batch, in the driver."""
        if self.batches is None:
            raise JobError(Reason.UNEXPECTED, "a stateless pipeline decides no batches; report this")
        storage = self._storage()
        positions = self.batches.positions(storage, self.member_entry(storage, membership).state, lanes)
        return BatchTransaction(self, self.batches, storage, membership, positions)

    def member_entry(self, storage: storages.Storage, membership: Membership) -> Entry:
        """The latest entry. Raises JobError(POSITION_CONFLICT) if it is another driver's."""
        entry = self._required(storage)
        self._require_member(entry.state, membership)
        return entry

    def write_dead_letters(self, letters: pa.RecordBatch) -> None:
        self._letters.write(letters)

    def write_all_dead_letters(self, letters: Rows, lanes: Iterable[Lane]) -> None:
        """Writes the dead letters of a task or a stateful batch; returns when all are durable. Raises JobError."""
        self._letters.write_all(letters, lanes)

    def write(self, lanes: Sequence[Lane], rows: Rows, letters: Rows = (), *, membership: Membership) -> int:
        storage = self._storage()
        with RowFiles(storage, lanes) as files:
            files.write(rows)
            self._letters.write_all(letters, lanes)
            entry = self._required(storage)
            for lane in files.lanes:
                topic_id = entry.state.lanes[lane].position.topic_id
                draft = files.finished(lane, arrow_schema(entry.state.columns), {})
                path = layout.rows_alone(lane, topic_id)
                if not storage.create(path, draft):  # its name is new
                    raise JobError(
                        Reason.SINK_UNREACHABLE,
                        f"{self.sink.path}/{path} is there, and does not have the rows that were to be written to it; "
                        "check that nothing else writes to the path",
                    )
            return sum(files.rows(lane) for lane in lanes)

    def create(self, opened: FilesTransaction, positions: Mapping[Lane, Position], rows: Rows, letters: Rows) -> int:
        """Creates the files of these ranges, from the positions that were read; returns the number of rows.

        Dead letters are durable before the first file moves a position. Each lane moves with its file. If one of them
        fails, the others stay, and the driver restarts from the positions.
        """
        storage, read = opened.storage, opened.positions
        with RowFiles(storage, list(positions)) as files:
            files.write(rows)
            self._letters.write_all(letters, positions)
            # For liveness: the rows may have taken long, and a file of an older driver would stop the newer one.
            entry = self.member_entry(storage, opened.membership)
            fault_point("before-commit", *positions)
            empty = arrow_schema(entry.state.columns)
            for lane, position in positions.items():
                before = read[lane]
                start = before.offset if before else position.offset
                metadata = layout.Footer(lane, start, position).metadata(files.rows(lane))
                path = layout.file(lane, position.topic_id, start)
                if not storage.create(path, files.finished(lane, empty, metadata)):
                    # Failure window: another attempt, or another driver, was faster after this one had read.
                    raise JobError(
                        Reason.POSITION_CONFLICT,
                        f"{self.sink.path}/{path} was created since the position of {lane} was read; this driver "
                        "restarts from the positions",
                    )
                fault_point("file-created", lane)
            written = sum(files.rows(lane) for lane in positions)
        fault_point("after-commit", *positions)
        return written


class FilesTransaction:
    """Positions as they were read. Nothing is open: a file that is created later is met by its name."""

    def __init__(
        self,
        sink: FilesStore,
        storage: storages.Storage,
        positions: Mapping[Lane, Position | None],
        membership: Membership,
    ) -> None:
        self._sink, self.storage, self.positions, self.membership = sink, storage, positions, membership

    def commit(self, positions: Mapping[Lane, Position], rows: Rows = (), letters: Rows = ()) -> int:
        return self._sink.create(self, positions, rows, letters)

    def release(self) -> None:
        return


def _generation(state: State) -> Membership:
    return str(state.generation).encode()
