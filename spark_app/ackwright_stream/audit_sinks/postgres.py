"""What the audit reads from PostgreSQL, and the comparison of a table with the output that is expected there.

Everything happens in one REPEATABLE READ transaction, which is rolled back: its snapshot has positions and rows of the
same moment. The expected rows go to a temporary table with the columns' types, as text, so that PostgreSQL compares
them as it compares its own values. It shares the connection with the job, and no code that writes rows.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, FloatType, StructField, TimestampType

from ackwright_stream import audit_fractions, audit_limits
from ackwright_stream.audit_kafka import Lane, LaneStart
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison, Offending
from ackwright_stream.audit_sinks import postgres_fractions
from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.audit_sinks.tables import without_columns
from ackwright_stream.column_names import named
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, PostgresSink, Reason
from ackwright_stream.postgres_connection import Connection, connect, translate
from ackwright_stream.sinks.postgres import columns
from ackwright_stream.spark_internals.execution import observed_metrics

SHOWN = 10  # offending rows of each kind
_COPIED_AT_ONCE = 5_000  # expected rows
_VALUE_SHOWN = 160  # characters
_EXPECTED = sql.Identifier("ackwright_expected")
# Columns of the expected rows beside those of the output: whether the position had not passed them, the source
# partition, the order in it.
_LATE, _LANE, _ROW = (sql.Identifier(f"ackwright_{name}") for name in ("late", "lane", "row"))
# A large comparison takes long, and between two statements Spark computes. The names depend on the server's version.
_NO_TIMEOUTS = """
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
"""
_JSON = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND atttypid = 'json'::regtype"


class TableReader:
    """One snapshot of the database of a pipeline's sink. A context manager, which ends the snapshot."""

    precedes_positions = False
    writes_apart = False

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._sink = job.sink_of(PostgresSink)
        self._connection: Connection | None = None
        self._is_absent = False  # whether no pipeline has run yet that creates the table
        self._columns: list[str] = []  # of the expected rows
        self._names: dict[str, sql.Identifier] = {}  # of the table's columns in the comparison
        self._tolerances: Mapping[str, float] = {}  # of columns whose numbers may differ
        self._content: list[sql.Composed] = []  # the columns with these names
        # Expected rows that the table's types refuse: of those that must be in it, and of others.
        self._refused, self._refused_late = 0, 0
        self._refused_shown: list[Offending] = []

    def __enter__(self) -> TableReader:
        self._connection = connect(self._sink)
        self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._connection.limit_s = None  # as _NO_TIMEOUTS
        try:
            self._connection.execute(_NO_TIMEOUTS)
            self._is_absent = not self._exists("ackwright.positions") and not self._exists(self._table.as_string())
        except psycopg.Error as e:  # such as a missing permission on a schema
            self.__exit__(type(e), e, None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._connection is not None:
            self._connection.close()  # which rolls back
        if isinstance(error, psycopg.Error):
            raise translate(error, f"comparing table {self._name}") from None

    def lane_starts(self) -> dict[Lane, LaneStart]:
        """Where each lane began."""
        rows = self._rows(
            "SELECT topic, partition, first_offset, recreated FROM ackwright.positions "
            'WHERE "group" = %s AND first_offset IS NOT NULL'
        )
        return {
            # Nothing tells where the rows of an old topic end.
            (topic, partition): LaneStart(first, sink={} if recreated else None)
            for topic, partition, first, recreated in rows
        }

    def positions(self, lanes: Collection[Lane]) -> dict[Lane, int | None]:
        """The positions, which are the same as long as the snapshot exists."""
        rows = self._rows('SELECT topic, partition, "offset" FROM ackwright.positions WHERE "group" = %s')
        offsets = {(topic, partition): offset for topic, partition, offset in rows}
        return {lane: offsets.get(lane) for lane in lanes}

    def decisions(self) -> list[str]:
        """The decisions of the pipeline, oldest first, which are the same as long as the snapshot exists."""
        if not self._exists("ackwright.decisions"):
            return []
        statement = 'SELECT decision FROM ackwright.decisions WHERE "group" = %s ORDER BY batch'
        return [text for (text,) in self._open.execute(statement, [self._job.group]).fetchall()]

    def tolerances(self, output: DataFrame, rounded: Mapping[str, float]) -> Mapping[str, float] | None:
        """Those of the columns that are numbers, none of which tells which row is meant."""
        keys = {*self._sink.key, self._sink.version_column}
        return rounded if audit_fractions.are_numbers(output, rounded) and not keys.intersection(rounded) else None

    def without(self, rows: DataFrame, columns: Collection[str]) -> DataFrame | None:
        """The rows without these columns, none of which tells which row is meant."""
        keys = {*self._sink.key, self._sink.version_column, self._sink.deleted_column}
        return None if keys.intersection(columns) else without_columns(rows, columns)

    def has_decided(self) -> bool:
        """Whether a batch was decided. The database keeps the last decisions of each pipeline."""
        return bool(self.decisions())

    def key_columns(self, *, last_of_key: bool) -> tuple[str, ...]:
        """Those of the key of an upsert. With a version the table has the newest row, whatever the order was."""
        return self._sink.key if self._sink.version_column is None else ()

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        """The output, if its columns can be those of a table."""
        return columns.to_sink_columns(output, self._sink)

    def dead_letters(self) -> LetterTableReader | None:
        """A reader of the table of dead letters, in the same snapshot."""
        letters = self._sink.of_dead_letters
        return LetterTableReader(self._job, letters, self._open, is_absent=self._is_absent) if letters else None

    def fix_content(self, required: Output, starts: Mapping[Lane, LaneStart]) -> tuple[list[Doubt], list[str]]:
        """What cannot be judged: rows of an old topic, of which nothing tells where they end. The snapshot is fixed."""
        _, doubts, notes = audit_limits.output_of_old_topic(None, "", len(self._job.source.topics), starts, {})
        return doubts, notes

    def compare(self, required: Output, late: Output | None, doubts: Sequence[Doubt], counted: int) -> Comparison:
        """Has the database compare its rows with the output."""
        self._columns, self._refused, self._refused_late, self._refused_shown = [], 0, 0, []
        self._tolerances = required.tolerances
        metrics = self._expect(required.records, late=False)
        if late is not None:
            self._expect(late.records, late=True)
        incomplete = any(doubt.lanes for doubt in doubts) or metrics["sent"]["records"] != counted
        counts = self._compared(incomplete=incomplete)
        return replace(counts, metrics=metrics, refused_late=self._refused_late)

    def _expect(self, rows: DataFrame, *, late: bool) -> Mapping[str, Mapping[str, int]]:
        """Adds rows to those that are expected; returns what Spark observed while it computed them.

        late: the positions had not passed them.
        """
        fields = rows.schema.fields
        texts = rows.select(
            *(_as_text(field).alias(field.name) for field in fields),
            F.lit(str(late)).alias("ackwright_late"),
            F.spark_partition_id().cast("string").alias("ackwright_lane"),
            F.monotonically_increasing_id().cast("string").alias("ackwright_row"),
        ).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            summary = texts.agg(F.count(F.lit(1)))
            summary.collect()
            if self._is_absent:
                return observed_metrics(summary)
            if not self._columns:
                self._columns = [field.name for field in fields]
                self._create()
            for chunk in _chunks(texts.toLocalIterator(prefetchPartitions=True), _COPIED_AT_ONCE):
                self._copy(chunk, late=late)
            return observed_metrics(summary)
        finally:
            texts.unpersist()

    def _copy(self, rows: Sequence[tuple[str | None, ...]], *, late: bool) -> None:
        """Copies expected rows. Those that the table's types refuse are set aside."""
        try:
            with (
                self._open.transaction(),
                self._open.cursor() as cursor,
                cursor.copy(sql.SQL("COPY {} FROM STDIN").format(_EXPECTED)) as copy,
            ):
                for row in rows:
                    copy.write_row(row)
        except (psycopg.DataError, psycopg.IntegrityError):
            if len(rows) > 1:
                half = len(rows) // 2
                self._copy(rows[:half], late=late)
                self._copy(rows[half:], late=late)
            elif late:
                self._refused_late += 1
            else:
                self._refused += 1
                if self._refused <= SHOWN:
                    columns = dict(zip(self._columns, rows[0], strict=False))
                    text = json.dumps(columns, ensure_ascii=False)[:_VALUE_SHOWN]
                    self._refused_shown.append(Offending("lost", self._name, None, text, 1, self._name))

    def _compared(self, *, incomplete: bool) -> Comparison:
        """The counts, with examples of each fault.

        incomplete: rows in the table may come from source records that the expected rows do not have.
        """
        if self._is_absent:
            return Comparison(0, 0, 0, 0, 0, (), {})
        self._open.execute(sql.SQL("ANALYZE {}").format(_EXPECTED))
        counts = self._compare_keys(incomplete=incomplete) if self._sink.upsert else self._compare_rows()
        counts = replace(
            counts,
            expected=counts.expected + self._refused,
            lost=counts.lost + self._refused,
            offending=(*self._refused_shown, *counts.offending),
        )
        return counts.without_surplus() if incomplete else counts

    def _create(self) -> None:
        table_columns = [name for name in self._columns if name != self._sink.deleted_column]
        typed = [
            sql.SQL("false AS {}").format(sql.Identifier(name))
            if name == self._sink.deleted_column
            else sql.Identifier(name)
            for name in self._columns
        ]
        self._open.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_EXPECTED))  # of an earlier comparison
        self._open.execute(
            sql.SQL(
                "CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {}, false AS {}, 0 AS {}, 0::bigint AS {} FROM {} "
                "WITH NO DATA"
            ).format(_EXPECTED, sql.SQL(", ").join(typed), _LATE, _LANE, _ROW, self._table)
        )
        json = {name for (name,) in self._open.execute(_JSON, [self._table.as_string()]).fetchall()}
        # Columns have numbers as names, so that none is like one of the comparison. The type json has no equality.
        self._names = {name: sql.Identifier(f"c{i}") for i, name in enumerate(table_columns)}
        self._content = [
            sql.SQL("{}::text AS {}" if name in json else "{} AS {}").format(sql.Identifier(name), number)
            for name, number in self._names.items()
        ]

    def _compare_rows(self) -> Comparison:
        content = sql.SQL(", ").join(self._content)
        every = sql.SQL("SELECT {0}, {1}::int AS k FROM {2} UNION ALL SELECT {0}, 2 FROM {3}").format(
            content, _LATE, _EXPECTED, self._relevant
        )
        groups = sql.SQL(
            "WITH g AS (SELECT {names}, count(*) FILTER (WHERE k = 0) AS required, count(*) FILTER (WHERE k < 2) AS "
            "expected, count(*) FILTER (WHERE k = 2) AS actual FROM ({every}) AS u GROUP BY {names}), f AS (SELECT *, "
            "greatest(required - actual, 0) AS lost, "
            "CASE WHEN expected > 0 THEN greatest(actual - expected, 0) ELSE 0 END AS duplicated, "
            "CASE WHEN expected = 0 THEN actual ELSE 0 END AS unexpected FROM g) "
        )
        return self._counts(
            groups,
            {
                "names": sql.SQL(", ").join(self._names.values()),
                "every": postgres_fractions.with_expected_numbers(every, self._names, self._tolerances),
            },
        )

    def _compare_keys(self, *, incomplete: bool) -> Comparison:
        """A key is right if its row is one that may be the last one: the newest of a source partition or version.

        If source records are gone, a row that none explains may be of a newer one, and is not certainly lost.
        """
        key = sql.SQL(", ").join(map(sql.Identifier, self._sink.key))
        version, deleted = self._sink.version_column, self._sink.deleted_column
        last: sql.Composable
        newer: sql.Composable
        if version:  # the table refuses a late row with a lower one
            newest = sql.SQL("max({}) FILTER (WHERE NOT {}) OVER (PARTITION BY {})").format(
                sql.Identifier(version), _LATE, key
            )
            last = sql.SQL("(c.{0} < newest) IS NOT TRUE").format(self._names[version])
            newer = sql.SQL("(a.{0} < newest) IS NOT TRUE").format(self._names[version])
        else:
            newest = sql.SQL("rank() OVER (PARTITION BY {}, {}, {} ORDER BY {} DESC)").format(key, _LATE, _LANE, _ROW)
            last, newer = sql.SQL("(late OR newest = 1)"), sql.SQL("true")
        groups = sql.SQL(
            "WITH c AS (SELECT {content}, {late} AS late, {deleted} AS gone, {newest} AS newest FROM {rows}), "
            "a AS (SELECT {content}, true AS present FROM {table}), "
            "j AS (SELECT {key}, late, {last} AS last, present, gone, {incomplete} AND {newer} AS excused, "
            "present AND NOT gone AND {equal} AS same "
            "FROM c FULL JOIN a USING ({key})), "
            "g AS (SELECT {key}, bool_or(NOT late) AS required, bool_or(present) AS present, bool_or(same) AS known, "
            "bool_and(excused) AND bool_or(present) AND bool_or(same) IS NOT TRUE AS excused, "
            "bool_or(last AND (same OR gone AND present IS NULL)) AS is_last FROM j GROUP BY {key}), "
            "f AS (SELECT *, (required AND is_last IS NOT TRUE AND excused IS NOT TRUE)::int AS lost, 0 AS duplicated, "
            "(present AND known IS NOT TRUE)::int AS unexpected FROM g) "
        )
        return self._counts(
            groups,
            {
                "content": sql.SQL(", ").join(self._content),
                "late": _LATE,
                "deleted": sql.SQL("coalesce({}, false)").format(sql.Identifier(deleted))
                if deleted
                else sql.SQL("false"),
                "newest": newest,
                "last": last,
                "newer": newer,
                "incomplete": sql.Literal(incomplete),
                "rows": _EXPECTED,
                "table": self._table,
                "key": sql.SQL(", ").join(self._names[name] for name in self._sink.key),
                "equal": postgres_fractions.equal(self._names, self._tolerances),
            },
        )

    def _counts(self, groups: sql.SQL, parts: Mapping[str, sql.Composable]) -> Comparison:
        with_groups = groups.format(**parts)
        kinds = ("lost", "duplicated", "unexpected")
        required = sql.SQL("required::int")
        counts = self._open.execute(
            with_groups
            + sql.SQL("SELECT coalesce(sum({}), 0), (SELECT count(*) FROM {}), ").format(required, self._relevant)
            + sql.SQL(", ").join(sql.SQL("coalesce(sum({}), 0)").format(sql.Identifier(kind)) for kind in kinds)
            + sql.SQL(" FROM f")
        ).fetchone()
        if counts is None:
            raise JobError(Reason.UNEXPECTED, "the comparison of the table returned nothing; report this")
        expected, delivered, lost, duplicated, unexpected = map(int, counts)
        offending = tuple(
            example
            for kind, number in zip(kinds, (lost, duplicated, unexpected), strict=True)
            if number
            for example in self._examples(with_groups, kind)
        )
        return Comparison(expected, delivered, lost, duplicated, unexpected, offending, {})

    def _examples(self, groups: sql.Composed, kind: str) -> Iterator[Offending]:
        shown = {name: number for name, number in self._names.items() if name in (self._sink.key or self._names)}
        rows = self._open.execute(
            groups
            + sql.SQL(
                "SELECT left((SELECT row_to_json(x)::text FROM (SELECT {columns}) AS x), {length}), f.{kind} FROM f "
                "WHERE f.{kind} > 0 ORDER BY f.{kind} DESC LIMIT {limit}"
            ).format(
                columns=sql.SQL(", ").join(
                    sql.SQL("f.{} AS {}").format(number, sql.Identifier(name)) for name, number in shown.items()
                ),
                length=sql.Literal(_VALUE_SHOWN),
                kind=sql.Identifier(kind),
                limit=sql.Literal(SHOWN),
            )
        ).fetchall()
        return (Offending(kind, self._name, None, text, int(number), self._name) for text, number in rows)

    @property
    def _open(self) -> Connection:
        if self._connection is None:
            raise JobError(Reason.UNEXPECTED, "the snapshot is not open; report this")
        return self._connection

    @property
    def _name(self) -> str:
        return f"{self._sink.schema}.{self._sink.table}"

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self._sink.schema, self._sink.table)

    @property
    def _relevant(self) -> sql.Composable:
        """What of the table is compared."""
        return self._table

    def _rows(self, statement: str) -> Sequence[tuple[Any, ...]]:
        if not self._exists("ackwright.positions"):
            return []  # no pipeline of this database has run yet
        return self._open.execute(statement, [self._job.group]).fetchall()

    def _exists(self, name: str) -> bool:
        return self._open.execute("SELECT to_regclass(%s)", [name]).fetchone() != (None,)


class LetterTableReader(TableReader):
    """The dead letters of a pipeline, in a table that it may share with others, in another reader's snapshot."""

    def __init__(self, job: JobSpec, table: PostgresSink, connection: Connection, *, is_absent: bool) -> None:
        super().__init__(replace(job, sink=table))
        self._connection, self._is_absent = connection, is_absent

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        """All columns of the table but the reason, which the job's decoder words."""
        place = (F.col(name).alias(f"source_{name}") for name in ("topic", "partition", "offset"))
        headers = F.arrow_udf(_headers_as_json, "string")("headers").alias("headers")
        return output.select(F.lit(self._job.group).alias("pipeline"), *place, "key", "value", headers)

    @property
    def _relevant(self) -> sql.Composable:
        return sql.SQL("(SELECT * FROM {} WHERE pipeline = {}) AS letters").format(
            self._table, sql.Literal(self._job.group)
        )


def _headers_as_json(headers: pa.Array) -> pa.Array:
    def text(pairs: Sequence[Mapping[str, Any]] | None) -> str | None:
        values = [(p["key"], p["value"]) for p in pairs or ()]
        coded = [{"key": k, "value": None if v is None else base64.b64encode(v).decode()} for k, v in values]
        return json.dumps(coded) if coded else None

    return pa.array([text(pairs) for pairs in headers.to_pylist()], pa.string())


def _chunks(rows: Iterable[Row], size: int) -> Iterator[list[tuple[str | None, ...]]]:
    remaining = map(tuple, rows)
    while chunk := list(islice(remaining, size)):
        yield chunk


def _as_text(field: StructField) -> Column:
    """The value as PostgreSQL reads it."""
    value = named(field.name)
    match field.dataType:
        case BinaryType():
            return F.concat(F.lit("\\x"), F.hex(value))
        case FloatType():
            return value.cast("double").cast("string")  # what double precision holds of it
        case TimestampType():
            # In UTC, whatever Spark's session has: its own conversions use spark.sql.session.timeZone.
            seconds = (F.unix_micros(value).cast("decimal(20,0)") / 1_000_000).cast("decimal(18,6)")
            utc = F.lit("1970-01-01").cast("timestamp_ntz") + F.make_dt_interval(secs=seconds)
            return F.concat(utc.cast("string"), F.lit("+00"))
        case _:
            return value.cast("string")
