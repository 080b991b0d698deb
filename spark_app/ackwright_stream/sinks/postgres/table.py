"""The table that rows go to: what the server says of it, and the statements that write rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from psycopg import sql
from pyspark.sql.types import StructField

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import PostgresSink, Reason
from ackwright_stream.sinks.base import Rows
from ackwright_stream.sinks.postgres.positions import Statements
from ackwright_stream.sinks.postgres_columns import TableColumn, created_type

_COLUMNS = """
SELECT a.attname, coalesce(base.typname, t.typname), format_type(a.atttypid, a.atttypmod),
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
    CASE WHEN t.typname = 'numeric' AND a.atttypmod > 0 THEN (a.atttypmod - 4) & 65535 END,
    a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type base ON base.oid = t.typbasetype
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_KEYS = """
SELECT array_agg(a.attname::text) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
    AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""
_LACKING = "SELECT r FROM unnest(%s::text[]) AS r WHERE NOT has_table_privilege(to_regclass(%s), r)"
_BATCH, _ROW = "ackwright_rows", "ackwright_row"  # a temporary table, and its column with the order of the rows


@dataclass(frozen=True)
class Table:
    """One table and its columns."""

    sink: PostgresSink
    columns: Mapping[str, TableColumn]
    keys: tuple[frozenset[str], ...] = ()  # the columns of each unique index

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.sink.schema}.{self.sink.table}"

    @property
    def required_rights(self) -> tuple[str, ...]:
        """The privileges that the role needs on the table."""
        upsert = ("SELECT", "UPDATE") if self.sink.upsert else ()
        return ("INSERT", *upsert, *(("DELETE",) if self.sink.deleted_column else ()))

    def key_problems(self) -> Iterator[str]:
        """Why rows cannot be replaced by their key."""
        if not self.sink.upsert:
            return
        key = ", ".join(self.sink.key)
        if frozenset(self.sink.key) not in self.keys:
            yield f"the table has no unique index on exactly the key ({key}); add one: CREATE UNIQUE INDEX … ({key})"
        version = self.columns.get(self.sink.version_column or "")
        if version and not version.required:
            yield f"the versionColumn {self.sink.version_column!r} may be null; make it NOT NULL, without a default"


def read(cursor: Statements, sink: PostgresSink) -> Table | None:
    """The table as it is now; None if there is none."""
    name = qualified(sink).as_string()
    rows = cursor.execute(_COLUMNS, [name]).fetchall()
    if not rows:
        return None
    keys = cursor.execute(_KEYS, [name]).fetchall() if sink.upsert else []
    columns = {
        column: TableColumn(kind, declared, required, scale, generated)
        for column, kind, declared, required, scale, generated in rows
    }
    return Table(sink, columns, tuple(frozenset(key) for (key,) in keys))


def missing_rights(cursor: Statements, table: Table) -> list[str]:
    """The privileges that the role lacks."""
    name = qualified(table.sink).as_string()
    return [r for (r,) in cursor.execute(_LACKING, [list(table.required_rights), name]).fetchall()]


def create(cursor: Statements, sink: PostgresSink, fields: Sequence[StructField]) -> None:
    """Creates the table with the columns of the output. Its key and its version are NOT NULL."""
    required = {*sink.key, sink.version_column}
    columns = [
        sql.SQL("{} {}{}").format(
            sql.Identifier(field.name),
            sql.SQL(created_type(field.dataType)),
            sql.SQL(" NOT NULL" if field.name in required else ""),
        )
        for field in fields
    ]
    if sink.key:
        columns.append(sql.SQL("PRIMARY KEY ({})").format(_list(sink.key)))
    cursor.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(qualified(sink), sql.SQL(", ").join(columns)))


def qualified(sink: PostgresSink) -> sql.Identifier:
    """The name of the table, quoted, with its schema."""
    return sql.Identifier(sink.schema, sink.table)


def write(cursor: Statements, table: Table, rows: Rows) -> int:
    """Writes the rows; returns how many there are."""
    batches = iter(rows)
    first = next(batches, None)
    if first is None:
        return 0
    batches, columns = chain([first], batches), list(first.schema.names)
    if not table.sink.upsert:
        return _copy(cursor, qualified(table.sink), table, columns, batches)
    # The columns of the table without its constraints, which rows to delete may break.
    extra = [sql.SQL("0::bigint AS {}").format(sql.Identifier(_ROW))]
    if table.sink.deleted_column:
        extra.append(sql.SQL("false AS {}").format(sql.Identifier(table.sink.deleted_column)))
    cursor.execute(
        sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT *, {} FROM {} WITH NO DATA").format(
            sql.Identifier(_BATCH), sql.SQL(", ").join(extra), qualified(table.sink)
        )
    )
    written = _copy(cursor, sql.Identifier(_BATCH), table, columns, batches, numbered=True)
    _merge(cursor, table.sink, [name for name in columns if name != table.sink.deleted_column])
    return written


def _merge(cursor: Statements, sink: PostgresSink, columns: Sequence[str]) -> None:
    """From the batch to the table: the last row of each key, or that with the highest version."""
    key, others = _list(sink.key), [name for name in columns if name not in sink.key]
    version = sql.Identifier(sink.version_column) if sink.version_column else None
    # Of equal versions the first row stays, as in the table itself: a row that is delivered again changes nothing.
    order = sql.SQL("{} DESC, {}") if version else sql.SQL("{1} DESC")
    latest = sql.SQL("SELECT DISTINCT ON ({0}) * FROM {1} ORDER BY {0}, {2}").format(
        key, sql.Identifier(_BATCH), order.format(version or sql.SQL(""), sql.Identifier(_ROW))
    )
    deleted = sql.Identifier(sink.deleted_column) if sink.deleted_column else None
    sets = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others]
    update = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(sets)) if sets else sql.SQL("NOTHING")
    newer = sql.SQL(" WHERE t.{0} < excluded.{0}").format(version) if version and sets else sql.SQL("")
    remaining = sql.SQL(" WHERE {} IS NOT TRUE").format(deleted) if deleted else sql.SQL("")
    cursor.execute(
        sql.SQL("INSERT INTO {} AS t ({}) SELECT {} FROM ({}) AS r{} ORDER BY {} ON CONFLICT ({}) DO {}{}").format(
            qualified(sink), _list(columns), _list(columns), latest, remaining, key, key, update, newer
        )
    )
    if deleted:
        same = sql.SQL(" AND ").join(sql.SQL("t.{0} = r.{0}").format(sql.Identifier(name)) for name in sink.key)
        cursor.execute(
            sql.SQL("DELETE FROM {} AS t USING ({}) AS r WHERE r.{} AND {}").format(
                qualified(sink), latest, deleted, same
            )
        )


def _copy(
    cursor: Statements,
    target: sql.Identifier,
    table: Table,
    columns: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    numbered: bool = False,  # whether the rows get a column with their order
) -> int:
    """Copies the rows; returns their number."""
    types = ["bool" if name == table.sink.deleted_column else _type(table, name) for name in columns]
    into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        target, _list([*columns, _ROW] if numbered else columns)
    )
    written = 0
    with cursor.copy(into) as copy:
        copy.set_types([*(_SENT_AS.get(kind, kind) for kind in types), *(["int8"] if numbered else [])])
        for batch in batches:
            values = [
                _values(batch.column(i), _CONVERT.get(kind), name)
                for i, (name, kind) in enumerate(zip(columns, types, strict=True))
            ]
            if numbered:
                values.append(list(range(written, written + batch.num_rows)))
            for row in zip(*values, strict=True):
                copy.write_row(row)
            written += batch.num_rows
    return written


def _type(table: Table, name: str) -> str:
    column = table.columns.get(name)
    if column is None:
        raise JobError(
            Reason.TABLE_UNSUITABLE,
            f"table {table.name} has no column {name!r} any more; add it, or change the transform",
        )
    return column.type


def _jsonb(value: str) -> bytes:
    return b"\x01" + value.encode()  # the version of jsonb's binary format, then its text


# The types under which psycopg encodes values; the bytes of the others are those of text and bytea.
_SENT_AS = {"varchar": "text", "bpchar": "text", "json": "text", "jsonb": "bytea"}
_CONVERT: Mapping[str, Callable[[Any], Any]] = {"jsonb": _jsonb}


def _values(column: pa.Array, convert: Callable[[Any], Any] | None, name: str) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError) as e:
        raise JobError(
            Reason.ROW_REFUSED,
            f"column {name!r} has a value that PostgreSQL cannot hold ({type(e).__name__}: text must be UTF-8, and "
            f"times in the years {datetime.MINYEAR} to {datetime.MAXYEAR}); change the transform",
        ) from None
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _list(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
