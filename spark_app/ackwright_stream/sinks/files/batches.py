"""The batches of a stateful pipeline: one file for each, with its rows, its decision and the positions of all lanes.

A file is named by its number, the one of the file before plus 1, and created only if none has its name. So batches are
decided by a compare-and-set: of all programs that have read one batch as the last, the first decides the next one, also
a driver that was replaced. Another one meets the file, and restarts from its decision (tests/model: decisions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import FilesSink, Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Membership, Rows
from ackwright_stream.sinks.files import layout
from ackwright_stream.sinks.files.rows import RowFile
from ackwright_stream.sinks.files.state import Decided, Entry, State
from ackwright_stream.sinks.files.storage import Storage
from ackwright_stream.spark_internals.arrow import arrow_schema


class Batches:
    """The files of one pipeline's batches. Not thread-safe. Every method raises JobError."""

    def __init__(self, sink: FilesSink) -> None:
        self._sink = sink
        self._known: tuple[int, layout.BatchFooter] | None = None  # the last file that was read
        self.decided: Decided | None = None  # by the last file, when positions() read it

    def positions(self, storage: Storage, state: State, lanes: Iterable[Lane]) -> dict[Lane, Position | None]:
        """The positions behind the last batch, as recorded where it has none; None where nothing is recorded."""
        recorded = state.decided or Decided()
        positions: dict[Lane, Position] = {lane: of_lane.position for lane, of_lane in state.lanes.items()}
        last = self._last(storage, recorded.following)
        if last is None:
            self.decided = recorded
        else:
            number, footer = last
            if foreign := sorted(lane for lane, position in positions.items() if position.is_foreign):
                raise JobError(
                    Reason.TABLE_UNSUITABLE,
                    f"the position of {foreign[0]} was set by hand, and that of a stateful pipeline is in "
                    f"{self._sink.path}/{layout.batch(number)}, with the decision of the batch; restore the entry of "
                    f"{layout.STATE}",
                )
            self.decided = Decided(number + 1, footer.decision)
            positions |= footer.positions
        return {lane: positions.get(lane) for lane in lanes}

    def recorded(self, state: State) -> State:
        """The state with the decision behind which the positions are that were read last."""
        return replace(state, decided=self.decided)

    def _last(self, storage: Storage, first: int) -> tuple[int, layout.BatchFooter] | None:
        """The last file with this number or a higher one, and its footer; None if there is none."""
        known = self._known if self._known and self._known[0] >= first else None
        names = storage.names(layout.BATCHES, layout.before(known[0] + 1 if known else first))
        number = max((number for name in names if (number := layout.start_of(name)) is not None), default=None)
        if number is not None:
            known = self._known = number, self._footer(storage, number)
        return known

    def earlier(self, storage: Storage) -> Iterator[str]:
        """The decisions in the files before the last one, newest first, as far as no file is missing or damaged."""
        for number in range(self.decided.following - 2 if self.decided else -1, -1, -1):
            metadata = storage.metadata(layout.batch(number))
            try:
                footer = layout.BatchFooter.of(metadata or {})
            except (KeyError, TypeError, ValueError):
                return
            yield footer.decision

    def _footer(self, storage: Storage, number: int) -> layout.BatchFooter:
        metadata = storage.metadata(layout.batch(number))
        try:
            return layout.BatchFooter.of(metadata or {})
        except (KeyError, TypeError, ValueError) as e:
            raise JobError(
                Reason.TABLE_UNSUITABLE,
                f"{self._sink.path}/{layout.batch(number)} was not written by this sink as the file of its name "
                f"({e!r}); move it elsewhere",
            ) from None


class BatchStore(Protocol):
    """What the decisions of a pipeline need of its sink."""

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]: ...
    def open_batch(self, lanes: Sequence[Lane], membership: Membership) -> BatchTransaction: ...
    def member_entry(self, storage: Storage, membership: Membership) -> Entry: ...
    def write_all_dead_letters(self, letters: Rows, lanes: Iterable[Lane]) -> None: ...


class FileDecisions:
    """The decisions of one pipeline, in its driver."""

    writer = None  # a file has rows and decision

    def __init__(self, sink: BatchStore, batches: Batches, storage: Callable[[], Storage]) -> None:
        self._sink, self._batches, self._storage = sink, batches, storage

    def last(self) -> str | None:
        # Behind the positions that the driver has read: a driver that was replaced may have created a file since.
        if self._batches.decided is None:
            self._sink.read(())
        return self._batches.decided.decision or None if self._batches.decided else None

    def earlier(self) -> Iterator[str]:
        return self._batches.earlier(self._storage())

    def open(self, lanes: Sequence[Lane], membership: Membership) -> BatchTransaction:
        return self._sink.open_batch(lanes, membership)


class BatchTransaction:
    """All lanes behind the last batch. Nothing is open: a file that is created later is met by its name."""

    def __init__(
        self,
        sink: BatchStore,
        batches: Batches,
        storage: Storage,
        membership: Membership,
        positions: Mapping[Lane, Position | None],
    ) -> None:
        self._sink, self._batches, self._storage, self._membership = sink, batches, storage, membership
        self._number, self.positions = batches.decided.following if batches.decided else 0, positions

    def commit(self, positions: Mapping[Lane, Position], rows: Rows, decision: str, letters: Rows = ()) -> int:
        file = RowFile(self._storage)
        try:
            for batch in rows:
                file.add(batch)
            self._sink.write_all_dead_letters(letters, positions)  # durable before the commit, in another store
            # For liveness: the rows may have taken long, and a file of an older driver would stop the newer one.
            entry = self._sink.member_entry(self._storage, self._membership)
            fault_point("before-commit", *positions)
            metadata = layout.BatchFooter(positions, decision).metadata(file.rows)
            draft = file.finish(arrow_schema(entry.state.columns), metadata)
            if not self._storage.create(layout.batch(self._number), draft):
                # Failure window: another driver was faster after this one had read.
                raise JobError(
                    Reason.POSITION_CONFLICT,
                    f"{layout.batch(self._number)} was created since the last decision was read; this driver restarts "
                    "from it",
                )
        finally:
            file.discard()
        fault_point("after-commit", *positions)
        self._batches.decided = Decided(self._number + 1, decision)
        return file.rows

    def release(self) -> None:
        return
