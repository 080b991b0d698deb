"""What an Iceberg table must be like for the sink: its version, its partitions, its properties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from ackwright_stream.iceberg_types import to_spark
from ackwright_stream.jobspec import IcebergSink
from ackwright_stream.sinks.staged.table import Place, Table

_VERSION = 2  # 1 has no sequence numbers; 3 has row lineage, default values and deletion vectors
_CODECS = frozenset({"zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"})
_IDENTITY = "identity"
_SCHEMES = ("file", "s3", "s3a", "s3n")  # of locations


@dataclass(frozen=True)
class IcebergTableVersion(Table):
    """A version of the table, without its files."""

    location: str
    format_version: int
    transforms: tuple[str, ...]  # of the partition fields that are not just a column, as "bucket[16](id)"

    def unsupported(self) -> Iterator[str]:
        """What a writer has to obey, and this one does not."""
        if self.format_version != _VERSION:
            yield (
                f"its format version is {self.format_version}, and this sink writes version {_VERSION}; "
                + (
                    "set the table property format-version to 2"
                    if self.format_version < _VERSION
                    else "write to a table of version 2, and copy from there"
                )
            )
        if (scheme := self.location.partition(":")[0]) not in _SCHEMES and ":" in self.location:
            yield f"its files are in {scheme}:, and this sink writes to directories and S3; move the table"
        if self.transforms:
            yield (
                f"it is partitioned by {', '.join(self.transforms)}, and this sink partitions by columns as they are; "
                "replace these partition fields, or compute them in the transform"
            )
        if used := [f"{name}={value}" for name, value in sorted(self.properties.items()) if _is_refused(name, value)]:
            yield f"it has the properties {', '.join(used)}, which this sink does not support; remove them"


def _is_refused(name: str, value: str) -> bool:
    """Whether a property asks something of a writer that this one does not do."""
    match name:
        case "write.format.default":
            return value.lower() != "parquet"
        case "write.parquet.compression-codec":
            return value.lower() not in _CODECS
        case "write.parquet.compression-level":
            return not value.isdigit()
        case "write.wap.enabled" | "write.upsert.enabled":
            return value.lower() == "true"
        case "write.location-provider.impl" | "write.py-location-provider.impl" | "py-io-impl":
            return True
        case _:
            return name.startswith("encryption.")


def version_of(metadata: TableMetadata) -> IcebergTableVersion:
    """The version that this metadata describes."""
    schema, spec = metadata.schema(), metadata.spec()
    sources = [(schema.find_column_name(field.source_id) or "", str(field.transform)) for field in spec.fields]
    transforms = tuple(f"{transform}({name})" for name, transform in sources if transform != _IDENTITY)
    return IcebergTableVersion(
        schema=to_spark(schema),
        partition_columns=None if transforms else tuple(name for name, _ in sources),
        properties=metadata.properties,
        location=metadata.location,
        format_version=metadata.format_version,
        transforms=transforms,
    )


def place(sink: IcebergSink) -> Place:
    """The table as messages name it."""
    return Place("Iceberg table", sink.table, "sink.iceberg", "table", sink.partition_columns)
