"""The decisions of a stateful pipeline into a table with versions: files beside its state; the table names the last.

A commit of the table has numbers and no text. So a decision is written to a file first, whose name is a hash of it, and
the commit has the hash together with rows and positions. A file that no commit names decides nothing.
See docs/protocol.md#stateful-pipelines-into-delta-lake-and-iceberg.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from ackwright_stream.durable_files import make_directory, make_durable
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import Reason, StateSettings
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Membership, Rows, Staged, StagedRows
from ackwright_stream.sinks.staged import positions as store
from ackwright_stream.state_bucket import StateBucket

_DIRECTORY = "decisions"  # below the location of the state
_OF_AUDIT = ("version", "batch", "starts", "positions", "offsets_before", "offsets", "records", "accepted_loss")
_HASH_BYTES = 7  # of a decision's name: a table's number has 63 bits


@dataclass(frozen=True)
class Decided:
    """What a commit has of a decision."""

    numbers: store.Numbers  # its batch and its hash
    before: int | None  # the hash of the one before, which the table must still have
    note: str  # what the audit needs of it


class DecidingStore(Protocol):
    """What a decision needs of its sink."""

    @property
    def names(self) -> store.Names: ...
    def number(self, name: str) -> int | None: ...
    def open(self, slot: int, lanes: Sequence[Lane], membership: Membership) -> Any: ...
    def stage(self, rows: Rows) -> tuple[int, Staged]: ...
    def write_all_dead_letters(self, letters: Rows, lanes: Iterable[Lane]) -> None: ...
    def commit(
        self,
        membership: Membership,
        positions: Mapping[Lane, Position],
        read: Mapping[Lane, Position | None],
        rows: StagedRows,
        decision: Decided | None = None,
    ) -> None: ...


class Files(Protocol):
    """Files below the location of a pipeline's state. Each method raises JobError."""

    def write(self, file: str, content: bytes) -> None: ...
    def read(self, file: str) -> bytes | None: ...
    def remove(self, file: str) -> None: ...


class LocalFiles:
    """Files in a directory. Each is there completely or not at all."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def write(self, file: str, content: bytes) -> None:
        """Writes a file durably, with the directories above it."""
        place = self._directory / file
        try:
            make_directory(place.parent)
            unfinished = place.with_suffix(".tmp")
            with unfinished.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            unfinished.replace(place)
            make_durable(place.parent)
        except OSError as e:
            raise JobError(Reason.BATCH_FAILED, f"a decision could not be written to {place.parent} ({e})") from e

    def read(self, file: str) -> bytes | None:
        """The content of a file; None if there is none."""
        place = self._directory / file
        try:
            return place.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as e:
            raise JobError(Reason.BATCH_FAILED, f"the decision {place} could not be read ({e})") from e

    def remove(self, file: str) -> None:
        """Removes a file, as far as that is possible."""
        with suppress(OSError):
            (self._directory / file).unlink()


class DecisionFiles:
    """The files of decisions below the location of a pipeline's state, by their hashes."""

    def __init__(self, state: StateSettings) -> None:
        self._state = state

    @cached_property
    def _files(self) -> Files:
        """They are opened by the driver that needs them, and not by a check, which may have no login."""
        return StateBucket(self._state) if self._state.bucket else LocalFiles(self._state.checkpoint)

    def write(self, text: str) -> int:
        """Writes a decision durably; returns its hash. Raises JobError."""
        name = _hash(text)
        self._files.write(_file(name), text.encode())
        return name

    def read(self, name: int) -> str | None:
        """The decision with this hash; None if it is not there, or damaged."""
        content = self._files.read(_file(name))
        if content is None or _hash_of(content) != name:
            return None
        return content.decode()

    def remove(self, name: int) -> None:
        """Removes a decision that another one has replaced. One that stays is a few kilobytes too many."""
        with suppress(JobError):
            self._files.remove(_file(name))


class TableDecisions:
    """The decisions of one pipeline, in its driver."""

    writer = None  # a commit of the table has rows and decision

    def __init__(self, sink: DecidingStore, state: StateSettings) -> None:
        self._sink, self._files = sink, DecisionFiles(state)

    def last(self) -> str | None:
        name = self._sink.number(self._sink.names.decision)
        return None if name is None else self._files.read(name)

    def earlier(self) -> Sequence[str]:
        return ()  # the file of a decision is removed when the next one is committed

    def open(self, lanes: Sequence[Lane], membership: Membership) -> DecidingTransaction:
        return DecidingTransaction(self._sink, self._files, membership, self._sink.open(0, lanes, membership).positions)


class DecidingTransaction:
    """All lanes of a stateful pipeline, of one version of the table."""

    def __init__(
        self,
        sink: DecidingStore,
        files: DecisionFiles,
        membership: Membership,
        positions: Mapping[Lane, Position | None],
    ) -> None:
        self._sink, self._files, self._membership, self.positions = sink, files, membership, positions
        self._before = sink.number(sink.names.decision)

    def commit(self, positions: Mapping[Lane, Position], rows: Rows, decision: str, letters: Rows = ()) -> int:
        records, staged = self._sink.stage(rows)
        self._sink.write_all_dead_letters(letters, positions)  # durable before the commit, in another store
        # Failure window: a commit that names a file which is not there. The driver would halt with StateLost.
        name = self._files.write(decision)
        [batch] = {position.batch for position in positions.values()}
        fault_point("before-commit", *positions)
        self._sink.commit(
            self._membership,
            positions,
            self.positions,
            StagedRows((staged,), records),
            Decided(store.decided(self._sink.names, batch, name), self._before, note_for_audit(decision)),
        )
        fault_point("after-commit", *positions)
        if self._before is not None and self._before != name:
            # Not earlier: until the commit is known, the one before may be the last.
            self._files.remove(self._before)
        return records

    def release(self) -> None:
        return


def note_for_audit(decision: str) -> str:
    """A decision without what only the next driver needs: a table's log is read by others, too."""
    data = json.loads(decision)
    for entry in ("offsets_before", "offsets"):
        if data[entry] is not None:
            version, metadata, *_ = data[entry].splitlines()
            watermark = {"batchWatermarkMs": json.loads(metadata)["batchWatermarkMs"]}
            data[entry] = f"{version}\n{json.dumps(watermark)}"
    return json.dumps({name: value for name, value in data.items() if name in _OF_AUDIT}, sort_keys=True)


def _file(name: int) -> str:
    return f"{_DIRECTORY}/{name:0{2 * _HASH_BYTES}x}.json"


def _hash(text: str) -> int:
    return _hash_of(text.encode())


def _hash_of(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[:_HASH_BYTES])
