"""The decisions of stateful pipelines in PostgreSQL: a row for each, in the transaction of its output and positions.

Only this transaction moves a position over records; taking and stopping rewrite positions where they are. It locks the
generation and the positions of all lanes, as a task's does (positions.py), so no driver joins between what it has read
and its commit.
See docs/protocol.md#stateful-pipelines-into-postgresql.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from psycopg.errors import LockNotAvailable

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Membership, Rows
from ackwright_stream.sinks.postgres import positions
from ackwright_stream.sinks.postgres.positions import Statements

NAME = "ackwright.decisions"
RETAINED = 10_000  # decisions of a pipeline, for its audit
# What stateful pipelines need beside the tables of positions, and the statements that create it. The column is for the
# batch of the last decision, so that a lost one is noticed; tables of positions of an earlier release lack it.
CREATIONS = {
    NAME: (
        f'CREATE TABLE IF NOT EXISTS {NAME} ("group" text, batch bigint, decision text NOT NULL, '
        'PRIMARY KEY ("group", batch));'
    ),
    "column batch of ackwright.positions": "ALTER TABLE ackwright.positions ADD COLUMN IF NOT EXISTS batch bigint;",
}
_MISSING = """
SELECT part.name, part.may_create FROM pg_class AS c, LATERAL (VALUES
    (%s::text, to_regclass('ackwright.decisions') IS NULL, has_schema_privilege(c.relnamespace, 'CREATE')),
    (%s::text, NOT EXISTS (
        SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'batch' AND NOT attisdropped
    ), pg_has_role(c.relowner, 'USAGE'))
) AS part (name, is_missing, may_create)
WHERE c.oid = to_regclass('ackwright.positions') AND part.is_missing
"""
_LACKING = """
SELECT right_ FROM unnest(ARRAY['SELECT', 'INSERT', 'DELETE']) AS right_
WHERE NOT has_table_privilege(to_regclass(%s), right_)
"""

_AT_ONCE = 100  # decisions that are read in one transaction
_EARLIER = """
SELECT batch, decision FROM ackwright.decisions WHERE "group" = %s AND (%s::bigint IS NULL OR batch < %s::bigint)
ORDER BY batch DESC LIMIT %s
"""


def problems(cursor: Statements) -> Iterator[JobError]:
    """Why decisions can neither be stored nor what is missing for it be created. Changes nothing."""
    if positions.lacks_usage(cursor):
        return  # which positions.problems() reports; until it is granted, nothing else is known
    if not positions.exist(cursor):
        return  # a role that may create those tables may create this one
    missing = _missing(cursor)
    refused = [name for name, may_create in missing.items() if not may_create]
    if refused:
        yield JobError(
            Reason.TABLE_UNSUITABLE,
            f"the database has no {' and no '.join(refused)}, which stateful pipelines need, and the role may not "
            f"create {'them' if len(refused) > 1 else 'it'}; run as the owner of ackwright.positions: "
            f"{' '.join(CREATIONS[name] for name in missing)} and grant the role SELECT, INSERT, DELETE on {NAME}",
        )
    lacking = ", ".join(right for (right,) in cursor.execute(_LACKING, [NAME]).fetchall())
    if lacking:
        yield JobError(
            Reason.AUTHORIZATION_FAILED,
            f"the role lacks {lacking} on the table of decisions; run GRANT {lacking} ON {NAME} TO the role",
        )


def create(cursor: Statements) -> None:
    """Creates what stateful pipelines need and the database lacks. The tables of positions exist.

    Raises JobError(POSITION_CONFLICT) if a transaction uses them, so that the column cannot be added now.
    """
    missing = _missing(cursor)
    if not missing:
        return
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('ackwright.positions'))")  # two drivers may start at once
    # While an ALTER waits for a transaction that uses the table, all other pipelines wait for the ALTER.
    cursor.execute("SET LOCAL lock_timeout = '200ms'")
    try:
        for name in missing:
            cursor.execute(CREATIONS[name])
    except LockNotAvailable:
        raise JobError(
            Reason.POSITION_CONFLICT,
            "the column batch cannot be added to ackwright.positions while a transaction uses that table (an audit, or "
            "a task of another pipeline); the driver tries again until none does",
        ) from None


def _missing(cursor: Statements) -> dict[str, bool]:
    """Which of CREATIONS are missing, each with whether the role may create it."""
    return dict(cursor.execute(_MISSING, list(CREATIONS)).fetchall())


def add(cursor: Statements, group: str, batch: int, decision: str) -> None:
    """Adds a decision, and deletes those that are too old. Those of an earlier state end with the first of a new one.

    A second decision of a batch after the first is an error: the earlier one counts.
    """
    if batch == 0:
        cursor.execute('DELETE FROM ackwright.decisions WHERE "group" = %s', [group])
    else:
        cursor.execute('DELETE FROM ackwright.decisions WHERE "group" = %s AND batch <= %s', [group, batch - RETAINED])
    cursor.execute(
        'INSERT INTO ackwright.decisions ("group", batch, decision) VALUES (%s, %s, %s)', [group, batch, decision]
    )


class OpenTransaction(Protocol):
    """A transaction of the sink that has locked the positions of some lanes."""

    @property
    def positions(self) -> Mapping[Lane, Position | None]: ...
    def commit(
        self,
        positions: Mapping[Lane, Position],
        rows: Rows = (),
        letters: Rows = (),
        *,
        also: Callable[[Statements], None] | None = None,
    ) -> int: ...
    def release(self) -> None: ...


class DecisionTable:
    """The decisions of one pipeline, in its driver."""

    writer = None  # a transaction of the database has rows and decision

    def __init__(
        self,
        group: str,
        transaction: Callable[[], AbstractContextManager[Statements]],
        open_lanes: Callable[[Sequence[Lane], Membership], OpenTransaction],
    ) -> None:
        self._group, self._transaction, self._open_lanes = group, transaction, open_lanes

    def last(self) -> str | None:
        with self._transaction() as cursor:
            row = cursor.execute(
                'SELECT decision FROM ackwright.decisions WHERE "group" = %s ORDER BY batch DESC LIMIT 1', [self._group]
            ).fetchone()
        return row[0] if row else None

    def earlier(self) -> Iterator[str]:
        below: int | None = None
        while True:
            with self._transaction() as cursor:
                rows = cursor.execute(_EARLIER, [self._group, below, below, _AT_ONCE]).fetchall()
            if not rows:
                return
            yield from (text for _, text in (rows[1:] if below is None else rows))
            below = rows[-1][0]

    def open(self, lanes: Sequence[Lane], membership: Membership) -> DecidingTransaction:
        return DecidingTransaction(self._group, self._open_lanes(lanes, membership))


class DecidingTransaction:
    """All lanes of a stateful pipeline, locked."""

    def __init__(self, group: str, transaction: OpenTransaction) -> None:
        self._group, self._transaction = group, transaction

    @property
    def positions(self) -> Mapping[Lane, Position | None]:
        return self._transaction.positions

    def commit(self, positions: Mapping[Lane, Position], rows: Rows, decision: str, letters: Rows = ()) -> int:
        [batch] = {position.batch for position in positions.values()}
        if batch is None:
            raise JobError(Reason.UNEXPECTED, "a decision has no batch; report this")
        return self._transaction.commit(positions, rows, letters, also=lambda c: add(c, self._group, batch, decision))

    def release(self) -> None:
        self._transaction.release()
