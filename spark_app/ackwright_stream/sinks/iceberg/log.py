"""The snapshots of an Iceberg table: reads the latest, and commits the next one, by pyiceberg.

A commit is a compare-and-set of the table's latest snapshot: each commit makes a snapshot, also one without files, with
the requirement that the branch `main` has not moved since it was read. A change of properties alone would have no
requirement that protects them: the catalog accepts it from a client that has read an older version.

By default pyiceberg would rebase a commit that was refused, and both would be in the table. So its commit of a
transaction is not used.
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform
from pyspark.sql.types import StructType

from ackwright_stream import storage_errors
from ackwright_stream.errors import JobError
from ackwright_stream.iceberg_catalog import CatalogClient, local_path, translating
from ackwright_stream.iceberg_types import to_iceberg
from ackwright_stream.jobspec import IcebergSink, Reason
from ackwright_stream.s3_store import require_permission, store_of
from ackwright_stream.sinks.iceberg.files import DataFile, written_schema
from ackwright_stream.sinks.iceberg.table import IcebergTableVersion, place, version_of
from ackwright_stream.sinks.staged.positions import Lookup, Numbers
from ackwright_stream.storage_errors import one_line
from ackwright_stream.storage_location import S3

# What catalogs answer instead of "conflict" (409) if another commit was first: a client that applies the commit itself,
# and servers as status 400 (apache/iceberg before #15126, apache/polaris before #5138); the second one is Unity's.
_OVERTAKEN = ("older than last sequence number", "Commit validation failed")
_RETENTION = ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")  # fields of a branch


@dataclass(frozen=True)
class Version:
    """A version of the table, as far as a commit needs it."""

    handle: IcebergTable  # that has read it
    table: IcebergTableVersion
    lookup: Lookup  # the numbers among its properties


class TableLog:
    """The snapshots of one table. As in Log."""

    def __init__(self, sink: IcebergSink, snapshot: str) -> None:
        """snapshot: the name of the number that is the id of the pipeline's last snapshot."""
        self._sink, self._snapshot = sink, snapshot
        self._place = place(sink)
        self._catalog = CatalogClient(sink)
        self.refusal = ""

    def read(self) -> Version | None:
        handle = self._catalog.load()
        return None if handle is None else Version(handle, version_of(handle.metadata), self._lookup(handle))

    def update(self, version: Version) -> Version:
        latest = self.read()
        if latest is None:
            raise self._place.missing()
        return latest

    def _lookup(self, handle: IcebergTable) -> Lookup:
        properties = handle.metadata.properties

        def lookup(name: str) -> int | None:
            value = properties.get(name)
            try:
                return None if value is None else int(value)
            except ValueError:
                raise self._place.unsuitable([f"its property {name} is {value!r}, and must be a number"]) from None

        return lookup

    def append(
        self,
        version: Version,
        numbers: Numbers,
        added: Sequence[DataFile] = (),
        note: Mapping[str, str] | None = None,
    ) -> bool:
        """As in Log.append(). note: texts of the snapshot's summary, which lasts as long as the snapshot."""
        handle, metadata = version.handle, version.handle.metadata
        with translating(f"committing to {self._sink.table}"):
            change = Transaction(handle)
            summary = {name: _packed(text) for name, text in (note or {}).items()}
            files = change.update_snapshot(snapshot_properties=summary).fast_append()
            for file in added:
                files.append_data_file(file.to_manifest())
            files.commit()  # writes the manifests, and stages the snapshot with its requirement
            ours = {**numbers, self._snapshot: files.snapshot_id}
            change.set_properties({name: str(number) for name, number in ours.items()})
            requirements = (
                *change._requirements,
                AssertTableUUID(uuid=metadata.table_uuid),
                # Failure window: the table has changed since its files were checked. No snapshot tells.
                AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
                AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
            )
            try:
                handle._do_commit(updates=_with_retention(change._updates, metadata), requirements=requirements)
            except (CommitFailedException, BadRequestError, ValueError) as e:
                if not isinstance(e, CommitFailedException) and not any(text in str(e) for text in _OVERTAKEN):
                    raise
                self.refusal = one_line(str(e))
                # Failure window: a proxy has sent the request twice. The second one is refused because of the first,
                # and to commit again would add the same files twice.
                return self.update(version).lookup(self._snapshot) == files.snapshot_id
        return True

    def require_conditional(self, version: Version) -> None:
        return  # no server of files decides between two commits: the catalog compares snapshots

    def following(self, version: Version, numbers: Numbers) -> Version | None:
        """None: a property that somebody has set by hand meanwhile is seen by a read alone."""
        return None

    def create(self, schema: StructType) -> None:
        columns = to_iceberg(schema)
        fields = [
            PartitionField(columns.find_field(name).field_id, 1000 + n, IdentityTransform(), name)
            for n, name in enumerate(self._sink.partition_columns)
        ]
        self._catalog.create(schema=columns, partition_spec=PartitionSpec(*fields), properties={"format-version": "2"})

    def require_files(self, version: Version, added: Sequence[DataFile]) -> None:
        """Raises JobError(TABLE_UNSUITABLE) if a commit after this version must not add these files.

        Failure windows: a column was dropped and added again, so that it has another id than in the files; executors
        do not share the directory with the driver; orphan files were removed without a retention.
        """
        metadata = version.handle.metadata
        schemas = {schema.schema_id: schema for schema in metadata.schemas}
        for file in added:
            before, now = schemas.get(file.schema_id), metadata.schema()
            if file.spec_id != metadata.default_spec_id:
                raise self._place.unsuitable(
                    ["its partitions have changed while the query ran; it starts again with the new"]
                )
            if file.schema_id != metadata.current_schema_id and (
                before is None or written_schema(before, file.columns) != written_schema(now, file.columns)
            ):
                raise self._place.unsuitable(
                    ["its columns have changed while the query ran; it starts again with the new"]
                )
            path = local_path(file.path)
            if path is not None and not (path.is_file() and path.stat().st_size == file.size):
                raise self._place.unsuitable(
                    [
                        f"the file {file.path}, which a task has written, is not in this driver's directory; use a "
                        "directory that driver and executors share, or a bucket"
                    ]
                )

    def problems(self, version: Version) -> Sequence[JobError]:
        path = local_path(version.handle.metadata.location)
        if path is None or os.access(path, os.W_OK):
            return ()
        what = f"the job may not write to {path}; let its user write there"
        return (JobError(Reason.AUTHORIZATION_FAILED, what),)

    def require_permission(self, version: Version | None) -> None:
        if version is None:
            return  # the catalog decides where a new table is
        location, settings = version.handle.metadata.location, version.handle.io.properties
        scheme, _, path = location.partition("://")
        bucket, _, prefix = path.partition("/")
        names = ("endpoint", "region", "access-key-id", "secret-access-key", "session-token")
        endpoint, region, key, secret, token = (settings.get(f"s3.{name}") or None for name in names)
        if scheme not in ("s3", "s3a") or key is None:
            return  # only the client of the files knows its login
        with storage_errors.translating(f"connecting to {location}"):
            s3 = S3(bucket, prefix.strip("/"), endpoint, region, key, secret, token)
            store = store_of(s3, self._sink.transaction_timeout_ms)
        require_permission(store, location)

    def maintain(self, version: Version) -> None:
        return


def _with_retention(updates: Sequence[TableUpdate], metadata: TableMetadata) -> tuple[TableUpdate, ...]:
    """The updates, of which those of a branch leave its retention as it is.

    pyiceberg's have none, and so remove it (apache/iceberg-python#3770).
    """
    return tuple(
        update.model_copy(update={name: getattr(ref, name) for name in _RETENTION})
        if isinstance(update, SetSnapshotRefUpdate) and (ref := metadata.refs.get(update.ref_name))
        else update
        for update in updates
    )


def _packed(text: str) -> str:
    """A text for a summary, as short as possible: each commit writes the summaries of all snapshots again."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()
