"""Rows that are only judged, to learn which of them a table does not take."""

from __future__ import annotations

import pyarrow as pa

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.staged.parquet import FileFormat, InMemory, write
from ackwright_stream.sinks.staged.table import Place, Table


class RowTrial:
    """Rows against one version of the table. They are written to memory alone: no rule depends on other rows."""

    def __init__(self, place: Place, table: Table, form: FileFormat) -> None:
        self._place, self._table, self._form = place, table, form

    def refusal(self, rows: pa.Table) -> JobError | None:
        """As in Trial."""
        nulls = {name: rows.column(name).null_count for name in rows.column_names}
        try:
            self._table.require_values(self._place, [nulls])
            for file in write(rows.to_batches(), self._place.partition_columns, InMemory(), self._form):
                self._form.require_described(file.metadata)
        except JobError as e:
            if e.reason is not Reason.ROW_REFUSED:
                raise
            return e
        return None
