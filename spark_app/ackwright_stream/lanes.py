"""Lanes: the one primitive of all guarantees, a fenced compare-and-advance of a position.

    1  open            the sink fences the lane's older owners, then reads the position
    2  check           the position belongs to the current topic, and to no newer driver
    3  decide          position = start of the range: continue; at or above its end: skip; anything else: fail
    4  commit          the sink writes the rows and moves the position, both or neither
    5  any error       the transaction is over and its outcome unknown; the next attempt starts at 1

The sink provides steps 1 and 4 (sinks/base.py). Steps 2 and 3 are the same for every sink.
See docs/protocol.md#lane-transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from ackwright_stream import positions
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.positions import Lane, Position, Range
from ackwright_stream.sinks.base import Rows, Sink, Transaction


class Outcome(StrEnum):
    """What became of a lane's range."""

    DONE = "done"
    SKIPPED = "skipped"  # it was committed before


def decide(position: Position | None, batch: Range) -> Outcome | None:
    """Step 3: SKIPPED, or None to continue. Raises JobError for a position at which this range must not be committed.

    docs/protocol.md#rule-3
    """
    if position is None:
        raise JobError(
            Reason.POSITION_LOST,
            f"lane {batch.lane} was initialised but has no position: it expired (offsets.retention.minutes) or the "
            "group was deleted; nothing is written, because it is not known what was delivered",
        )
    if position.offset >= batch.until:
        return Outcome.SKIPPED
    if position.offset == batch.start:
        return None
    raise JobError(
        Reason.POSITION_CONFLICT,
        f"lane {batch.lane} is at {position.offset}, not at the start of [{batch.start}, {batch.until}): another "
        "driver has other batch boundaries; this driver restarts from the positions",
    )


class Lanes:
    """The lanes of one pipeline, as one driver or one of its tasks may move them.

    Thread-safe as long as one thread at a time works on a lane.
    """

    def __init__(self, job: JobSpec, sink: Sink, driver: int, topic_ids: Mapping[str, str]) -> None:
        self.job = job
        self.sink = sink
        self.driver = driver  # its number; a higher one is a newer driver
        self.topic_ids = topic_ids  # of the source topics, by name, as this driver read them

    def fence(self, lane: Lane) -> tuple[Transaction, Position | None]:
        """Steps 1 and 2.

        The position is None if the lane has none, or if the loss of its topic is accepted. Raises JobError.
        """
        transaction = self.sink.open([lane])
        try:
            position = self.current(lane, transaction.positions[lane])
            if position is not None:
                positions.check_incarnation(lane, position, self.driver)
        except JobError:
            transaction.release()
            raise
        fault_point("after-read", lane)
        return transaction, position

    def current(self, lane: Lane, position: Position | None) -> Position | None:
        """The position as positions.current_position() has it. Raises JobError(TOPIC_REPLACED)."""
        accepted = self.job.accepted_losses.get(lane.topic)
        return positions.current_position(lane, position, self.topic_ids.get(lane.topic, ""), accepted)

    def advance(self, batch: Range, rows: Rows = ()) -> tuple[Outcome, int]:
        """Moves the lane over the range and writes the rows, in one step; returns the outcome and the number of rows.

        A range that was committed before is skipped, and its rows are not read. Raises JobError: the outcome may then
        be unknown.
        """
        transaction, position = self.fence(batch.lane)
        try:
            outcome = decide(position, batch)
        except JobError:
            transaction.release()
            raise
        if outcome is not None:
            transaction.release()
            return outcome, 0
        return Outcome.DONE, self.commit(transaction, batch.lane, batch.until, rows)

    def commit(self, transaction: Transaction, lane: Lane, until: int, rows: Rows = ()) -> int:
        """Step 4 with a transaction from fence(). Returns the number of rows."""
        return transaction.commit({lane: self._position(lane, until)}, rows)

    def initialise(
        self, transaction: Transaction, lane: Lane, start: int, output_ends: Mapping[str, Any] | None = None
    ) -> Position:
        """Commits the lane's first position and the record that it has one; returns the position, read again.

        There is no moment at which one exists without the other, so a recorded lane without a position has lost it
        (docs/protocol.md#rule-4). output_ends: Sink.output_ends(), if the lane's topic was recreated.
        """
        transaction.initialise({lane: self._position(lane, start)}, output_ends)
        position = self.sink.read([lane])[lane]
        if position is None:
            raise JobError(
                Reason.POSITION_LOST,
                f"the first position of lane {lane} was committed but cannot be read; find out what deletes it",
            )
        return position

    def renew(self, lane: Lane, offset: int) -> None:
        """Commits an idle lane's position again, so that it does not expire. (docs/protocol.md#rule-5)

        Raises JobError if the lane is not at `offset`.
        """
        transaction, position = self.fence(lane)
        if position is None or position.offset != offset:
            transaction.release()
            raise JobError(
                Reason.POSITION_LOST if position is None else Reason.POSITION_CONFLICT,
                f"idle lane {lane} is at {position.offset if position else 'no position'}, not at {offset}; this "
                "driver restarts from the positions",
            )
        self.commit(transaction, lane, offset)

    def advance_all(self, targets: Mapping[Lane, int]) -> None:
        """Moves lanes forwards to the targets, in one step and without rows; a lane beyond its target stays.

        Raises JobError.
        """
        forwards = {}
        for lane, committed in self.sink.read(targets).items():
            position = self.current(lane, committed)
            if position is None:
                raise JobError(
                    Reason.POSITION_LOST,
                    f"lane {lane} has no position any more, so it is not known what was delivered; set the group's "
                    "offsets by hand",
                )
            positions.check_incarnation(lane, position, self.driver)
            if position.offset < targets[lane]:
                forwards[lane] = self._position(lane, targets[lane])
        if forwards:
            self.sink.advance(forwards)

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        """The positions in the sink, of whichever topic, without fencing."""
        return self.sink.read(lanes)

    def _position(self, lane: Lane, offset: int) -> Position:
        return Position(offset, self.topic_ids.get(lane.topic, ""), self.driver)
