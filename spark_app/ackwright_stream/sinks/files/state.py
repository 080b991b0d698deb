"""What the drivers of a pipeline record beside its files: numbered entries, each with the complete state after it.

An entry is created if no entry has its number, so it follows the one that was read, or is refused. Entries are small;
old ones are removed. A driver that has slept so long that the entry after the one it has read was removed can create
it again: nobody reads it, and the next step of that driver reads the latest one. A driver that joins reads it at once.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql.types import StructType

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import FilesSink, Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.files import layout
from ackwright_stream.sinks.files.storage import Storage

_REMAINING = 16  # entries that are not removed


@dataclass(frozen=True)
class LaneState:
    """What is recorded of a lane."""

    position: Position  # as a driver has committed it; files that begin there or later move it on
    recorded: str = ""  # the id of its topic when it began
    first: int = 0  # the offset at which it began
    recreated: bool = False  # whether it began with a recreated topic


@dataclass(frozen=True)
class Decided:
    """How far the batches of a stateful pipeline are decided."""

    following: int = 0  # the number of the next batch's file
    decision: str = ""  # the last one; empty: there is none


@dataclass(frozen=True)
class State:
    """What the drivers of a pipeline have recorded."""

    group: str
    generation: int = 0  # raised by each driver that joins
    accepted: str = ""  # the fingerprint of positions that another program has set and a person has accepted
    columns: StructType = field(default_factory=StructType)  # that files have or had
    lanes: Mapping[Lane, LaneState] = field(default_factory=dict)
    decided: Decided | None = None  # of a stateful pipeline, when its positions were recorded; later files move it on

    def moved(self, positions: Mapping[Lane, Position]) -> State:
        """The state with these positions."""
        empty = LaneState(Position(0))
        moved = {lane: replace(self.lanes.get(lane, empty), position=p) for lane, p in positions.items()}
        return replace(self, lanes={**self.lanes, **moved})

    def to_json(self) -> bytes:
        """As an entry has it. No two entries are equal, nor are their ends: the id comes last, as storage requires."""
        document = {
            "group": self.group,
            "generation": self.generation,
            "accepted": self.accepted,
            "columns": self.columns.jsonValue(),
            "lanes": [{**asdict(lane), **asdict(state)} for lane, state in sorted(self.lanes.items())],
            **({"decided": asdict(self.decided)} if self.decided else {}),
            "id": str(uuid.uuid4()),
        }
        return json.dumps(document, indent=1).encode()

    @classmethod
    def of_json(cls, text: bytes) -> State:
        """What to_json() returned. Raises KeyError, TypeError or ValueError for anything else."""
        document: dict[str, Any] = json.loads(text)
        lanes = {
            Lane(entry["topic"], entry["partition"]): LaneState(
                Position(**entry["position"]), entry["recorded"], entry["first"], entry["recreated"]
            )
            for entry in document["lanes"]
        }
        columns = StructType.fromJson(document["columns"])
        decided = Decided(**document["decided"]) if "decided" in document else None
        return cls(document["group"], document["generation"], document["accepted"], columns, lanes, decided)


@dataclass(frozen=True)
class Entry:
    """A state with its number."""

    number: int
    state: State


class StateLog:
    """The entries of one pipeline. Not thread-safe. Every method raises JobError."""

    def __init__(self, sink: FilesSink, group: str) -> None:
        self._sink, self._group = sink, group
        self._latest: Entry | None = None  # as far as this process knows

    def path(self, number: int) -> str:
        """The path of the entry with this number."""
        return f"{layout.STATE}/{layout.entry(number)}"

    def forget(self) -> None:
        """Makes the next latest() read the entry also if there is no newer one than this process knows."""
        self._latest = None

    def latest(self, storage: Storage) -> Entry | None:
        """The latest entry; None if there is none.

        Raises JobError(TABLE_UNSUITABLE) if it is another pipeline's.
        """
        while True:
            after = layout.entry(self._latest.number) if self._latest else ""
            number = max(_numbers(storage.names(layout.STATE, after)), default=None)
            if number is None:
                return self._latest
            content = storage.read(self.path(number))
            if content is not None:  # it may have been removed since
                self._latest = self._entry(number, content)

    def append(self, storage: Storage, number: int, state: State) -> bool:
        """Whether the entry could be created. False if it exists already.

        After an error it may be there, or come late.
        """
        draft = storage.draft()
        draft.file.write(state.to_json())
        if not storage.create(self.path(number), draft):
            return False
        self._latest = Entry(number, state)
        if number % _REMAINING == 0:
            numbers = _numbers(storage.names(layout.STATE))
            storage.remove([self.path(old) for old in numbers if old < number - _REMAINING])
        return True

    def _entry(self, number: int, content: bytes) -> Entry:
        try:
            entry = Entry(number, State.of_json(content))
        except (KeyError, TypeError, ValueError) as e:
            raise JobError(
                Reason.TABLE_UNSUITABLE,
                f"{self._sink.path}/{self.path(number)} is not an entry of this release ({e!r}); restore it",
            ) from None
        if entry.state.group != self._group:
            raise JobError(
                Reason.TABLE_UNSUITABLE,
                f"{self._sink.path} belongs to the pipeline with the group {entry.state.group}; recreate "
                "this one with another sink.files.path, or remove what is there",
            )
        return entry


def _numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the entries among these files."""
    return [number for name in names if (number := layout.number_of(name)) is not None]
