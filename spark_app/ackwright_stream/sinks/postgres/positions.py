"""Positions in PostgreSQL: the tables that hold them, and the statements that lock, read and move them.

`ackwright.pipelines` has one row for each pipeline with its generation, which a driver raises when it joins.
`ackwright.positions` has one row for each lane. A transaction that moves positions first locks the generation
(FOR SHARE), so that no driver can join before it ends, then the positions (FOR UPDATE). A membership is a generation
and the time at which the server started: one that was restored, or a replica that became the primary, may lack what the
server before it has committed.
(docs/postgres.md#how-it-works) Of stateful pipelines they also have the last decided batch (decisions.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from psycopg import Cursor

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Membership, Records

TABLES = """
CREATE SCHEMA IF NOT EXISTS ackwright;
CREATE TABLE IF NOT EXISTS ackwright.pipelines (
    "group" text PRIMARY KEY, generation bigint NOT NULL, accepted text NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS ackwright.positions (
    "group" text, topic text, partition int, "offset" bigint NOT NULL, topic_id text NOT NULL,
    driver bigint NOT NULL, pipeline text NOT NULL, recorded_topic_id text, first_offset bigint,
    recreated boolean NOT NULL DEFAULT false, batch bigint,
    PRIMARY KEY ("group", topic, partition)
);
"""
NAMES = ("ackwright.pipelines", "ackwright.positions")
_MAY_CREATE = "SELECT has_database_privilege(current_database(), 'CREATE')"
_MISSING = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL"  # also without the schema
_LACKS_USAGE = "SELECT FROM pg_namespace WHERE nspname = 'ackwright' AND NOT has_schema_privilege(oid, 'USAGE')"
# Not by to_regclass(), which fails without USAGE on the schema.
_LACKING = """
SELECT name, string_agg(right_, ', ' ORDER BY number)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace,
LATERAL (SELECT nspname || '.' || relname) AS t (name),
unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) WITH ORDINALITY AS r (right_, number)
WHERE name = ANY (%s) AND NOT has_table_privilege(c.oid, right_) GROUP BY name ORDER BY name
"""
# Tables that an earlier release created have the column batch once a stateful pipeline has run in the database.
_READ = """
SELECT topic, partition, "offset", topic_id, driver, pipeline, (to_jsonb(p) ->> 'batch')::bigint
FROM ackwright.positions AS p WHERE "group" = %s AND (topic, partition) IN (SELECT * FROM unnest(%s::text[], %s::int[]))
ORDER BY topic, partition
"""
_MOVE = """
INSERT INTO ackwright.positions AS p ("group", topic, partition, "offset", topic_id, driver, pipeline)
SELECT %s, * FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::text[], %s::bigint[], %s::text[])
ON CONFLICT ("group", topic, partition) DO UPDATE
SET "offset" = excluded."offset", topic_id = excluded.topic_id, driver = excluded.driver, pipeline = excluded.pipeline
"""
_DECIDED = """
UPDATE ackwright.positions AS p SET batch = lane.batch FROM unnest(%s::text[], %s::int[], %s::bigint[])
AS lane (topic, partition, batch) WHERE p."group" = %s AND p.topic = lane.topic AND p.partition = lane.partition
"""
_RECORD = """
UPDATE ackwright.positions AS p
SET recorded_topic_id = p.topic_id, first_offset = p."offset", recreated = p.recreated OR lane.recreated
FROM unnest(%s::text[], %s::int[], %s::boolean[]) AS lane (topic, partition, recreated)
WHERE p."group" = %s AND p.topic = lane.topic AND p.partition = lane.partition
"""
# Sessions of the same role, to which the server lets a role do this.
_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE usename = current_user AND datname = current_database() AND pid <> pg_backend_pid()
AND application_name LIKE %s
"""
_JOIN = """
INSERT INTO ackwright.pipelines AS p ("group", generation) VALUES (%s, 1)
ON CONFLICT ("group") DO UPDATE SET generation = p.generation + 1
RETURNING generation, extract(epoch FROM pg_postmaster_start_time())
"""
_MEMBERSHIP = """
SELECT generation, extract(epoch FROM pg_postmaster_start_time()) FROM ackwright.pipelines WHERE "group" = %s
"""
_SERVER = "SELECT 0, extract(epoch FROM pg_postmaster_start_time())"
_IF_MEMBER = """AND EXISTS (SELECT FROM ackwright.pipelines WHERE "group" = %s AND generation = %s)"""

Statements = Cursor[tuple[Any, ...]]


def problems(cursor: Statements) -> Iterator[JobError]:
    """Why the tables of positions can neither be used nor be created. Changes nothing."""
    no_usage = lacks_usage(cursor)
    if no_usage:
        yield JobError(
            Reason.AUTHORIZATION_FAILED,
            "the role lacks USAGE on schema ackwright, where positions are; run GRANT USAGE ON SCHEMA ackwright TO the "
            "role",
        )
    missing = () if no_usage else missing_of(cursor, NAMES)
    if missing and not _one(cursor.execute(_MAY_CREATE)):
        statements = " ".join(TABLES.split())
        yield JobError(
            Reason.TABLE_UNSUITABLE,
            f"the database has no {' and no '.join(missing)}, where positions are, and the role may not create them; "
            f"run as the database's owner: {statements} and grant the role USAGE on schema ackwright, and SELECT, "
            "INSERT, UPDATE on both tables",
        )
    for name, lacking in cursor.execute(_LACKING, [list(NAMES)]).fetchall():
        yield JobError(
            Reason.AUTHORIZATION_FAILED,
            f"the role lacks {lacking} on table {name}; run GRANT {lacking} ON {name} TO the role",
        )


def lacks_usage(cursor: Statements) -> bool:
    """Whether the schema of the positions exists and the role may not use it: no statement can name a table of it."""
    return cursor.execute(_LACKS_USAGE).fetchone() is not None


def exist(cursor: Statements) -> bool:
    """Whether the tables of positions exist."""
    return not missing_of(cursor, NAMES)


def missing_of(cursor: Statements, names: Iterable[str]) -> list[str]:
    """Those of the tables that do not exist."""
    return [name for (name,) in cursor.execute(_MISSING, [list(names)]).fetchall()]


def has_any(cursor: Statements, group: str) -> bool:
    """Whether the pipeline has positions."""
    return exist(cursor) and bool(
        cursor.execute('SELECT FROM ackwright.positions WHERE "group" = %s LIMIT 1', [group]).fetchall()
    )


def create(cursor: Statements) -> None:
    """Creates the tables of positions if they are missing."""
    if not exist(cursor):
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('ackwright.positions'))")  # two drivers may start at once
        cursor.execute(TABLES)


def session(group: str, slot: int | str | None = None) -> str:
    """The application_name of a transaction: of a task with this slot, else a pattern for those of all tasks."""
    pipeline = hashlib.sha256(group.encode()).hexdigest()[:16]  # PostgreSQL cuts names off after 63 bytes
    return f"ackwright/{pipeline}/{'%' if slot is None else slot}"


def terminate(
    cursor: Statements, group: str, slot: int | str | None = None, *, member: Membership | None = None
) -> None:
    """Ends the sessions of the tasks with this slot, or of all; what they have not committed is gone.

    member: none if another driver has joined since, whose tasks they may be.
    """
    if member is None:
        cursor.execute(_TERMINATE, [session(group, slot)])
    else:
        generation = int(member.split(b"@")[0])
        cursor.execute(_TERMINATE + _IF_MEMBER, [session(group, slot), group, generation])


def join(cursor: Statements, group: str) -> Membership:
    """Raises the pipeline's generation; returns the membership."""
    cursor.execute(_JOIN, [group])
    return _membership(cursor)


def membership(cursor: Statements, group: str, *, lock: bool) -> Membership:
    """That of the driver that joined last. lock: no driver joins until the transaction ends."""
    cursor.execute(_MEMBERSHIP + "FOR SHARE" if lock else _MEMBERSHIP, [group])
    return _membership(cursor)


def require_member(cursor: Statements, group: str, expected: Membership, *, lock: bool) -> None:
    """Raises JobError(POSITION_CONFLICT) if another driver has joined since, or if the server is another one."""
    latest = membership(cursor, group, lock=lock)
    _require_same_server(latest, expected)
    if latest != expected:
        raise JobError(Reason.POSITION_CONFLICT, "another driver has joined; it owns the pipeline")


def require_same_server(cursor: Statements, expected: Membership) -> None:
    """Raises JobError(POSITION_CONFLICT) if this is not the server that the driver has joined, running since then."""
    cursor.execute(_SERVER)
    _require_same_server(_membership(cursor), expected)


def _require_same_server(latest: Membership, expected: Membership) -> None:
    if latest and latest.split(b"@")[1] != expected.split(b"@")[1]:
        raise JobError(
            Reason.POSITION_CONFLICT,
            "the server was restarted or replaced since this driver has joined, so rows or positions that it has "
            "written may be gone; it restarts from the positions",
        )


def read(cursor: Statements, group: str, lanes: Iterable[Lane], *, lock: bool) -> dict[Lane, Position | None]:
    """The positions. lock: nobody else moves them until the transaction ends."""
    topics, partitions = _split(lanes)
    rows = cursor.execute(_READ + (" FOR UPDATE" if lock else ""), [group, topics, partitions]).fetchall()
    stored = {Lane(topic, partition): Position(*position) for topic, partition, *position in rows}
    return {Lane(*lane): stored.get(Lane(*lane)) for lane in zip(topics, partitions, strict=True)}


def move(cursor: Statements, group: str, positions: Mapping[Lane, Position], *, decides: bool = False) -> None:
    """Sets positions. decides: of a stateful pipeline; their batch is set as well, also to none."""
    lanes = sorted(positions)
    values = [positions[lane] for lane in lanes]
    cursor.execute(
        _MOVE,
        [
            group,
            *_split(lanes),
            [p.offset for p in values],
            [p.topic_id for p in values],
            [p.driver for p in values],
            [p.pipeline for p in values],
        ],
    )
    if decides:
        cursor.execute(_DECIDED, [*_split(lanes), [p.batch for p in values], group])


def record(cursor: Statements, group: str, lanes: Mapping[Lane, bool]) -> None:
    """Records that the lanes begin at their present positions, each with whether its topic was recreated."""
    cursor.execute(_RECORD, [*_split(lanes), [lanes[lane] for lane in sorted(lanes)], group])


def accept(cursor: Statements, group: str, fingerprint: str) -> None:
    """Records that positions with this fingerprint were accepted."""
    cursor.execute('UPDATE ackwright.pipelines SET accepted = %s WHERE "group" = %s', [fingerprint, group])


def records(cursor: Statements, group: str) -> Records:
    """What is recorded beside the positions. There are no final ones, because positions do not expire."""
    rows = cursor.execute(
        "SELECT topic, partition, recorded_topic_id FROM ackwright.positions "
        'WHERE "group" = %s AND recorded_topic_id IS NOT NULL',
        [group],
    ).fetchall()
    cursor.execute('SELECT accepted, generation FROM ackwright.pipelines WHERE "group" = %s', [group])
    row = cursor.fetchone()
    accepted, generation = row or ("", 1)
    lanes = {Lane(topic, partition): topic_id for topic, partition, topic_id in rows}
    # A driver joins before it settles, so no driver before the last one to join has had a higher number.
    return Records(lanes, accepted=accepted, driver=generation - 1, joined=row is not None)


def _split(lanes: Iterable[Lane]) -> tuple[list[str], list[int]]:
    ordered = sorted(lanes)
    return [lane.topic for lane in ordered], [lane.partition for lane in ordered]


def _membership(cursor: Statements) -> Membership:
    row = cursor.fetchone()
    return f"{row[0]}@{row[1]}".encode() if row else b""


def _one(cursor: Statements) -> Any:
    row = cursor.fetchone()
    return row[0] if row else None
