"""Rows that are only judged, to learn which of them a file cannot hold."""

from __future__ import annotations

import pyarrow as pa

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.parquet_columns import require_utf8


class RowTrial:
    """Nothing is written: no rule depends on other rows."""

    def refusal(self, rows: pa.Table) -> JobError | None:
        """As in Trial."""
        try:
            for batch in rows.to_batches():
                require_utf8(batch)
        except JobError as e:
            if e.reason is not Reason.ROW_REFUSED:
                raise
            return e
        return None
