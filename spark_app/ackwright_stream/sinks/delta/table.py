"""What a Delta table must be like for the sink: its protocol and its properties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ackwright_stream.jobspec import DeltaSink
from ackwright_stream.sinks.staged.table import Place, Table

# Features with which a writer that only adds files has nothing to do, unless the table uses them as _used() finds.
_HARMLESS = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz"}
)
_NEWEST_WRITER_WITHOUT_FEATURES = 4  # 5 brings column mapping, 6 identity columns, 7 the list of features
_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True)
class DeltaTableVersion(Table):
    """A version of the table, without its files."""

    min_writer_version: int
    features: frozenset[str]  # of readers and writers, that the table lists

    def unsupported(self) -> Iterator[str]:
        """Features of the table that a writer has to obey, and this one does not; and a log that forgets positions."""
        used = sorted((self.features - _HARMLESS) | set(self._used()))
        if not self.features and self.min_writer_version > _NEWEST_WRITER_WITHOUT_FEATURES:
            used.append(f"writer version {self.min_writer_version}")
        if used:
            yield (
                f"it uses {', '.join(used)}, which this sink does not support; write to a table without, and copy from "
                "there"
            )

        if _RETENTION in self.properties:
            yield (
                f"it has the property {_RETENTION}, which lets the log forget positions; remove it with ALTER TABLE … "
                "UNSET TBLPROPERTIES"
            )

    def _used(self) -> Iterator[str]:
        if any(name.startswith("delta.constraints.") for name in self.properties):
            yield "CHECK constraints"
        if self.properties.get("delta.columnMapping.mode", "none") != "none":
            yield "column mapping"
        if self.properties.get("delta.enableDeletionVectors", "").lower() == "true":
            yield "deletion vectors"
        keys = set(_metadata_keys(self.schema))
        for key, name in (
            ("__CHAR_VARCHAR_TYPE_STRING", "columns of type VARCHAR or CHAR"),  # to Delta they are STRING
            ("delta.invariants", "invariants of columns"),
            ("delta.generationExpression", "generated columns"),
            ("delta.identity.start", "identity columns"),
            ("CURRENT_DEFAULT", "column defaults"),
        ):
            if key in keys:
                yield name


def _metadata_keys(kind: DataType) -> Iterator[str]:
    """The names of the metadata of every field of a type, also of those within it."""
    match kind:
        case StructType():
            for field in kind.fields:
                yield from field.metadata
                yield from _metadata_keys(field.dataType)
        case ArrayType():
            yield from _metadata_keys(kind.elementType)
        case MapType():
            yield from _metadata_keys(kind.keyType)
            yield from _metadata_keys(kind.valueType)


def place(sink: DeltaSink) -> Place:
    """The table as messages name it."""
    return Place("Delta table", sink.path, "sink.delta", "path", sink.partition_columns)
