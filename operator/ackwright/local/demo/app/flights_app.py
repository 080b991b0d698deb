"""The demo's transform, as a user's own module: it is put on the job's PYTHONPATH and named in `spec.transform.python`.

In Python and not in SQL so that under every guarantee there is a Python worker to be killed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ackwright_stream.fault_points import fault_point

_COLUMNS = ("tailnum", "carrier", "flight", "origin", "dest", "time_hour", "dep_delay")
_RESULT = "key STRING, flight STRING, route STRING, scheduled STRING, status STRING, minutes_late INT"


def disrupted(flights: DataFrame) -> DataFrame:
    """Flights that were cancelled or left late, keyed by tail number as they came (null for a flight that never got an aircraft)."""
    return flights.select(*_COLUMNS).mapInArrow(_in_worker, _RESULT)


def _in_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = reshape(batch)
        half = rows.num_rows // 2
        yield rows.slice(0, half)
        # The demo kills this worker here, or stops it to kill its driver in the middle of a batch.
        fault_point("mid-transform")
        yield rows.slice(half)


def reshape(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Filters and reshapes one Arrow batch of the columns above. A flight without dep_delay never left: it was cancelled."""
    cancelled = pc.is_null(batch.column("dep_delay"))
    wanted = pc.or_(cancelled, pc.fill_null(pc.greater(batch.column("dep_delay"), 0), False))
    rows, cancelled = batch.filter(wanted), cancelled.filter(wanted)
    return pa.RecordBatch.from_pydict(
        {
            "key": rows.column("tailnum"),
            "flight": pc.binary_join_element_wise(rows.column("carrier"), rows.column("flight").cast(pa.string()), ""),
            "route": pc.binary_join_element_wise(rows.column("origin"), rows.column("dest"), "-"),
            "scheduled": rows.column("time_hour"),
            "status": pc.if_else(cancelled, "cancelled", "late"),
            "minutes_late": rows.column("dep_delay"),
        }
    )
