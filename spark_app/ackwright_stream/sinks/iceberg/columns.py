"""The columns of a transform's output as columns of an Iceberg table. Contacts no server."""

from __future__ import annotations

from pyspark.sql import DataFrame

from ackwright_stream.jobspec import IcebergSink
from ackwright_stream.sinks.staged.columns import Rules, require_columns

_RULES = Rules(
    spec="sink.iceberg",
    not_in_names=".",
    name_problem="a dot, which separates the names of nested columns",
    files_have_partitions=True,
)


def to_sink_columns(output: DataFrame, sink: IcebergSink) -> DataFrame:
    """The output, if its columns can be those of an Iceberg table.

    Raises JobError(INVALID_TRANSFORM) with everything that is wrong.
    """
    return require_columns(output, sink.partition_columns, _RULES)
