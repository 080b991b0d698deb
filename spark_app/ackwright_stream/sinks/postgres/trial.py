"""Rows that are written and rolled back, to learn which of them a table refuses, and why."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import psycopg
import pyarrow as pa

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import PostgresSink, Reason
from ackwright_stream.postgres_connection import copied_row, translate
from ackwright_stream.sinks.postgres import table
from ackwright_stream.sinks.postgres.positions import Statements

_SHOWN = 60  # characters of a value
# Of a constraint, or of a unique index that is none.
_COLUMNS_OF = """
SELECT a.attname FROM pg_attribute a
LEFT JOIN pg_constraint c ON c.conrelid = a.attrelid AND c.conname = %(name)s
LEFT JOIN (pg_index i JOIN pg_class x ON x.oid = i.indexrelid) ON i.indrelid = a.attrelid AND x.relname = %(name)s
WHERE a.attrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(table)s::text))
AND (a.attnum = ANY(c.conkey) OR a.attnum = ANY(i.indkey::int2[])) ORDER BY a.attnum
"""


class TableTrial:
    """Rows of one transaction, which its caller rolls back."""

    def __init__(self, cursor: Statements, sink: PostgresSink) -> None:
        self._cursor, self._sink = cursor, sink

    def refusal(self, rows: pa.Table) -> JobError | None:
        """As in Trial."""
        self._cursor.execute("SAVEPOINT trial")
        try:
            table.write(self._cursor, self._sink, rows.to_batches())
            self._cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            table.forget_batch(self._cursor)
            self._cursor.execute("RELEASE SAVEPOINT trial")
        except JobError as e:
            if e.reason is not Reason.ROW_REFUSED:
                raise
            self._undo()
            return e  # of a value that cannot be sent
        except psycopg.Error as e:
            error = translate(e, f"table {self._sink.schema}.{self._sink.table} refuses its row", of_task=False)
            if error.reason is not Reason.ROW_REFUSED:
                raise
            self._undo()
            values = self._values(e, rows)
            return JobError(error.reason, f"{error.cause} ({values})" if values else error.cause)
        return None

    def _undo(self) -> None:
        self._cursor.execute("ROLLBACK TO SAVEPOINT trial")

    def _values(self, error: psycopg.Error, rows: pa.Table) -> str:
        """The values of the columns that the error blames; nothing if it is not clear in which row they are."""
        copied = copied_row(error)
        row, column = copied or (rows.num_rows, None)
        if row > rows.num_rows or (copied is None and row != 1):
            return ""
        blamed = {error.diag.column_name, column, *self._columns_of(error)}
        return shown(rows.slice(row - 1, 1).to_pylist()[0], blamed)

    def _columns_of(self, error: psycopg.Error) -> list[str]:
        """The columns of the constraint or the index that the error names; none if it names none."""
        if error.diag.constraint_name is None or error.diag.table_name is None:
            return []
        names = {"name": error.diag.constraint_name, "schema": error.diag.schema_name, "table": error.diag.table_name}
        return [name for (name,) in self._cursor.execute(_COLUMNS_OF, names).fetchall()]


def shown(row: dict[str, Any], columns: Collection[str | None]) -> str:
    """Some columns of a row with their values, which are shortened."""
    return ", ".join(f"{name} = {_shortened(value)}" for name, value in row.items() if name in columns)


def _shortened(value: Any) -> str:
    text = "null" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
