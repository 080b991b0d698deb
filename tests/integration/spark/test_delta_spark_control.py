"""Why the Delta sink does not write with Spark's own txnAppId and txnVersion, which Delta Lake has for such sinks.

Delta compares the version alone, and not what a batch consists of. After a restart the number of a batch may belong to
other records.
"""

from __future__ import annotations

from pathlib import Path

from integration.support import spark_tables

_CONF = "spark.databricks.delta.write"


def test_control_with_txn_version_other_rows_of_the_same_version_are_silently_absent(tmp_path: Path) -> None:
    """A batch is repeated with the same number and other boundaries: its further rows are lost without an error."""
    table = f"delta.`{tmp_path / 'table'}`"

    def write(version: int, *numbers: int) -> list[str]:
        values = ", ".join(f"({n})" for n in numbers)
        return [
            f"SET {_CONF}.txnAppId = pipeline",
            f"SET {_CONF}.txnVersion = {version}",
            f"INSERT INTO {table} VALUES {values}",  # noqa: S608
            f"SELECT n FROM {table} ORDER BY n",  # noqa: S608
        ]

    queries = [f"CREATE TABLE {table} (n BIGINT) USING delta", *write(5, 1, 2), *write(5, 1, 2, 3, 4), *write(6, 5)]
    answers = spark_tables.answers(queries, spark_tables.DELTA_JARS, spark_tables.DELTA, tmp_path / "writer")
    read = [answer.column("n").to_pylist() for answer in answers if answer.column_names == ["n"]]
    assert read == [[1, 2], [1, 2], [1, 2, 5]], "3 and 4 are absent, and the batch after them is written"
