"""Rows that are only judged, to learn which of them a Delta table does not take."""

from __future__ import annotations

import pyarrow as pa

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeltaSink, Reason
from ackwright_stream.sinks.delta.files import split
from ackwright_stream.sinks.delta.table import Table


class RowTrial:
    """Rows against one version of the table. Nothing is written: no rule depends on other rows."""

    def __init__(self, sink: DeltaSink, table: Table) -> None:
        self._sink, self._table = sink, table

    def refusal(self, rows: pa.Table) -> JobError | None:
        """As in Trial."""
        try:
            self._table.require_values(self._sink, [{name: rows.column(name).null_count for name in rows.column_names}])
            for batch in rows.to_batches():
                for _ in split(batch, self._sink.partition_columns):
                    pass
        except JobError as e:
            if e.reason is not Reason.ROW_REFUSED:
                raise
            return e
        return None
