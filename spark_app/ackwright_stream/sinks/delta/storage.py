"""The files of a Delta table, in a directory or in a bucket."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from ackwright_stream.durable_files import make_directory, make_durable
from ackwright_stream.jobspec import DeltaSink, s3_region
from ackwright_stream.s3_store import require_conditional, require_permission, store_of
from ackwright_stream.sinks.staged.parquet import Files
from ackwright_stream.storage_errors import translating
from ackwright_stream.storage_location import S3, s3_of

if TYPE_CHECKING:
    from obstore.store import S3Store

LOG = "_delta_log"  # the directory of the log, in that of the table


class Storage(Files, Protocol):
    """Paths are relative to the table. Every method raises JobError."""

    @property
    def uri(self) -> str:
        """Where the table is, for delta-rs."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """Settings of delta-rs."""
        ...

    def has(self, path: str, size: int) -> bool:
        """Whether the file is there with this size, as far as that is known."""
        ...

    def make_log(self) -> None:
        """Makes the directory of the log, durably, if there is none."""
        ...

    def make_durable(self, path: str) -> None:
        """Makes a file durable that another client has written; does nothing if it was removed since."""
        ...

    def make_checkpoint_durable(self) -> None:
        """Makes the latest checkpoint of the log durable, and the file that names it."""
        ...

    def require_conditional(self, path: str) -> None:
        """Raises JobError(TABLE_UNSUITABLE) if a file that is to be created replaces this one, which is there."""
        ...

    def may_write(self) -> bool:
        """Whether nothing is known that forbids to write."""
        ...

    def require_permission(self, present: str | None) -> None:
        """Raises JobError if the job may not write, as far as a request tells that changes nothing.

        present: a file that is there, and keeps its content.
        """
        ...


def of(sink: DeltaSink) -> Storage:
    """The storage of a table. Connects to nothing."""
    s3 = s3_of(sink)
    return Directory(Path(sink.path)) if s3 is None else Bucket(s3, int(sink.commit["timeout.ms"]))


class Directory:
    """A directory, on one machine or in a network file system with atomic links."""

    def __init__(self, path: Path) -> None:
        self._path, self.uri = path, str(path)
        self.options: Mapping[str, str] = {}

    def create(self, path: str) -> BinaryIO:
        with translating(f"writing to {self.uri}"):
            return (self._path / path).open("xb")

    def finish(self, path: str, file: BinaryIO) -> int:
        with translating(f"writing to {self.uri}"):
            size = file.tell()
            file.flush()
            os.fsync(file.fileno())
            file.close()
            make_durable(self._path)
            return size

    def discard(self, path: str, file: BinaryIO) -> None:
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            (self._path / path).unlink()

    def has(self, path: str, size: int) -> bool:
        with suppress(OSError):
            return (self._path / path).stat().st_size == size
        return False

    def make_log(self) -> None:
        with translating(f"writing to {self.uri}"):
            make_directory(self._path / LOG)

    def make_durable(self, path: str) -> None:
        with translating(f"writing to {self.uri}"):
            with suppress(FileNotFoundError):
                make_durable(self._path / path)
            make_durable((self._path / path).parent)

    def make_checkpoint_durable(self) -> None:
        with translating(f"writing to {self.uri}"):
            parts = sorted(path.name for path in (self._path / LOG).glob("*.checkpoint*.parquet"))
            latest = [name for name in parts if name.partition(".")[0] == parts[-1].partition(".")[0]]
        for name in (*latest, "_last_checkpoint") if latest else ():
            self.make_durable(f"{LOG}/{name}")

    def require_conditional(self, path: str) -> None:
        return  # delta-rs creates an entry with a hard link, which replaces nothing

    def may_write(self) -> bool:
        return os.access(self._path, os.W_OK) and os.access(self._path / "_delta_log", os.W_OK)

    def require_permission(self, present: str | None) -> None:
        return  # may_write() knows


class Bucket:
    """A prefix of an S3 bucket, whose server supports conditional writes."""

    def __init__(self, s3: S3, timeout_ms: int) -> None:
        """timeout_ms: of one request with its repetitions."""
        self._s3, self._timeout_ms = s3, timeout_ms
        self.uri = f"s3://{s3.bucket}/{s3.prefix}".rstrip("/")
        options = {
            "aws_region": s3_region(s3.region, s3.endpoint),
            "aws_endpoint_url": s3.endpoint,
            "aws_access_key_id": s3.access_key,
            "aws_secret_access_key": s3.secret_key,
            "aws_allow_http": "true" if (s3.endpoint or "").startswith("http://") else None,
            "aws_conditional_put": "etag",  # a log entry is created with If-None-Match
            "retry_timeout": f"{timeout_ms // 1000}s",
        }
        self.options: Mapping[str, str] = {name: value for name, value in options.items() if value is not None}
        self._files: Any = None

    def create(self, path: str) -> BinaryIO:
        from deltalake.fs import DeltaStorageHandler

        with translating(f"writing to {self.uri}"):
            if self._files is None:
                self._files = DeltaStorageHandler(self.uri, dict(self.options))
            file: BinaryIO = self._files.open_output_stream(path)
            return file

    def finish(self, path: str, file: BinaryIO) -> int:
        with translating(f"writing to {self.uri}"):
            size = file.tell()
            file.close()  # ends the upload
            return size

    def discard(self, path: str, file: BinaryIO) -> None:
        with suppress(Exception):
            file.close()

    def has(self, path: str, size: int) -> bool:
        return True

    def make_log(self) -> None:
        return

    def make_durable(self, path: str) -> None:
        return

    def make_checkpoint_durable(self) -> None:
        return

    def require_conditional(self, path: str) -> None:
        require_conditional(self._store(), path, self.uri)

    def _store(self) -> S3Store:
        with translating(f"connecting to {self.uri}"):
            return store_of(self._s3, self._timeout_ms)

    def may_write(self) -> bool:
        return True

    def require_permission(self, present: str | None) -> None:
        if present is None:
            require_permission(self._store(), self.uri)
        else:
            self.require_conditional(present)
