"""Finds the record whose row a sink has refused, after the task has failed.

A task does not know the offsets of its rows, because a transform need not return them. So the driver reads the task's
ranges again, and the sink tries their rows in ever smaller parts, in a transaction that is rolled back. The pipeline
halts anyway; delivery does nothing for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

import pyarrow as pa

from ackwright_stream.errors import JobError
from ackwright_stream.positions import Lane, Range
from ackwright_stream.reasons import REASONS
from ackwright_stream.sinks.base import Sink, Trial

_FIRST, _MOST = 100, 5_000  # offsets of a part, whose rows are in the driver's memory
_SMALL = 8 << 20  # bytes of rows after which the next part may be twice as large
_LIMIT_S = 60.0
log = logging.getLogger(__name__)

RowsOf = Callable[[Lane, int, int], pa.Table]  # the rows of the records [start, until) of a lane


def locate(error: JobError, ranges: Iterable[Range], sink: Sink, rows_of: RowsOf) -> JobError:
    """The error with the source position of the first record that is refused.

    ranges: those of the task that failed, in its order. Returns the same error if the sink's errors name the record
    anyway, or if no record is refused within a minute: a row may depend on the clock, or on rows that are gone now.
    """
    trial = sink.trial()
    if trial is None:
        return error
    deadline = time.monotonic() + _LIMIT_S
    try:
        with trial as opened:
            for range_ in ranges:
                first = _first_refused(range_, opened, rows_of, deadline)
                if first is not None:
                    offset, refusal = first
                    cause = f"record {range_.lane}@{offset}: {refusal.cause}"
                    return JobError(error.reason, cause, REASONS[error.reason].remedy)
    except Exception as e:  # whatever it is, the pipeline has to report why it halts
        log.warning("the search for the record whose row was refused failed: %s", e)
    return error


def _first_refused(range_: Range, trial: Trial, rows_of: RowsOf, deadline: float) -> tuple[int, JobError] | None:
    """The offset of the first record whose row is refused, with why; None if there is none, or after the deadline."""
    start, offsets, narrows = range_.start, _FIRST, False
    while start < range_.until and time.monotonic() < deadline:
        end = min(start + offsets, range_.until)
        rows = rows_of(range_.lane, start, end)
        refusal = trial.refusal(rows)
        if refusal is None:
            start = end
            if not narrows and rows.nbytes <= _SMALL:
                offsets = min(2 * offsets, _MOST)
        elif end - start == 1:
            return start, refusal
        else:
            offsets, narrows = (end - start) // 2, True
    return None
