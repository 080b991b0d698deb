"""The demo's transform, as a user writes it: a module on the job's PYTHONPATH, named in `spec.transform.python`.

It is in Python, not in SQL, so that every guarantee runs a Python worker that the demo can kill.
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
    """The flights that were cancelled or left late, keyed by tail number (null if no aircraft was assigned)."""
    return flights.select(*_COLUMNS).mapInArrow(_in_worker, _RESULT)


def _in_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = reshape(batch)
        half = rows.num_rows // 2
        yield rows.slice(0, half)
        # Here the demo kills this worker, or suspends it and kills its driver.
        fault_point("mid-transform")
        yield rows.slice(half)


def reshape(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Filters and reshapes one Arrow batch. A flight without dep_delay was cancelled."""
    cancelled = pc.is_null(batch.column("dep_delay"))
    disrupted = pc.or_(cancelled, pc.fill_null(pc.greater(batch.column("dep_delay"), 0), False))
    rows, cancelled = batch.filter(disrupted), cancelled.filter(disrupted)
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
