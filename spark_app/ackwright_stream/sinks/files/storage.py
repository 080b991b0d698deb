"""A directory or a bucket in which a file is created once, with all of its content, or not at all.

Of several programs that create one file, one succeeds. That compare-and-set is all that the sink's guarantees rest on.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ackwright_stream.durable_files import make_directory, make_durable
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import FilesSink, Reason
from ackwright_stream.s3_store import require_conditional, require_permission, store_of
from ackwright_stream.sinks.files import layout
from ackwright_stream.storage_errors import translate, translating
from ackwright_stream.storage_location import S3, s3_of

_TAIL = 64 << 10  # bytes at the end of a file, in which its footer is, mostly
_END = 8  # bytes: the length of the footer, and "PAR1"
_LEFT_BEHIND_S = 24 * 3600  # after this time nobody works on a temporary file any more
_NO_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems without hard links; EPERM of others, too
_AGAIN_S = 0.1  # before a request is repeated that the server has refused for another one


@dataclass(frozen=True)
class Draft:
    """A file that no reader sees yet."""

    file: BinaryIO
    place: Path | None = None  # of the temporary file; None: it is in memory


class Storage(Protocol):
    """Paths are relative to the sink's. Every method raises JobError."""

    def draft(self) -> Draft:
        """An empty file to write to."""
        ...

    def create(self, path: str, draft: Draft) -> bool:
        """Whether the draft is the file at this path now, and durable; False if another one is there.

        Drafts must not be equal. After an error the outcome is unknown: the file may be there, or come late.
        """
        ...

    def discard(self, draft: Draft) -> None:
        """Removes the draft, as far as that is possible. Raises nothing."""
        ...

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is none."""
        ...

    def metadata(self, path: str) -> Mapping[bytes, bytes] | None:
        """The key-value metadata of a Parquet file's footer; None if there is no such file."""
        ...

    def require_conditional(self, path: str) -> None:
        """Raises JobError(TABLE_UNSUITABLE) if create() replaces this file, which is there."""
        ...

    def names(self, directory: str, after: str = "", before: str | None = None) -> Sequence[str]:
        """The names of the files in a directory that sort between these two, sorted. before: None: all behind."""
        ...

    def directories(self) -> Sequence[str]:
        """The names of the directories."""
        ...

    def remove(self, paths: Sequence[str]) -> None:
        """Removes files, as far as that is possible. Raises nothing."""
        ...

    def tidy(self) -> None:
        """Removes what tasks have left behind that died long ago, as far as that is possible. Raises nothing."""
        ...

    def problems(self) -> Sequence[JobError]:
        """Why nothing can be written, as far as that is known without a request."""
        ...

    def require_permission(self, present: str | None) -> None:
        """Raises JobError if the job may not write, as far as a request tells that changes nothing.

        present: a file that is there, and keeps its content.
        """
        ...


def of(sink: FilesSink, last: Storage | None = None) -> Storage:
    """The storage of a sink. Connects to nothing. last: it is returned if it is the same one, with its connections.

    The login is read again: a Secret may have changed.
    """
    s3 = s3_of(sink)
    if s3 is None:
        return Directory(Path(sink.path))
    return last if isinstance(last, Bucket) and last.s3 == s3 else Bucket(s3, sink.transaction_timeout_ms)


class Directory:
    """A directory, on one machine or in a network file system with atomic links."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def draft(self) -> Draft:
        place = self._path / layout.TEMPORARY / str(uuid.uuid4())
        with translating(f"writing to {self._path}"):
            make_directory(place.parent)
            return Draft(place.open("xb"), place)

    def create(self, path: str, draft: Draft) -> bool:
        target = self._path / path
        if draft.place is None:
            raise JobError(Reason.UNEXPECTED, "a file of another storage is to be created; report this")
        try:
            with translating(f"creating {target}"):
                # Before it has its name: after a loss of power a reader must not meet a file without its content.
                draft.file.flush()
                os.fsync(draft.file.fileno())
                make_directory(target.parent)
                try:
                    os.link(draft.place, target)
                except FileExistsError:
                    # Failure window: the answer of a file server was lost, and its client has asked again.
                    if not os.path.samefile(draft.place, target):
                        return False
                except OSError as e:
                    if e.errno in _NO_LINK and not _can_link(draft.place):
                        raise self._without_links(e) from None
                    raise
                make_durable(target.parent)
                return True
        finally:
            self.discard(draft)

    def _without_links(self, error: OSError) -> JobError:
        return JobError(
            Reason.TABLE_UNSUITABLE,
            f"the file system of {self._path} has no hard links ({error.strerror}), with which files are created; "
            "recreate the pipeline with a path in another file system, or in a bucket",
        )

    def discard(self, draft: Draft) -> None:
        with suppress(OSError):
            draft.file.close()
        if draft.place is not None:
            with suppress(OSError):
                draft.place.unlink()

    def read(self, path: str) -> bytes | None:
        with translating(f"reading {self._path / path}"):
            try:
                return (self._path / path).read_bytes()
            except FileNotFoundError:
                return None

    def metadata(self, path: str) -> Mapping[bytes, bytes] | None:
        with translating(f"reading {self._path / path}"):
            try:
                with (self._path / path).open("rb") as file:
                    return _metadata(file, str(self._path / path))
            except FileNotFoundError:
                return None

    def require_conditional(self, path: str) -> None:
        return  # a hard link replaces nothing

    def names(self, directory: str, after: str = "", before: str | None = None) -> Sequence[str]:
        with translating(f"reading {self._path / directory}"):
            try:
                names = (name for name in os.listdir(self._path / directory) if name > after)
                return sorted(name for name in names if before is None or name < before)
            except FileNotFoundError:
                return ()

    def directories(self) -> Sequence[str]:
        return [name for name in self.names("") if (self._path / name).is_dir()]

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(OSError):
                (self._path / path).unlink()

    def tidy(self) -> None:
        with suppress(OSError):
            for entry in os.scandir(self._path / layout.TEMPORARY):
                if time.time() - entry.stat().st_mtime > _LEFT_BEHIND_S:
                    self.remove([f"{layout.TEMPORARY}/{entry.name}"])

    def problems(self) -> Sequence[JobError]:
        present = next((place for place in (self._path, *self._path.parents) if place.exists()), self._path)
        if present.is_dir() and os.access(present, os.W_OK | os.X_OK):
            return ()
        what = f"the job may not write to {present}; let its user create files there"
        return (JobError(Reason.AUTHORIZATION_FAILED, what),)

    def require_permission(self, present: str | None) -> None:
        return  # problems() knows


def _can_link(file: Path) -> bool:
    """Whether the file can have a second name in its directory."""
    other = file.with_name(f"{file.name}-link")
    try:
        os.link(file, other)
    except OSError:
        return False
    with suppress(OSError):
        other.unlink()
    return True


class Bucket:
    """A prefix of an S3 bucket, whose server supports conditional writes."""

    def __init__(self, s3: S3, timeout_ms: int) -> None:
        """timeout_ms: of one request with its repetitions."""
        import obstore

        self.s3, self._client = s3, obstore
        self._uri = f"s3://{s3.bucket}/{s3.prefix}".rstrip("/")
        self._timeout_s = timeout_ms / 1000
        with translating(f"connecting to {self._uri}"):
            self._store = store_of(s3, timeout_ms)

    def draft(self) -> Draft:
        return Draft(io.BytesIO())

    def create(self, path: str, draft: Draft) -> bool:
        draft.file.seek(0)
        content = draft.file.read()
        deadline = time.monotonic() + self._timeout_s / 2
        while True:
            try:
                # In one request: an upload in parts would not be conditional.
                self._client.put(self._store, path, content, mode="create", use_multipart=False)
            except Exception as e:
                refusal = e
            else:
                return True
            # Failure window: the answer to a request was lost. The client has repeated it and met its own file, or has
            # stopped waiting. No two drafts are equal, so an equal end is that of this one.
            tail = self._tail(path, _TAIL)
            if tail == content[-_TAIL:]:
                return True
            if not isinstance(refusal, self._client.exceptions.AlreadyExistsError):
                raise translate(refusal, f"creating {self._uri}/{path}")
            if tail is not None:
                return False
            # Failure window: a server answers 409 to a request during which another one creates or removes the file.
            # The client takes that for a file that is there (RFC 9110, 15.5.10; ConditionalRequestConflict of S3).
            if time.monotonic() > deadline:
                raise JobError(
                    Reason.SINK_UNREACHABLE,
                    f"creating {self._uri}/{path}: the server refuses to create it, and has no such file (409 Conflict "
                    f"for {self._timeout_s / 2:.0f} s); the pipeline resumes when the server creates files again",
                )
            time.sleep(_AGAIN_S)

    def discard(self, draft: Draft) -> None:
        draft.file.close()

    def read(self, path: str) -> bytes | None:
        with translating(f"reading {self._uri}/{path}"):
            try:
                return bytes(self._client.get(self._store, path).bytes())
            except FileNotFoundError:
                return None

    def metadata(self, path: str) -> Mapping[bytes, bytes] | None:
        tail = self._tail(path, _TAIL)
        if tail is not None and len(tail) >= _END:
            length = int.from_bytes(tail[-_END : 4 - _END], "little") + _END
            if length > _TAIL:
                tail = self._tail(path, length)
        return None if tail is None else _metadata(pa.BufferReader(tail), f"{self._uri}/{path}")

    def _tail(self, path: str, size: int) -> bytes | None:
        """The last bytes of a file; None if there is no such file."""
        with translating(f"reading {self._uri}/{path}"):
            try:
                return bytes(self._client.get(self._store, path, options={"range": {"suffix": size}}).bytes())
            except FileNotFoundError:
                return None

    def require_conditional(self, path: str) -> None:
        require_conditional(self._store, path, self._uri)

    def names(self, directory: str, after: str = "", before: str | None = None) -> Sequence[str]:
        with translating(f"listing {self._uri}/{directory}"):
            paths = self._paths(directory, f"{directory}/{after}")
            names: Iterator[str] = (path.removeprefix(f"{directory}/") for path in paths)
            if before is not None:  # S3 lists in the order of the names
                names = itertools.takewhile(lambda name: name < before, names)
            return sorted(name for name in names if "/" not in name)  # without the files of directories below

    def _paths(self, directory: str, after: str) -> Iterator[str]:
        for part in self._client.list(self._store, directory, offset=after):
            yield from (entry["path"] for entry in part)

    def directories(self) -> Sequence[str]:
        with translating(f"listing {self._uri}"):
            return [str(prefix) for prefix in self._client.list_with_delimiter(self._store)["common_prefixes"]]

    def remove(self, paths: Sequence[str]) -> None:
        with suppress(Exception):
            self._client.delete(self._store, list(paths))

    def tidy(self) -> None:
        return  # what was not created is nowhere

    def problems(self) -> Sequence[JobError]:
        return ()

    def require_permission(self, present: str | None) -> None:
        if present is None:
            require_permission(self._store, self._uri)
        else:
            self.require_conditional(present)


def _metadata(file: object, path: str) -> Mapping[bytes, bytes]:
    try:
        return pq.read_metadata(file).metadata or {}
    except pa.ArrowInvalid as e:
        raise JobError(
            Reason.TABLE_UNSUITABLE,
            f"{path} has the name of a file of this sink, and is no file of Parquet ({e}); move it elsewhere",
        ) from None
