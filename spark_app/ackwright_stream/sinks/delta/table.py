"""What a Delta table must be like for the sink: its protocol, its properties, its columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeltaSink, Reason
from ackwright_stream.sinks.delta.columns import problems_with

# Features with which a writer that only adds files has nothing to do, unless the table uses them as _used() finds.
_HARMLESS = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz"}
)
_NEWEST_WRITER_WITHOUT_FEATURES = 4  # 5 brings column mapping, 6 identity columns, 7 the list of features
_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True)
class Table:
    """A version of the table, without its files."""

    schema: StructType
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    min_writer_version: int
    features: frozenset[str]  # of readers and writers, that the table lists

    def problems(self, sink: DeltaSink, fields: Sequence[StructField] | None) -> list[str]:
        """Why rows with these columns cannot be written to it. fields: None if they are not known yet."""
        problems = list(self._unsupported())
        if _RETENTION in self.properties:
            problems.append(
                f"it has the property {_RETENTION}, which lets the log forget positions; remove it with ALTER TABLE … "
                "UNSET TBLPROPERTIES"
            )
        if self.partition_columns != sink.partition_columns:
            listed = ", ".join(self.partition_columns)
            problems.append(f"it is partitioned by [{listed}]; write sink.delta.partitionColumns: [{listed}]")
        if fields is not None:
            problems += problems_with(fields, self.schema)
        return problems

    def require(self, sink: DeltaSink, fields: Sequence[StructField]) -> None:
        """Raises JobError(TABLE_UNSUITABLE) with everything that is wrong."""
        if problems := self.problems(sink, fields):
            raise unsuitable(sink, problems)

    def require_written(self, sink: DeltaSink, written: StructType) -> None:
        """Raises JobError(TABLE_UNSUITABLE) if files with these columns do not fit any more."""
        self.require(sink, written.fields)
        types = {field.name: field.dataType for field in self.schema.fields}
        changed = [field.name for field in written.fields if field.dataType != types[field.name]]
        if changed:
            raise unsuitable(
                sink,
                [f"the type of {', '.join(changed)} has changed while the query ran; it starts again with the new"],
            )

    def require_values(self, sink: DeltaSink, nulls: Iterable[Mapping[str, int]]) -> None:
        """Raises JobError(ROW_REFUSED) if there is null in a column that is NOT NULL. nulls: their number by column."""
        required = [field.name for field in self.schema.fields if not field.nullable]
        columns = {name for counts in nulls for name, count in counts.items() if count}
        refused = [name for name in required if name in columns]
        if refused:
            raise JobError(
                Reason.ROW_REFUSED,
                f"a row has null in {', '.join(refused)}, which is NOT NULL in {sink.path}; filter such rows, or "
                "return a value for them",
            )

    def _unsupported(self) -> Iterator[str]:
        """Features of the table that a writer has to obey, and this one does not."""
        used = sorted((self.features - _HARMLESS) | set(self._used()))
        if not self.features and self.min_writer_version > _NEWEST_WRITER_WITHOUT_FEATURES:
            used.append(f"writer version {self.min_writer_version}")
        if used:
            yield (
                f"it uses {', '.join(used)}, which this sink does not support; write to a table without, and copy from "
                "there"
            )

    def _used(self) -> Iterator[str]:
        if any(name.startswith("delta.constraints.") for name in self.properties):
            yield "CHECK constraints"
        if self.properties.get("delta.columnMapping.mode", "none") != "none":
            yield "column mapping"
        if self.properties.get("delta.enableDeletionVectors", "").lower() == "true":
            yield "deletion vectors"
        keys = {key for field in self.schema.fields for key in field.metadata}
        for key, name in (
            ("delta.invariants", "invariants of columns"),
            ("delta.generationExpression", "generated columns"),
            ("delta.identity.start", "identity columns"),
            ("CURRENT_DEFAULT", "column defaults"),
        ):
            if key in keys:
                yield name


def unsuitable(sink: DeltaSink, problems: Sequence[str]) -> JobError:
    """The error for a table that rows cannot be written to."""
    return JobError(Reason.TABLE_UNSUITABLE, f"the Delta table {sink.path} does not fit: {'; '.join(problems)}")


def missing(sink: DeltaSink) -> JobError:
    """The error for a table that does not exist."""
    return JobError(
        Reason.TABLE_UNSUITABLE,
        f"there is no Delta table in {sink.path}; create it, correct sink.delta.path, or set createTable: true",
    )
