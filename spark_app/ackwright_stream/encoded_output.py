"""The output of a stateful batch on its way from the tasks to the driver: pieces of rows, in memory or in files.

    <checkpoint>/output/<driver>/<attempt>-<number>     a piece

A task answers with its pieces. Once they are larger than its part of the driver's memory, it stores them in files and
answers with their names and hashes. The files are where the state is, which every task can write. Names are new and
written once, so a file has the output of the evaluation whose answer names it. If a file is lost, the batch fails:
nothing evaluates a part of it again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, StateSettings
from ackwright_stream.state_bucket import StateBucket

PIECE_BYTES = 4 << 20  # a piece with so many bytes is complete
_DIGEST_BYTES = 16  # of a row's SHA-256
_DIRECTORY = "output"  # below the location of the state
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Piece:
    """Some rows of one task, as an Arrow stream."""

    records: int
    hash: bytes  # SHA-256 of the stream
    digest: bytes  # of the rows, whatever their order; empty if they are never compared
    content: bytes | None  # the stream; None: it is in the file
    file: str | None = None  # below the location of the state


class PieceFiles(Protocol):
    """Files below the location of a pipeline's state."""

    def write(self, file: str, content: bytes) -> None:
        """Writes a new file, with the directories above it. Raises JobError."""
        ...

    def read(self, file: str) -> bytes | None:
        """The content of a file; None if there is none. Raises JobError."""
        ...

    def remove(self, files: Sequence[str]) -> None:
        """Removes files, as far as that is possible. Raises nothing."""
        ...

    def clear(self, driver: int) -> None:
        """Removes the files of all drivers up to this one, as far as that is possible. Raises nothing."""
        ...


class LocalPieces:
    """Files in a directory. They need not outlive a loss of power: what is not decided is evaluated again."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def write(self, file: str, content: bytes) -> None:
        place = self._directory / file
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except OSError as e:
            remedy = "make room there (checkpoint.volume.size)" if e.errno in _FULL else "let the job write there"
            raise JobError(
                Reason.BATCH_FAILED,
                f"a batch has more output than the driver may have in memory, and it cannot be stored in "
                f"{place.parent} ({e.strerror or e}); {remedy}: output is there until it is delivered",
            ) from e

    def read(self, file: str) -> bytes | None:
        try:
            return (self._directory / file).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as e:
            raise JobError(Reason.BATCH_FAILED, f"output in {self._directory / file} cannot be read ({e})") from e

    def remove(self, files: Sequence[str]) -> None:
        for file in files:
            with suppress(OSError):
                (self._directory / file).unlink()

    def clear(self, driver: int) -> None:
        with suppress(OSError):
            for name in os.listdir(self._directory / _DIRECTORY):
                if _is_up_to(driver, name):
                    shutil.rmtree(self._directory / _DIRECTORY / name, ignore_errors=True)


class BucketPieces:
    """Files in a bucket of S3."""

    def __init__(self, bucket: StateBucket) -> None:
        self._bucket = bucket

    def write(self, file: str, content: bytes) -> None:
        self._bucket.write(file, content)

    def read(self, file: str) -> bytes | None:
        return self._bucket.read(file)

    def remove(self, files: Sequence[str]) -> None:
        with suppress(JobError):
            self._bucket.remove_all(files)

    def clear(self, driver: int) -> None:
        with suppress(JobError):
            paths = self._bucket.paths(_DIRECTORY)
            self._bucket.remove_all([path for path in paths if _is_up_to(driver, path.split("/")[1])])


def _is_up_to(driver: int, directory: str) -> bool:
    return directory.isdigit() and int(directory) <= driver


def files_of(state: StateSettings) -> PieceFiles:
    """Where the pieces of a pipeline are. Raises JobError without the login of a bucket."""
    return BucketPieces(StateBucket(state)) if state.bucket else LocalPieces(state.checkpoint)


def clear(state: StateSettings, driver: int) -> None:
    """Removes the files of all drivers up to this one, as far as that is possible.

    A newer driver's remain. If a driver that was replaced removes files that this one still reads, its batch fails.
    """
    with suppress(JobError):
        files_of(state).clear(driver)


def encode(
    rows: Iterable[pa.RecordBatch],
    memory: int,
    driver: int,
    files: Callable[[], PieceFiles],
    *,
    compared: bool = True,
) -> Iterator[Piece]:
    """The pieces of a task's rows, in their order; in files if together they have more than `memory` bytes.

    driver: its number. compared: whether they have a digest, for which each row is hashed. Raises JobError if they
    cannot be stored; then no file of this attempt remains, as far as that is possible.
    """
    attempt = f"{_DIRECTORY}/{driver}/{uuid.uuid4().hex}"
    in_memory: list[Piece] = []
    stored: list[str] = []
    opened: PieceFiles | None = None
    size = 0
    try:
        for piece in _pieces(rows, compared=compared):
            size += len(piece.content or b"")
            in_memory.append(piece)
            if size <= memory:
                continue
            opened = opened or files()
            for each in in_memory:
                file = f"{attempt}-{len(stored)}"
                stored.append(file)
                opened.write(file, each.content or b"")
                yield replace(each, content=None, file=file)
            in_memory.clear()
    except Exception:
        if opened is not None:
            opened.remove(stored)
        raise
    yield from in_memory


def _pieces(rows: Iterable[pa.RecordBatch], *, compared: bool) -> Iterator[Piece]:
    writer: pa.ipc.RecordBatchStreamWriter | None = None
    hashes: int | None = None
    for batch in rows:
        for part in _parts(batch):
            if writer is None:
                sink, records, hashes = pa.BufferOutputStream(), 0, 0 if compared else None
                writer = pa.ipc.new_stream(sink, part.schema)
            writer.write_batch(part)
            records += part.num_rows
            if hashes is not None:
                hashes += _hashes(part)
            if sink.tell() >= PIECE_BYTES:
                yield _complete(writer, sink, records, hashes)
                writer = None
    if writer is not None:
        yield _complete(writer, sink, records, hashes)


def _complete(
    writer: pa.ipc.RecordBatchStreamWriter, sink: pa.BufferOutputStream, records: int, hashes: int | None
) -> Piece:
    writer.close()
    content: bytes = sink.getvalue().to_pybytes()
    return Piece(records, hashlib.sha256(content).digest(), b"" if hashes is None else _digest(hashes), content)


def _hashes(rows: pa.RecordBatch) -> int:
    """The sum of the hashes of all rows: tasks get their input in any order, so output has any order, too."""
    columns = [column.cast(_comparable(column.type)).to_pylist() for column in rows.columns]
    return sum(
        int.from_bytes(hashlib.sha256(repr(row).encode()).digest()[:_DIGEST_BYTES])
        for row in zip(*columns, strict=True)
    )


def _comparable(kind: pa.DataType) -> pa.DataType:
    """A type with the same values, with numbers in place of times: Python has no times after the year 9999."""
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_comparable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_comparable(kind.key_type), _comparable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_comparable(kind.value_type)))
    return kind


def _digest(hashes: int) -> bytes:
    return (hashes % (1 << 8 * _DIGEST_BYTES)).to_bytes(_DIGEST_BYTES)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in parts of at most PIECE_BYTES bytes, or of one row."""
    if batch.num_rows > 1 and batch.nbytes > PIECE_BYTES:
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half))
        yield from _parts(batch.slice(half))
    elif batch.num_rows:
        yield batch


def decode(pieces: Iterable[Piece], files: Callable[[], PieceFiles]) -> Iterator[pa.RecordBatch]:
    """The rows of the pieces. Of those in files one is in memory at a time.

    Raises JobError(BATCH_FAILED) if a file is lost or changed, before any of its rows.
    """
    opened: PieceFiles | None = None
    for piece in pieces:
        content = piece.content
        if piece.file is not None:
            opened = opened or files()
            content = opened.read(piece.file)
            if content is None or hashlib.sha256(content).digest() != piece.hash:
                # Failure window: rows of another evaluation than the one whose state is decided.
                raise JobError(
                    Reason.BATCH_FAILED,
                    f"output that a task has stored in {piece.file}, below the checkpoint, "
                    f"{'is not there any more' if content is None else 'was changed'}; let nothing but the job write "
                    "or remove files there",
                )
        with pa.ipc.open_stream(content) as reader:
            yield from reader


def digest(pieces: Iterable[Piece]) -> str:
    """Of all rows, whatever their order, in hexadecimal digits."""
    return _digest(sum(int.from_bytes(piece.digest) for piece in pieces)).hex()
