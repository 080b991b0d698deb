"""The log of a Delta table: reads its latest version, and creates the next one, by delta-rs.

A commit is a compare-and-set of the table's version: with max_commit_retries=0 delta-rs creates the entry after the
version that the handle has read, or fails. By default it would rebase the commit to a later version.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeltaSink, Reason
from ackwright_stream.sinks.delta import storage
from ackwright_stream.sinks.delta.files import DataFile
from ackwright_stream.sinks.delta.table import DeltaTableVersion, place
from ackwright_stream.sinks.staged.positions import Lookup, Numbers
from ackwright_stream.storage_errors import one_line, shortened, translate, translating

# What may fail after a commit must not look like a commit that failed: maintain() does it.
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_UNSUPPORTED = "Unsupported table features"  # of delta-rs, at a commit
# Of delta-rs, for a protocol that it does not know or that contradicts itself, and for a table of a catalog.
_UNREADABLE = re.compile(r"^Kernel error: (Unsupported|Invalid protocol|Max catalog version)|is not supported$")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Version:
    """A version of the table, as far as a commit needs it."""

    handle: DeltaTable  # that has read it
    number: int
    table: DeltaTableVersion
    lookup: Lookup  # the numbers of its application transactions
    known: Mapping[str, int | None]  # those that are known without a read of the log


class TableLog:
    """The log of one table. Every method raises JobError."""

    def __init__(self, sink: DeltaSink) -> None:
        self._sink = sink
        self._opened: storage.Storage | None = None
        self._durable: int | None = None  # the latest version whose entry this process knows to be durable
        self.refusal = ""  # why the last append() that returned False did

    @property
    def _storage(self) -> storage.Storage:
        """The files of the table."""
        if self._opened is None:
            self._opened = storage.of(self._sink)
        return self._opened

    def read(self) -> Version | None:
        """The latest version; None if there is no table. The login is read again: a Secret may have changed."""
        self._opened = storage.of(self._sink)
        with self._reading():
            try:
                handle = DeltaTable(self._storage.uri, storage_options=dict(self._storage.options))
            except TableNotFoundError:
                return None
            return self._version(handle)

    def update(self, version: Version) -> Version:
        """The latest version, from the entries after this one: a fresh read lists every file of the table."""
        with self._reading():
            version.handle.update_incremental()
            return self._version(version.handle)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raises JobError in place of errors of delta-rs: TABLE_UNSUITABLE for a table that it cannot read."""
        with translating(f"reading the log of {self._sink.path}"):
            try:
                yield
            except DeltaError as e:
                if _UNREADABLE.search(text := one_line(str(e))):
                    raise self._refused("read", text) from None
                raise

    def _refused(self, what: str, text: str) -> JobError:
        remedy = "write to a table without such features, and copy from there"
        return place(self._sink).unsuitable([f"delta-rs cannot {what} it ({shortened(text)}); {remedy}"])

    def _version(self, handle: DeltaTable) -> Version:
        known: dict[str, int | None] = {}
        return Version(handle, handle.version(), _table(handle), self._lookup(handle, known), known)

    def _lookup(self, handle: DeltaTable, known: dict[str, int | None]) -> Lookup:
        """Each lookup follows the log from its end, so it is done once for each name, and added to `known`."""

        def lookup(name: str) -> int | None:
            if name not in known:
                with self._reading():
                    known[name] = handle.transaction_version(name)
            return known[name]

        return lookup

    def append(
        self,
        version: Version,
        numbers: Numbers,
        added: Sequence[DataFile] = (),
        note: Mapping[str, str] | None = None,
    ) -> bool:
        """Whether the version after this one could be created, with these numbers and files.

        note: texts of the entry's commitInfo, which lasts as long as the entry.

        False if it exists already, perhaps by this very commit: a client of S3 repeats a request whose answer was lost.
        After an error it may be there, or come late.
        """
        self._make_durable(version)
        with translating(f"committing to {self._sink.path}"):
            try:
                version.handle.create_write_transaction(
                    [_add(file) for file in added],
                    "append",
                    version.handle.schema(),
                    list(version.table.partition_columns or ()),
                    commit_properties=CommitProperties(
                        max_commit_retries=0,
                        custom_metadata=dict(note) if note else None,
                        app_transactions=[Transaction(name, number) for name, number in numbers.items()],
                    ),
                    post_commithook_properties=_NO_HOOKS,
                )
            except CommitFailedError as e:
                self.refusal = one_line(str(e))
                # delta-rs raises the same error for a table with features that it does not support.
                if problems := list(version.table.unsupported()):
                    raise place(self._sink).unsuitable(problems) from None
                if _UNSUPPORTED in self.refusal:
                    raise self._refused("write to", self.refusal) from None
                return False
        self._storage.make_durable(_entry(version.number + 1))
        self._durable = version.number + 1
        return True

    def _make_durable(self, version: Version) -> None:
        """Makes the entries durable that this process has not created, up to this version.

        Failure window: a driver was killed between the creation of its entry and the flush. After a loss of power the
        next entry would be there, and this one empty: nobody could read the table.
        """
        last = self._durable
        if last is None:  # the program that has created this version has read the entries before it
            self._storage.make_checkpoint_durable()
        first = version.number if last is None or last > version.number else last + 1
        for number in range(first, version.number + 1):
            self._storage.make_durable(_entry(number))
        self._durable = version.number

    def require_conditional(self, version: Version) -> None:
        """Raises JobError(TABLE_UNSUITABLE) if the server would replace an entry of the log."""
        self._storage.require_conditional(_entry(version.number + 1))

    def following(self, version: Version, numbers: Numbers) -> Version | None:
        """The version that append() has created with these numbers; None if it has to be read.

        Nothing else of the pipeline has changed: no other commit is between the two versions.
        """
        try:
            version.handle.update_incremental()
        except Exception as e:  # the commit is durable
            log.warning("%s", translate(e, f"reading the log of {self._sink.path}").message)
            return None
        if version.handle.version() != version.number + 1:
            return None  # another program has committed since

        known = {**version.known, **numbers}
        return Version(version.handle, version.number + 1, version.table, self._lookup(version.handle, known), known)

    def create(self, schema: StructType) -> None:
        """Creates the table with these columns, all of which may be null.

        If another driver creates it at the same time, its table stays.
        """
        columns = _nullable(schema)
        self._storage.make_log()
        with translating(f"creating the table {self._sink.path}"):
            DeltaTable.create(
                self._storage.uri,
                Schema.from_json(columns.json()),
                mode="ignore",
                partition_by=list(self._sink.partition_columns),
                storage_options=dict(self._storage.options),
            )
        self._storage.make_durable(_entry(0))

    def require_files(self, version: Version, added: Sequence[DataFile]) -> None:
        """Raises JobError(TABLE_UNSUITABLE) if files that tasks have written are not in this driver's directory.

        Failure window: executors that do not share the directory with the driver, or a VACUUM between the write and the
        commit. The commit would name files that nobody can read.
        """
        for file in added:
            if not self._storage.has(file.path, file.size):
                raise place(self._sink).unsuitable(
                    [
                        f"the file {file.path}, which a task has written, is not in this driver's directory; use a "
                        "directory that driver and executors share, or a bucket"
                    ]
                )

    def problems(self, version: Version) -> Sequence[JobError]:
        """Why nothing can be written, as far as that is known without a request."""
        if self._storage.may_write():
            return ()
        what = f"the job may not write to {self._sink.path}; let its user write there"
        return (JobError(Reason.AUTHORIZATION_FAILED, what),)

    def require_permission(self, version: Version | None) -> None:
        """Raises JobError if the job may not write, as far as a request tells that changes nothing."""
        self._storage.require_permission(None if version is None else _entry(version.number))

    def maintain(self, version: Version) -> None:
        """Writes a checkpoint of the log from time to time, and removes entries that have expired."""
        properties = version.table.properties
        if (version.number + 1) % self._checkpoint_interval(properties):
            return
        try:
            with translating(f"writing a checkpoint of {self._sink.path}"):
                version.handle.create_checkpoint()
                self._storage.make_checkpoint_durable()  # before the entries that it replaces are removed
                if properties.get("delta.enableExpiredLogCleanup", "true").lower() != "false":
                    version.handle.cleanup_metadata()
        except JobError as e:  # the commit before it is durable, and the next checkpoint does the same
            log.warning("%s", e.message)

    def _checkpoint_interval(self, properties: Mapping[str, str]) -> int:
        """The number of commits from one checkpoint to the next: the table's, if it is a positive number."""
        with suppress(ValueError):
            interval = int(properties.get("delta.checkpointInterval", ""))
            if interval > 0:
                return interval
        return int(self._sink.commit["checkpoint.interval"])


def _nullable(kind: DataType) -> DataType:
    """The type with no part that is NOT NULL.

    Delta for Spark refuses a table with such a part if its protocol lists features and not `invariants`, and delta-rs
    does not list that (a column of TIMESTAMP_NTZ makes it list features).
    """
    match kind:
        case StructType():
            return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind.fields])
        case ArrayType():
            return ArrayType(_nullable(kind.elementType))
        case _:
            return kind


def _entry(number: int) -> str:
    return f"{storage.LOG}/{number:020}.json"


def _table(handle: DeltaTable) -> DeltaTableVersion:
    protocol, metadata = handle.protocol(), handle.metadata()
    return DeltaTableVersion(
        schema=StructType.fromJson(json.loads(handle.schema().to_json())),
        partition_columns=tuple(metadata.partition_columns),
        properties=dict(metadata.configuration),
        min_writer_version=protocol.min_writer_version,
        features=frozenset((*(protocol.writer_features or ()), *(protocol.reader_features or ()))),
    )


def _add(file: DataFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=file.partition_values,
        modification_time=file.modified_ms,
        data_change=True,
        stats=file.stats,
    )
