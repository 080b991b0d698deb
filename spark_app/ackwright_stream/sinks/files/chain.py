"""The position of a lane: the end of the last file of its chain, which begins where a driver has settled it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import FilesSink, Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.files import layout
from ackwright_stream.sinks.files.state import State
from ackwright_stream.sinks.files.storage import Storage

_AT_ONCE = 16  # lanes


class Chains:
    """The chains of one pipeline's lanes. Not thread-safe. Every method raises JobError."""

    def __init__(self, sink: FilesSink) -> None:
        self._sink = sink
        self._known: dict[Lane, tuple[Position, Position]] = {}  # where a chain begins, and its last known end

    def positions(self, storage: Storage, state: State, lanes: Iterable[Lane]) -> dict[Lane, Position | None]:
        """The positions; None where nothing is recorded of a lane."""
        lanes, recorded = list(lanes), state.lanes

        def end(lane: Lane) -> Position | None:
            return self._end(storage, lane, recorded[lane].position) if lane in recorded else None

        with ThreadPoolExecutor(_AT_ONCE) as pool:  # a bucket takes some milliseconds for each answer
            return dict(zip(lanes, pool.map(end, lanes), strict=True))

    def recorded(self, state: State) -> State:
        """The state with what has to be recorded together with these positions: nothing."""
        return state

    def _end(self, storage: Storage, lane: Lane, settled: Position) -> Position:
        begins, at = self._known.get(lane, (None, settled))
        if begins != settled:
            at = self._last(storage, lane, settled)  # its first files may have been removed
        while (after := self._position(storage, lane, settled.topic_id, at.offset)) is not None:
            at = after
        self._known[lane] = (settled, at)
        return at

    def _last(self, storage: Storage, lane: Lane, settled: Position) -> Position:
        """The end of the last file that begins at this position or later; the position itself if there is none."""
        directory = layout.directory(lane, settled.topic_id)
        names = storage.names(directory, layout.before(settled.offset), layout.BEHIND_FILES)
        last = max((start for name in names if (start := layout.start_of(name)) is not None), default=None)
        if last is not None and settled.is_foreign:
            # Failure window: a driver was still running when its position was set back by hand. The end of its file
            # would be the position, and the records before it would be delivered by nobody.
            raise JobError(
                Reason.TABLE_UNSUITABLE,
                f"the position of {lane} was set to {settled.offset} by hand, and {self._sink.path}/"
                f"{layout.file(lane, settled.topic_id, last)} is still there; suspend the pipeline until its driver "
                f"has ended, and remove the files of {directory} that begin at {settled.offset} or later",
            )
        return settled if last is None else self._position(storage, lane, settled.topic_id, last) or settled

    def _position(self, storage: Storage, lane: Lane, topic_id: str, start: int) -> Position | None:
        """The position from the file on that begins at this offset; None if there is no such file."""
        path = layout.file(lane, topic_id, start)
        metadata = storage.metadata(path)
        if metadata is None:
            return None
        try:
            footer = layout.Footer.of(metadata)
            if (footer.lane, footer.start, footer.position.topic_id) != (lane, start, topic_id):
                raise ValueError(f"it is of {footer.lane} from {footer.start}")
            if footer.position.offset <= start:
                raise ValueError(f"it ends at {footer.position.offset}")
        except (KeyError, ValueError) as e:
            raise JobError(
                Reason.TABLE_UNSUITABLE,
                f"{self._sink.path}/{path} was not written by this sink as the file of its name ({e}); move it "
                "elsewhere",
            ) from None
        return footer.position
