"""The table that rows go to: what the server says of it, and the statements that write rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from psycopg import sql
from psycopg.errors import InvalidSchemaName, LockNotAvailable, UndefinedTable
from pyspark.sql.types import StructField

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import PostgresSink, Reason
from ackwright_stream.reasons import REASONS
from ackwright_stream.sinks.base import Rows
from ackwright_stream.sinks.postgres.binary_copy import HEADER, TRAILER, encoded
from ackwright_stream.sinks.postgres.columns import TableColumn, created_type, problems_with, table_fields
from ackwright_stream.sinks.postgres.positions import Statements
from ackwright_stream.spark_internals.arrow import spark_schema

# One statement, so that all of it is of one moment. A domain is followed to its base type. The type of a trigger is a
# mask: 1 for each row, 2 before, 4 of INSERT.
_TABLE = """
SELECT c.relkind::text, c.relpersistence::text, row_security_active(c.oid),
    (SELECT json_agg(p.oid::regclass::text) FROM pg_partition_tree(c.oid) part JOIN pg_class p ON p.oid = part.relid
        WHERE p.oid <> c.oid AND (p.relkind NOT IN ('r', 'p') OR p.relpersistence <> 'p')),
    (SELECT json_agg(json_build_array(
            a.attname, base.typname, format_type(a.atttypid, a.atttypmod),
            (a.attnotnull OR t.typnotnull) AND NOT a.atthasdef AND a.attidentity = '' AND t.typdefault IS NULL,
            CASE WHEN base.typname = 'numeric' AND base.typmod > 0
                THEN (((base.typmod - 4) & 2047) # 1024) - 1024
                WHEN base.typname IN ('timestamp', 'timestamptz') AND base.typmod >= 0 THEN base.typmod END,
            a.attgenerated <> '' OR a.attidentity = 'a', a.attnotnull OR t.typnotnull
        ) ORDER BY a.attnum)
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid, LATERAL (
            WITH RECURSIVE types AS (
                SELECT t.typname, t.typtype, t.typbasetype, t.typtypmod, a.atttypmod AS typmod
                UNION ALL
                SELECT b.typname, b.typtype, b.typbasetype, b.typtypmod, types.typtypmod
                FROM types JOIN pg_type b ON b.oid = types.typbasetype WHERE types.typtype = 'd'
            ) SELECT typname, typmod FROM types WHERE typtype <> 'd'
        ) base
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT json_agg(key.names) FROM (
        SELECT json_agg(a.attname) AS names FROM pg_index i
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
            AND i.indexprs IS NULL
        GROUP BY i.indexrelid
    ) key),
    EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgtype & 7 = 7 AND g.tgenabled IN ('O', 'A'))
FROM pg_class c WHERE c.oid = to_regclass({})
"""
_LACKING = "SELECT r FROM unnest(%s::text[]) AS r WHERE NOT has_table_privilege(to_regclass(%s), r)"
_SCHEMA_RIGHTS = """
SELECT has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s
"""
_QUOTED = "SELECT string_agg(quote_ident(name), '.' ORDER BY n) FROM unnest(%s::text[]) WITH ORDINALITY AS t (name, n)"
_TEMPORARY = "SELECT quote_ident(current_database()), has_database_privilege(current_database(), 'TEMPORARY')"
# A temporary table, and its column with the order of the rows; no output has a column of this name (RESERVED).
_BATCH, _ROW = sql.Identifier("pg_temp", "ackwright_rows"), "__ackwright_row"


_MICROSECONDS = 6  # decimal places of a second
_OF_ANSWER = 5 / 6  # of the time that the client waits for an answer


@dataclass(frozen=True)
class Table:
    """One table and its columns."""

    sink: PostgresSink
    columns: Mapping[str, TableColumn]
    keys: tuple[frozenset[str], ...]  # the columns of each unique index
    unsafe: tuple[str, ...]  # why it cannot keep a guarantee
    checks_inserts: bool  # whether a trigger sees a row before it is added, and may leave it out

    @property
    def required_rights(self) -> tuple[str, ...]:
        """The privileges that the role needs on the table."""
        upsert = ("SELECT", "UPDATE") if self.sink.upsert else ()
        return ("INSERT", *upsert, *(("DELETE",) if self.sink.deleted_column else ()))

    def problems(self, fields: Sequence[StructField], *, repeats: bool) -> list[str]:
        """Why rows with these columns cannot be written to it under a guarantee.

        repeats: whether a row may be written again while it is there.
        """
        repeated = self._repeat_problems({field.name for field in fields}) if repeats else ()
        return [*self.unsafe, *problems_with(fields, self.columns), *self._key_problems(), *repeated]

    def _repeat_problems(self, columns: set[str]) -> Iterator[str]:
        """Why it refuses a row that is added again."""
        for key in () if self.sink.upsert or self.checks_inserts else self.keys:
            if key <= columns:
                names = _list(sorted(key)).as_string()
                yield (
                    f"the unique index on ({names}) refuses a row that is delivered again, which at-least-once allows; "
                    "declare guarantee: exactly-once, write mode: upsert with this key, drop the index, or let the "
                    "server fill one of its columns"
                )

    def _key_problems(self) -> Iterator[str]:
        """Why rows cannot be replaced by their key."""
        if not self.sink.upsert:
            return
        key = _list(self.sink.key).as_string()
        if frozenset(self.sink.key) not in self.keys:
            yield f"the table has no unique index on exactly the key ({key}); add one: CREATE UNIQUE INDEX … ({key})"
        for name in self.sink.key:
            if self._may_be_null(name):
                yield f"the key column {name!r} may be null, and a row with a null key is added again; make it NOT NULL"
        for name in filter(None, (*self.sink.key, self.sink.version_column)):
            if self._rounds_times(name):
                yield (
                    f"the column {name!r} rounds the times by which rows are compared, which have microseconds; remove "
                    f"the precision of {self.columns[name].declared}"
                )
        version = self.sink.version_column
        if version and self._may_be_null(version):
            yield f"the versionColumn {version!r} may be null; make it NOT NULL"

    def _rounds_times(self, name: str) -> bool:
        column = self.columns.get(name)
        if column is None or column.scale is None or column.type not in ("timestamp", "timestamptz"):
            return False
        return column.scale < _MICROSECONDS

    def _may_be_null(self, name: str) -> bool:
        return name in self.columns and not self.columns[name].not_null


def read(cursor: Statements, sink: PostgresSink, *, lock: bool = False) -> Table | None:
    """The table as it is now; None if there is none. lock: nobody alters it until the transaction ends."""
    name = qualified(sink)
    statement = sql.SQL(_TABLE).format(sql.Literal(name.as_string()))
    if lock:  # in one message; each statement sees what was committed before it
        statement = sql.SQL("LOCK TABLE ONLY {} IN ROW EXCLUSIVE MODE; ").format(name) + statement
    try:
        cursor.execute(statement)
    except (UndefinedTable, InvalidSchemaName):
        return None
    except LockNotAvailable:
        raise JobError(
            Reason.SINK_UNREACHABLE,
            f"another transaction locks table {sink.schema}.{sink.table} against writers, for instance CREATE INDEX or "
            "VACUUM FULL; the pipeline resumes when it has ended",
        ) from None
    if lock:
        cursor.nextset()
    row = cursor.fetchone()
    if row is None:
        return None
    kind, persistence, row_security, partitions, columns, keys, checks_inserts = row
    return Table(
        sink,
        {name: TableColumn(*column) for name, *column in columns or ()},
        tuple(map(frozenset, keys or ())),
        tuple(_unsafe(kind, persistence, row_security, partitions or ())),
        checks_inserts,
    )


def _unsafe(kind: str, persistence: str, row_security: bool, partitions: Sequence[str]) -> Iterator[str]:
    if kind not in ("r", "p"):
        yield "it is a view or a foreign table, whose rows do not change together with the positions; name a table"
    if persistence != "p":
        yield "it is UNLOGGED, and a crash of the server empties it; run ALTER TABLE … SET LOGGED"
    if partitions:
        yield (
            f"its partitions {', '.join(partitions)} are foreign or UNLOGGED, and may lose rows that the positions "
            "have passed; detach them, or run ALTER TABLE … SET LOGGED"
        )
    if row_security:
        yield "row-level security applies to the role, and COPY does not support it; ALTER ROLE … BYPASSRLS"


def require(
    cursor: Statements,
    sink: PostgresSink,
    fields: Sequence[StructField],
    *,
    lock: bool = False,
    repeats: bool = False,
) -> Table:
    """The table, if rows with these columns can be written to it. lock: as in read(). repeats: as in Table.problems().

    Raises JobError(TABLE_UNSUITABLE) with everything that is wrong.
    """
    name, table = f"{sink.schema}.{sink.table}", read(cursor, sink, lock=lock)
    if table is None:
        raise missing(sink)
    if problems := table.problems(table_fields(fields, sink), repeats=repeats):
        raise _unsuitable(name, problems)
    return table


def missing(sink: PostgresSink) -> JobError:
    """The error for a table that does not exist."""
    return JobError(
        Reason.TABLE_UNSUITABLE,
        f"the database {sink.database} has no table {sink.schema}.{sink.table}; "
        "create it, or set createTable: true; if the name is wrong, recreate the pipeline with the right "
        "sink.postgres.schema and table",
    )


def problems(
    cursor: Statements, sink: PostgresSink, fields: Sequence[StructField] | None, *, repeats: bool
) -> Iterator[JobError]:
    """Why a driver cannot write to the table, or create it.

    fields: of the output; None: not known yet. repeats: as in Table.problems().
    """
    name, schema = f"{sink.schema}.{sink.table}", _quoted(cursor, sink.schema)
    if sink.upsert:
        yield from _temporary_problems(cursor)
    may_use, may_create = cursor.execute(_SCHEMA_RIGHTS, [sink.schema]).fetchone() or (None, None)  # no such schema
    table = read(cursor, sink) if may_use else None  # without that right the server answers with an error
    if table is None:
        if not sink.create_table and may_use is False:
            yield JobError(
                Reason.AUTHORIZATION_FAILED,
                f"the role lacks USAGE on schema {sink.schema}; run GRANT USAGE ON SCHEMA {schema} TO the role",
            )
        elif not sink.create_table:
            yield missing(sink)
        elif not (may_use and may_create):
            yield JobError(
                Reason.AUTHORIZATION_FAILED,
                f"the role may not create table {name}, or there is no schema {sink.schema}; create the schema, and "
                f"run GRANT CREATE, USAGE ON SCHEMA {schema} TO the role",
            )
        return
    if lacking := ", ".join(_lacking(cursor, table)):
        yield JobError(
            Reason.AUTHORIZATION_FAILED,
            f"the role lacks {lacking} on table {name}; run GRANT {lacking} ON "
            f"{_quoted(cursor, sink.schema, sink.table)} TO the role",
        )
    unfit = table.unsafe if fields is None else table.problems(table_fields(fields, sink), repeats=repeats)
    if unfit:
        yield _unsuitable(name, unfit)


def _quoted(cursor: Statements, *names: str) -> str:
    """The qualified name as a person writes it in a statement."""
    row = cursor.execute(_QUOTED, [list(names)]).fetchone()
    return str(row[0]) if row else ".".join(names)


def _unsuitable(name: str, problems: Sequence[str]) -> JobError:
    return JobError(Reason.TABLE_UNSUITABLE, f"table {name} does not fit: {'; '.join(problems)}")


def _temporary_problems(cursor: Statements) -> Iterator[JobError]:
    """Why the role cannot create the temporary table from which write() merges a batch."""
    database, may_create = cursor.execute(_TEMPORARY).fetchone() or ("", False)
    if not may_create:
        yield JobError(
            Reason.AUTHORIZATION_FAILED,
            f"the role lacks TEMPORARY on database {database}, which mode: upsert needs; run GRANT TEMPORARY ON "
            f"DATABASE {database} TO the role",
        )


def _lacking(cursor: Statements, table: Table) -> list[str]:
    """The privileges that the role lacks."""
    name = qualified(table.sink).as_string()
    return [r for (r,) in cursor.execute(_LACKING, [list(table.required_rights), name]).fetchall()]


def lock_creation(cursor: Statements) -> None:
    """Waits for other transactions that create a table; the lock ends with the transaction."""
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('ackwright.table'))")


def create(cursor: Statements, sink: PostgresSink, fields: Sequence[StructField]) -> None:
    """Creates the table with the columns of the output. Its key and its version are NOT NULL."""
    fields, required = table_fields(fields, sink), {*sink.key, sink.version_column}
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
    cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(qualified(sink), sql.SQL(", ").join(columns)))


def qualified(sink: PostgresSink) -> sql.Identifier:
    """The name of the table, quoted, with its schema."""
    return sql.Identifier(sink.schema, sink.table)


def write(cursor: Statements, sink: PostgresSink, rows: Rows) -> int:
    """Writes the rows; returns how many there are.

    The table is locked and read again, because COPY in binary format takes bytes of another type for its own. Then it
    waits longer for rows that other transactions have locked: several tasks may upsert one key, and each of them would
    otherwise be tried again at the same time. The server ends that wait before the client ends the wait for its answer:
    it would not notice that nobody waits any more. Raises JobError.
    """
    batches = iter(rows)
    first = next(batches, None)
    if first is None:
        return 0
    table = require(cursor, sink, spark_schema(first.schema).fields, lock=True)
    wait_ms = int(1000 * _OF_ANSWER * float(sink.connection["response_timeout"]))
    cursor.execute("SELECT set_config('lock_timeout', %s, true)", [str(wait_ms)])
    try:
        written = _write(cursor, table, list(first.schema.names), chain([first], batches))
    except LockNotAvailable:
        raise JobError(
            Reason.TRANSACTION_TIMED_OUT,
            f"another transaction has locked rows of table {sink.schema}.{sink.table} for more than {wait_ms / 1000:g} "
            "s, for instance a task that writes rows with the same keys",
            REASONS[Reason.TRANSACTION_TIMED_OUT].remedy,
        ) from None
    cursor.execute("SELECT set_config('lock_timeout', %s, true)", [sink.session["lock_timeout"]])
    return written


def _write(cursor: Statements, table: Table, columns: Sequence[str], batches: Rows) -> int:
    if not table.sink.upsert:
        return _copy(cursor, qualified(table.sink), table, columns, batches)
    batches = _with_keys(batches, table.sink.key)
    # The columns of the table without its constraints, which rows to delete may break.
    extra = [sql.SQL("0::bigint AS {}").format(sql.Identifier(_ROW))]
    if table.sink.deleted_column:
        extra.append(sql.SQL("false AS {}").format(sql.Identifier(table.sink.deleted_column)))
    cursor.execute(
        sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT *, {} FROM {} WITH NO DATA").format(
            _BATCH, sql.SQL(", ").join(extra), qualified(table.sink)
        )
    )
    written = _copy(cursor, _BATCH, table, columns, batches, numbered=True)
    _merge(cursor, table.sink, [name for name in columns if name != table.sink.deleted_column])
    return written


def _with_keys(batches: Rows, key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows. Raises JobError(ROW_REFUSED) for one without a key.

    The server refuses such a row too, unless it deletes: then it is compared with no row, and nothing would tell.
    """
    for batch in batches:
        if absent := [name for name in key if batch.column(name).null_count]:
            raise JobError(
                Reason.ROW_REFUSED,
                f"{', '.join(absent)} of the key is null, so no row has it",
                REASONS[Reason.ROW_REFUSED].remedy,
            )
        yield batch


def forget_batch(cursor: Statements) -> None:
    """Drops what write() leaves until the end of a transaction, so that it can write once more in it."""
    cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_BATCH))


def _merge(cursor: Statements, sink: PostgresSink, columns: Sequence[str]) -> None:
    """From the batch to the table: the last row of each key, or that with the highest version."""
    key, others = _list(sink.key), [name for name in columns if name not in sink.key]
    version = sql.Identifier(sink.version_column) if sink.version_column else None
    # Of equal versions the first row stays, as in the table itself: a row that is delivered again changes nothing.
    order = sql.SQL("{} DESC, {}") if version else sql.SQL("{1} DESC")
    latest = sql.SQL("SELECT DISTINCT ON ({0}) * FROM {1} ORDER BY {0}, {2}").format(
        key, _BATCH, order.format(version or sql.SQL(""), sql.Identifier(_ROW))
    )
    deleted = sql.Identifier(sink.deleted_column) if sink.deleted_column else None
    sets = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others]
    update = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(sets)) if sets else sql.SQL("NOTHING")
    newer = sql.SQL(" WHERE t.{0} < excluded.{0}").format(version) if version and sets else sql.SQL("")
    remaining = sql.SQL(" WHERE {} IS NOT TRUE").format(deleted) if deleted else sql.SQL("")
    if deleted:  # first, because a row that is added may have a value for which a deleted one was unique
        same = sql.SQL(" AND ").join(sql.SQL("t.{0} = r.{0}").format(sql.Identifier(name)) for name in sink.key)
        cursor.execute(
            sql.SQL("DELETE FROM {} AS t USING ({}) AS r WHERE r.{} AND {}").format(
                qualified(sink), latest, deleted, same
            )
        )
    cursor.execute(
        sql.SQL("INSERT INTO {} AS t ({}) SELECT {} FROM ({}) AS r{} ORDER BY {} ON CONFLICT ({}) DO {}{}").format(
            qualified(sink), _list(columns), _list(columns), latest, remaining, key, key, update, newer
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
    types = ["bool" if name == table.sink.deleted_column else table.columns[name].type for name in columns]
    into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        target, _list([*columns, _ROW] if numbered else columns)
    )
    sent_as = [*types, "int8"] if numbered else types
    names = [*columns, _ROW] if numbered else columns
    written = 0
    with cursor.copy(into) as copy:
        copy.write(HEADER)
        for batch in batches:
            values = batch.columns
            if numbered:
                values = [*values, pa.array(range(written, written + batch.num_rows), pa.int64())]
            for rows in encoded(values, sent_as, names):
                copy.write(rows)
            written += batch.num_rows
        copy.write(TRAILER)
    return written


def _list(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
