"""The columns of a row, which job and audit share."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason


def to_sink_columns(output: DataFrame) -> DataFrame:
    """The output as key and value, both BINARY. Raises JobError(INVALID_TRANSFORM) for other columns."""
    if set(output.columns) != {"key", "value"}:
        raise JobError(Reason.INVALID_TRANSFORM, f"the columns are {output.columns}; select key and value")
    return output.select(F.col("key").cast("binary"), F.col("value").cast("binary"))
