"""What a table must be like for a sink whose driver commits files: its features, its columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.staged.columns import problems_with


@dataclass(frozen=True)
class Place:
    """A table as messages name it, and the field of the spec that names it."""

    kind: str  # for instance "Delta table"
    name: str
    spec: str  # for instance "sink.delta"
    field: str  # of the spec, that has the name
    partition_columns: tuple[str, ...]  # as declared

    def unsuitable(self, problems: Sequence[str]) -> JobError:
        """The error for a table that rows cannot be written to."""
        return JobError(Reason.TABLE_UNSUITABLE, f"the {self.kind} {self.name} does not fit: {'; '.join(problems)}")

    def missing(self, *, delivered: bool = False) -> JobError:
        """The error for a table that does not exist. delivered: the pipeline has delivered to it."""
        remedy = (
            "create it, or set createTable: true; if the name is wrong, recreate the pipeline with the right "
            f"{self.spec}.{self.field}"
        )
        if delivered:
            remedy = f"the pipeline has delivered to it: correct the address in {self.spec}, or restore the table"
        return JobError(Reason.TABLE_UNSUITABLE, f"there is no {self.kind} {self.name}; {remedy}")


@dataclass(frozen=True)
class Table(ABC):
    """A version of a table, without its files."""

    schema: StructType
    partition_columns: tuple[str, ...] | None  # None: unsupported() says why there is no such list
    properties: Mapping[str, str]

    @abstractmethod
    def unsupported(self) -> Iterator[str]:
        """Why this sink must not write to the table, whatever its columns are."""

    def problems(self, place: Place, fields: Sequence[StructField] | None) -> list[str]:
        """Why rows with these columns cannot be written to it. fields: None if they are not known yet."""
        problems = list(self.unsupported())
        if self.partition_columns not in (None, place.partition_columns):
            listed = ", ".join(self.partition_columns or ())
            problems.append(f"it is partitioned by [{listed}]; write {place.spec}.partitionColumns: [{listed}]")
        if fields is not None:
            problems += problems_with(fields, self.schema)
        return problems

    def require(self, place: Place, fields: Sequence[StructField]) -> None:
        """Raises JobError(TABLE_UNSUITABLE) with everything that is wrong."""
        if problems := self.problems(place, fields):
            raise place.unsuitable(problems)

    def require_written(self, place: Place, written: StructType) -> None:
        """Raises JobError(TABLE_UNSUITABLE) if files with these columns do not fit any more."""
        self.require(place, written.fields)
        types = {field.name: field.dataType for field in self.schema.fields}
        changed = [field.name for field in written.fields if field.dataType != types[field.name]]
        if changed:
            raise place.unsuitable(
                [f"the type of {', '.join(changed)} has changed while the query ran; it starts again with the new"]
            )

    def require_values(self, place: Place, nulls: Iterable[Mapping[str, int]]) -> None:
        """Raises JobError(ROW_REFUSED) if there is null in a column that is NOT NULL. nulls: their number by column."""
        required = [field.name for field in self.schema.fields if not field.nullable]
        columns = {name for counts in nulls for name, count in counts.items() if count}
        refused = [name for name in required if name in columns]
        if refused:
            raise JobError(
                Reason.ROW_REFUSED,
                f"a row has null in {', '.join(refused)}, which is NOT NULL in {place.name}; filter such rows, or "
                "return a value for them",
            )
