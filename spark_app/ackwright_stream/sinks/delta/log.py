"""The log of a Delta table: reads its latest version, and creates the next one, by delta-rs.

A commit is a compare-and-set of the table's version: with max_commit_retries=0 delta-rs creates the entry after the
version that the handle has read, or fails. By default it would rebase the commit to a later version.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeltaSink, Reason
from ackwright_stream.sinks.delta import storage
from ackwright_stream.sinks.delta.files import DataFile
from ackwright_stream.sinks.delta.table import DeltaTableVersion, place
from ackwright_stream.sinks.staged.positions import Lookup, Numbers
from ackwright_stream.storage_errors import one_line, translate, translating

# What may fail after a commit must not look like a commit that failed: maintain() does it.
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
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
        with translating(f"reading the log of {self._sink.path}"):
            try:
                handle = DeltaTable(self._storage.uri, storage_options=dict(self._storage.options))
            except TableNotFoundError:
                return None
            return self._version(handle)

    def update(self, version: Version) -> Version:
        """The latest version, from the entries after this one: a fresh read lists every file of the table."""
        with translating(f"reading the log of {self._sink.path}"):
            version.handle.update_incremental()
            return self._version(version.handle)

    def _version(self, handle: DeltaTable) -> Version:
        known: dict[str, int | None] = {}
        return Version(handle, handle.version(), _table(handle), self._lookup(handle, known), known)

    def _lookup(self, handle: DeltaTable, known: dict[str, int | None]) -> Lookup:
        """Each lookup follows the log from its end, so it is done once for each name, and added to `known`."""

        def lookup(name: str) -> int | None:
            if name not in known:
                with translating(f"reading the log of {self._sink.path}"):
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
                return False
        self._storage.make_durable(_entry(version.number + 1))
        return True

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
        with translating(f"creating the table {self._sink.path}"):
            DeltaTable.create(
                self._storage.uri,
                Schema.from_json(columns.json()),
                mode="ignore",
                partition_by=list(self._sink.partition_columns),
                storage_options=dict(self._storage.options),
            )

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
        interval = int(properties.get("delta.checkpointInterval", self._sink.commit["checkpoint.interval"]))
        if (version.number + 1) % interval:
            return
        try:
            version.handle.create_checkpoint()
            if properties.get("delta.enableExpiredLogCleanup", "true").lower() != "false":
                version.handle.cleanup_metadata()
        except Exception as e:  # the commit before it is durable, and the next checkpoint does the same
            log.warning("%s", translate(e, f"writing a checkpoint of {self._sink.path}").message)


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
    return f"_delta_log/{number:020}.json"


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
