"""Lanes: the one primitive of all guarantees, a fenced compare-and-advance of some lanes' positions.

    1  open            the sink ends what an earlier attempt of the task left open, then reads the positions
    2  check           each position belongs to the current topic, and this driver committed it
    3  decide          all positions at the start of their ranges: continue; all at or above the end: skip; else: fail
    4  commit          the sink writes the rows and moves the positions, all or nothing
    5  any error       the transaction is over and its outcome unknown; the next attempt starts at 1

The sink provides steps 1 and 4 (sinks/base.py). Steps 2 and 3 are the same for every sink.
See docs/protocol.md#transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from ackwright_stream import positions
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.positions import Lane, Position, Range
from ackwright_stream.reasons import REASONS
from ackwright_stream.sinks.base import Membership, Rows, Sink, StagedRows, Staging, Transaction
from ackwright_stream.topic_ids import TopicIds


class Outcome(StrEnum):
    """What became of a task's ranges."""

    DONE = "done"
    SKIPPED = "skipped"  # they were committed before


def decide(current: Mapping[Lane, Position | None], ranges: Iterable[Range], driver: int) -> Outcome | None:
    """Step 3: SKIPPED, or None to continue. Raises JobError for positions at which these ranges must not be committed.

    driver: this driver's number. It commits every position when it takes the pipeline, so a position without its number
    was moved by somebody else, and says nothing about what was delivered (docs/protocol.md#rule-3).
    """
    outcomes = {_outcome(r, current[r.lane], driver) for r in ranges}
    if len(outcomes) == 1:
        return outcomes.pop()
    raise JobError(
        Reason.POSITION_CONFLICT,
        "some lanes of a task are at the start of their ranges and others at the end, which one transaction cannot "
        f"leave behind ({', '.join(f'{r.lane}: {current[r.lane]}' for r in ranges)}); this driver restarts from the "
        "positions",
    )


def _outcome(batch: Range, position: Position | None, driver: int) -> Outcome | None:
    if position is None:
        raise JobError(
            Reason.POSITION_LOST,
            f"lane {batch.lane} was initialised but has no position: it expired or was deleted; nothing is "
            "written, because it is not known what was delivered",
        )
    if position.is_foreign:
        raise positions.has_moved(batch.lane, position)
    if position.driver == driver:
        if position.offset >= batch.until:
            return Outcome.SKIPPED
        if position.offset == batch.start:
            return None
    raise JobError(
        Reason.POSITION_CONFLICT,
        f"lane {batch.lane} is at {position.offset}, committed by driver {position.driver}, and not at the start of "
        f"[{batch.start}, {batch.until}) for driver {driver}; this driver restarts from the positions",
    )


class Lanes:
    """The lanes of one pipeline, as one driver or one of its tasks may move them.

    Thread-safe as long as one thread at a time works on a slot.
    """

    def __init__(
        self,
        job: JobSpec,
        sink: Sink,
        membership: Membership,
        driver: int,
        topic_ids: Mapping[str, str],
        *,
        ids_now: TopicIds | None = None,
        batch: int | None = None,
    ) -> None:
        self.job = job
        self.sink = sink
        self.membership = membership  # what the driver's join() returned
        self.driver = driver  # its number; a higher one is a newer driver
        self.topic_ids = topic_ids  # of the source topics, by name, as this driver read them
        self._ids_now = ids_now  # reads the ids; None: they are not compared again before a commit
        self.batch = batch  # of a stateful pipeline: the last decided one; None before the first

    def current(self, lane: Lane, position: Position | None) -> Position | None:
        """The position as positions.current_position() has it. Raises JobError(TOPIC_REPLACED)."""
        if position is not None:
            position = positions.own_or_foreign(position, self.job.identity)
        accepted = self.job.accepted_losses.get(lane.topic)
        return positions.current_position(lane, position, self.topic_ids.get(lane.topic, ""), accepted)

    def advance(self, slot: int, ranges: Sequence[Range], rows: Rows = (), letters: Rows = ()) -> tuple[Outcome, int]:
        """Moves the lanes over their ranges and writes the rows, in one step; returns the outcome and the rows' number.

        letters: as Transaction.commit() takes them. slot: the number of the task; attempts with the same slot fence
        each other. Ranges that were committed before are skipped, and their rows are not read. Raises JobError: the
        outcome may then be unknown.
        """
        return self._advance(self.sink.open(slot, [r.lane for r in ranges], self.membership), ranges, rows, letters)

    def advance_staged(self, staging: Staging, ranges: Sequence[Range], rows: StagedRows) -> tuple[Outcome, int]:
        """The same with rows that tasks have staged, in the driver."""
        return self._advance(staging.open_staged([r.lane for r in ranges], self.membership, rows), ranges, ())

    def _advance(
        self, transaction: Transaction, ranges: Sequence[Range], rows: Rows, letters: Rows = ()
    ) -> tuple[Outcome, int]:
        lanes = [r.lane for r in ranges]
        try:
            outcome = decide(self._checked(transaction.positions), ranges, self.driver)
        except JobError:
            transaction.release()
            raise
        fault_point("after-read", *lanes)
        if outcome is not None:
            transaction.release()
            return outcome, 0
        targets = {r.lane: self._position(r.lane, r.until) for r in ranges}
        return Outcome.DONE, transaction.commit(targets, self._of_current_topics(rows, targets), letters)

    def _of_current_topics(self, rows: Rows, targets: Mapping[Lane, Position]) -> Rows:
        """The rows. After the last one it raises JobError(TOPIC_REPLACED) if a topic was recreated since the start.

        Spark's consumers would have read the new topic's records from the old one's offsets on. The brokers drop a
        deleted topic's positions, but not those of a transaction that is open meanwhile.
        """
        yield from rows
        self._check_topics(targets)

    def _check_topics(self, targets: Mapping[Lane, Position]) -> None:
        if self._ids_now is not None:
            now = self._ids_now({lane.topic for lane in targets})
            for lane, position in targets.items():
                positions.check_topic(lane, position, now[lane.topic])

    def decide_batch(
        self,
        starts: Mapping[Lane, int],
        targets: Mapping[Lane, int],
        rows: Rows,
        batch: int,
        decision: str,
        *,
        letters: Rows = (),
        before: Callable[[], int] | None = None,
    ) -> int:
        """Moves all lanes of a stateful pipeline behind a batch, with its rows and its decision, in one step.

        starts, targets: of every lane, also of those that do not move. letters: as BatchTransaction.commit() takes
        them. before: what has to be done before that step, once it is known that this driver owns the lanes: it writes
        rows, and returns their number. Returns the number of rows. In the driver. Raises JobError: the outcome may then
        be unknown, and this driver has to take the pipeline again.
        """
        if self.sink.decisions is None:
            raise JobError(Reason.UNEXPECTED, "the sink takes no decisions; report this")
        transaction = self.sink.decisions.open(list(starts), self.membership)
        try:
            for lane, position in self._checked(transaction.positions).items():
                self._require_behind(lane, position, starts[lane])
            fault_point("after-read", *starts)
            written = before() if before else 0
        except BaseException:
            transaction.release()
            raise
        positions_after = {lane: replace(self._position(lane, target), batch=batch) for lane, target in targets.items()}
        records = transaction.commit(positions_after, self._of_current_topics(rows, positions_after), decision, letters)
        self.batch = batch
        return written + records

    def _require_behind(self, lane: Lane, position: Position | None, start: int) -> None:
        """Raises JobError unless the lane is at `start`, behind the last decided batch, as this driver left it."""
        if position is None or position.is_foreign:
            _outcome(Range(lane, start, start), position, self.driver)  # raises
        if position != self._position(lane, start):
            raise JobError(
                Reason.POSITION_CONFLICT,
                f"lane {lane} has {position}, and this driver, {self.driver}, expects {self._position(lane, start)}; "
                "it restarts from the last decision",
            )

    def advance_all(self, ranges: Iterable[Range]) -> None:
        """Moves lanes forwards to the ends of their ranges, in one step and without rows; a lane beyond its end stays.

        The rows are in the sink. Raises JobError(POSITION_CONFLICT) for a lane before the start of its range, or that
        this driver has not committed: the sink was restored, or a replica that lagged behind has replaced it, so rows
        before the range are gone as well. Raises JobError also if a topic was recreated since this driver read its id:
        brokers drop the positions of a deleted topic.
        """
        forwards, by_lane = {}, {r.lane: r for r in ranges}
        committed = self.sink.read(by_lane)
        self._check_topics({r.lane: self._position(r.lane, r.until) for r in by_lane.values()})
        for lane, position in self._checked(committed).items():
            if position is None:
                raise JobError(
                    Reason.POSITION_LOST,
                    f"lane {lane} has no position any more, so it is not known what was delivered",
                    REASONS[Reason.POSITION_LOST].remedy,
                )
            if position.is_foreign:
                raise positions.has_moved(lane, position)
            if position.driver != self.driver or position.offset < by_lane[lane].start:
                raise JobError(
                    Reason.POSITION_CONFLICT,
                    f"lane {lane} is at {position.offset}, committed by driver {position.driver}, and driver "
                    f"{self.driver} had delivered all before {by_lane[lane].start}: the sink has lost what was written "
                    "last; this driver restarts from the positions",
                )
            if position.offset < by_lane[lane].until:
                forwards[lane] = self._position(lane, by_lane[lane].until)
        if forwards:
            self.sink.advance(forwards, self.membership)

    def settle(
        self,
        starts: Mapping[Lane, int],
        to_record: Collection[Lane],
        output_ends: Mapping[str, Any] | None,
        restarted: Collection[str],
        accepted: str | None = None,
    ) -> None:
        """Commits the lanes' positions with this driver's number, and the records that lanes have one, in one step.

        A lane's first position and its record appear together, so a recorded lane without a position has lost it
        (docs/protocol.md#rule-4). output_ends: Sink.output_ends(), for the records of the topics `restarted`. accepted:
        as Sink.settle() takes it.
        """
        self.sink.settle(
            {lane: self._position(lane, start) for lane, start in starts.items()},
            {lane: output_ends if lane.topic in restarted else None for lane in to_record},
            self.membership,
            accepted=accepted,
        )

    def stop(self, offsets: Mapping[Lane, int]) -> None:
        """Records that the lanes end at these offsets, where they are.

        The next driver finds them there even if the positions have expired meanwhile. Unless this one is started again
        (JobSpec.keeps_identity), it may be one of another pipeline: otherwise that one could take over whenever this
        pipeline is edited, or its pod evicted.
        """
        identity = self.job.identity if self.job.keeps_identity else ""
        final = {lane: replace(self._position(lane, offset), pipeline=identity) for lane, offset in offsets.items()}
        self.sink.stop(final, self.membership)

    def require_newest(self, lane: Lane) -> None:
        """Raises JobError(SUPERSEDED) if a newer driver has settled the lane, as it settles all of them.

        Before a batch. A driver that was away for a while would otherwise learn it from its own commit, which is
        refused; but its tasks and its advances would first end the newer driver's transactions, whose batch then fails.
        Nothing is left to do where tasks stage rows: they end nobody's.
        """
        if self.sink.staging is None:
            position = self.sink.peek([lane])[lane]
            if position is not None:
                positions.check_driver(position, self.driver)

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        """The positions in the sink, of whichever topic, without fencing."""
        return self.sink.read(lanes)

    def _checked(self, committed: Mapping[Lane, Position | None]) -> Mapping[Lane, Position | None]:
        """Step 2. Raises JobError(TOPIC_REPLACED or SUPERSEDED)."""
        current = {lane: self.current(lane, position) for lane, position in committed.items()}
        for position in current.values():
            if position is not None:
                positions.check_driver(position, self.driver)
        return current

    def _position(self, lane: Lane, offset: int) -> Position:
        return Position(offset, self.topic_ids.get(lane.topic, ""), self.driver, self.job.identity, self.batch)
