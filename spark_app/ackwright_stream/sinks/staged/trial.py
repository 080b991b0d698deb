"""Rows that are only judged, to learn which of them a table does not take."""

from __future__ import annotations

import pyarrow as pa

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.parquet_columns import require_utf8
from ackwright_stream.sinks.staged.parquet import ToPartition, split
from ackwright_stream.sinks.staged.table import Place, Table


class RowTrial:
    """Rows against one version of the table. Nothing is written: no rule depends on other rows."""

    def __init__(self, place: Place, table: Table, to_partition: ToPartition) -> None:
        self._place, self._table, self._to_partition = place, table, to_partition

    def refusal(self, rows: pa.Table) -> JobError | None:
        """As in Trial."""
        nulls = {name: rows.column(name).null_count for name in rows.column_names}
        try:
            self._table.require_values(self._place, [nulls])
            for batch in rows.to_batches():
                require_utf8(batch)
                for _ in split(batch, self._place.partition_columns, self._to_partition):
                    pass
        except JobError as e:
            if e.reason is not Reason.ROW_REFUSED:
                raise
            return e
        return None
