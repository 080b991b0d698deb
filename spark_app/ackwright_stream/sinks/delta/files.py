"""The files of a Delta table's rows, as a commit adds them.

Readers take the values of partition columns from the log, and Polars from the files, which have these columns as well.
VACUUM (of delta-rs: with full=True) removes a file that was never committed once it is older than the table's
retention.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.base import Rows, Staged
from ackwright_stream.sinks.delta.storage import Storage
from ackwright_stream.sinks.staged.parquet import FileFormat, write


@dataclass(frozen=True)
class DataFile:
    """A file with rows, as a commit adds it."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int  # bytes
    modified_ms: int
    rows: int
    nulls: Mapping[str, int]  # by column

    @property
    def stats(self) -> str:
        """As the log has it."""
        return json.dumps({"numRecords": self.rows})


def stage(rows: Rows, partition_columns: Sequence[str], storage: Storage) -> tuple[int, Staged]:
    """Writes the rows to new files; returns their number and the files. Raises JobError."""
    written = write(rows, partition_columns, storage, FORMAT)
    now = int(time.time() * 1000)
    added = [DataFile(file.path, file.partition, file.size, now, file.rows, file.nulls) for file in written]
    return sum(file.rows for file in written), json.dumps([asdict(file) for file in added]).encode()


def staged(of_tasks: Iterable[Staged]) -> list[DataFile]:
    """The files that stage() returned."""
    return [DataFile(**file) for text in of_tasks for file in json.loads(text)]


def to_partition(name: str, value: Any) -> str | None:
    """A partition value as the log has it (PROTOCOL.md, "Partition Value Serialization")."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case datetime.date():
            return value.isoformat()
        case "":
            raise JobError(
                Reason.ROW_REFUSED,
                f"the partition column {name!r} is empty text, which Delta reads as null; return NULL or another "
                f"value: NULLIF({name}, '')",
            )
        case _:
            return str(value)


FORMAT = FileFormat(to_partition, keeps_partitions=True)
