"""Rows that are only judged, to learn which of them a file cannot hold."""

from __future__ import annotations

import io

import pyarrow as pa

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.files.rows import RowFile
from ackwright_stream.sinks.files.storage import Draft


class _InMemory:
    """Files that nobody keeps. As in Drafts."""

    def draft(self) -> Draft:
        return Draft(io.BytesIO())

    def discard(self, draft: Draft) -> None:
        draft.file.close()


class RowTrial:
    """Rows are written to memory alone: no rule depends on other rows."""

    def refusal(self, rows: pa.Table) -> JobError | None:
        """As in Trial."""
        file = RowFile(_InMemory())
        try:
            for batch in rows.to_batches():
                file.add(batch)
            file.flush()
        except JobError as e:
            if e.reason is not Reason.ROW_REFUSED:
                raise
            return e
        finally:
            file.discard()
        return None
