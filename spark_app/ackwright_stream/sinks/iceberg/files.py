"""The files of an Iceberg table's rows, as a commit adds them.

A file has the ids of the columns, so that it is read correctly after they are renamed. A file that was never committed
is an orphan file, which the table's maintenance removes.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as ManifestFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from ackwright_stream.iceberg_catalog import translating
from ackwright_stream.sinks.base import Rows, Staged
from ackwright_stream.sinks.iceberg.table import version_of
from ackwright_stream.sinks.parquet_columns import encoding
from ackwright_stream.sinks.staged import parquet
from ackwright_stream.sinks.staged.table import Place

_WITH_LEVEL = ("zstd", "gzip", "brotli")  # codecs to which Arrow passes a level; it refuses one for others
_EPOCH = datetime.date(1970, 1, 1)
_BOUNDS = ("lower_bounds", "upper_bounds")
_BY_COLUMN = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", *_BOUNDS)


@dataclass(frozen=True)
class DataFile:
    """A file with rows, as a commit adds it."""

    path: str
    schema_id: int  # of the table when it was written
    spec_id: int  # of the partitions then
    columns: tuple[str, ...]
    partition: tuple[Any, ...]  # in the order of the spec
    size: int  # bytes
    nulls: Mapping[str, int]  # by column
    statistics: Mapping[str, Any]  # as pyiceberg has them; bounds in hexadecimal

    def to_manifest(self) -> ManifestFile:
        """As a manifest has it."""
        statistics: dict[str, Any] = {
            name: {int(column): _from_json(name, n) for column, n in value.items()} if name in _BY_COLUMN else value
            for name, value in self.statistics.items()
        }
        return ManifestFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*self.partition),
            file_size_in_bytes=self.size,
            sort_order_id=None,
            spec_id=self.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics,
        )


def stage(rows: Rows, metadata: TableMetadata, io: FileIO, place: Place) -> tuple[int, Staged]:
    """Writes the rows to new files; returns their number and the files. Raises JobError."""
    table, columns = version_of(metadata), metadata.schema().column_names

    def without_nulls(rows: Rows) -> Rows:
        for batch in rows:
            # Failure window: a column was renamed or dropped since the driver has compared the columns.
            if absent := [name for name in batch.schema.names if name not in columns]:
                raise place.unsuitable([f"the table has no column {name!r} any more" for name in absent])
            counts = zip(batch.schema.names, (column.null_count for column in batch.columns), strict=True)
            table.require_values(place, [dict(counts)])
            yield batch

    written = parquet.write(without_nulls(rows), place.partition_columns, IoFiles(io), file_format(metadata))
    added = [_data_file(file, metadata) for file in written]
    return sum(file.rows for file in written), json.dumps([asdict(file) for file in added]).encode()


def staged(of_tasks: Iterable[Staged]) -> list[DataFile]:
    """The files that stage() returned."""
    files = [DataFile(**file) for text in of_tasks for file in json.loads(text)]
    return [replace(file, columns=tuple(file.columns), partition=tuple(file.partition)) for file in files]


def to_partition(name: str, value: Any) -> Any:
    """A partition value as manifests have it."""
    return (value - _EPOCH).days if isinstance(value, datetime.date) else value


def written_schema(schema: Schema, columns: Sequence[str]) -> Schema:
    """The columns of a file, in their order."""
    return Schema(*(schema.find_field(name) for name in columns))


def file_format(metadata: TableMetadata) -> parquet.FileFormat:
    """How the table has its rows."""
    locations = load_location_provider(metadata.location, metadata.properties)

    def to_columns(rows: pa.Table) -> pa.Table:
        return rows.cast(schema_to_pyarrow(written_schema(metadata.schema(), rows.column_names)))

    codec = metadata.properties.get("write.parquet.compression-codec", "zstd").lower()
    level = metadata.properties.get("write.parquet.compression-level")
    options = {
        "compression": "none" if codec == "uncompressed" else codec,
        "compression_level": int(level) if level is not None and codec in _WITH_LEVEL else None,
        "store_decimal_as_integer": True,  # as Iceberg's specification has it
    }
    return parquet.FileFormat(
        to_partition,
        keeps_partitions=True,
        to_path=locations.new_data_location,
        to_columns=to_columns,
        require_described=lambda file: _statistics(file, metadata),
        options=options,
    )


def _data_file(file: parquet.Written, metadata: TableMetadata) -> DataFile:
    return DataFile(
        path=file.path,
        schema_id=metadata.current_schema_id,
        spec_id=metadata.default_spec_id,
        columns=tuple(file.metadata.schema.to_arrow_schema().names),
        partition=tuple(file.partition.values()),
        size=file.size,
        nulls=file.nulls,
        statistics=_statistics(file.metadata, metadata),
    )


def _statistics(file: pq.FileMetaData, metadata: TableMetadata) -> dict[str, Any]:
    """Sizes, counts and bounds of a file's columns, as DataFile has them. Raises JobError."""
    schema = written_schema(metadata.schema(), file.schema.to_arrow_schema().names)
    ids = parquet_path_to_id_mapping(schema)
    with translating("describing a file"), encoding("the table's metadata cannot have the bounds of a column"):
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=file,
            stats_columns=compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=ids,
        ).to_serialized_dict()
    for column in _unbounded(file, ids):
        for bounds in _BOUNDS:
            statistics[bounds].pop(column, None)
    return {
        name: {column: _to_json(n) for column, n in value.items()} if name in _BY_COLUMN else value
        for name, value in statistics.items()
    }


def _unbounded(file: pq.FileMetaData, ids: Mapping[str, int]) -> set[int]:
    """The ids of columns of which a row group has values and no bounds. ids: of the columns, by their paths.

    Arrow omits the bounds of a row group if a value is longer than 4 KB. pyiceberg takes the bounds of the other row
    groups for those of the file, and readers skip rows that are in it.
    """
    groups = [file.row_group(n) for n in range(file.num_row_groups)]
    chunks = [group.column(n) for group in groups for n in range(group.num_columns)]
    return {ids[chunk.path_in_schema] for chunk in chunks if not _is_bounded(chunk)}


def _is_bounded(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether the bounds of a column in a row group are known, or there is no value but null."""
    statistics = chunk.statistics
    if statistics is None:
        return False
    return bool(statistics.has_min_max or (statistics.has_null_count and statistics.null_count == chunk.num_values))


def _to_json(value: int | bytes) -> int | str:
    return value.hex() if isinstance(value, bytes) else value


def _from_json(name: str, value: int | str) -> int | bytes:
    return bytes.fromhex(value) if isinstance(value, str) else value


class IoFiles:
    """New files of a table. As in parquet.Files."""

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def create(self, path: str) -> BinaryIO:
        with translating(f"writing {path}"):
            return cast("BinaryIO", self._io.new_output(path).create())

    def finish(self, path: str, file: BinaryIO) -> int:
        with translating(f"writing {path}"):
            size = file.tell()
            file.close()  # ends the upload
            return size

    def discard(self, path: str, file: BinaryIO) -> None:
        with suppress(Exception):
            file.close()
        with suppress(Exception):
            self._io.delete(path)
