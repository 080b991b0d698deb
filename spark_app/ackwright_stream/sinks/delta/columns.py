"""The columns of a transform's output as columns of a Delta table. Contacts no server."""

from __future__ import annotations

from pyspark.sql import DataFrame

from ackwright_stream.jobspec import DeltaSink
from ackwright_stream.sinks.staged.columns import Rules, require_columns

_RULES = Rules(
    spec="sink.delta",
    not_in_names=" ,;{}()\n\t=",  # of Parquet's columns, without Delta's column mapping
    name_problem="a space or one of ,;{}()=, which Delta does not allow",
    files_have_partitions=False,
)


def to_sink_columns(output: DataFrame, sink: DeltaSink) -> DataFrame:
    """The output, if its columns can be those of a Delta table.

    Raises JobError(INVALID_TRANSFORM) with everything that is wrong.
    """
    return require_columns(output, sink.partition_columns, _RULES)
