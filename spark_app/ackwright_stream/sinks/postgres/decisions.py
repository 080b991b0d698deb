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

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Membership, Rows
from ackwright_stream.sinks.postgres import positions
from ackwright_stream.sinks.postgres.positions import Statements

NAME = "ackwright.decisions"
RETAINED = 10_000  # decisions of a pipeline, for its audit
# The batch of the last decision is also with the positions, so that a lost decision is noticed.
TABLE = """
ALTER TABLE ackwright.positions ADD COLUMN IF NOT EXISTS batch bigint;
CREATE TABLE IF NOT EXISTS ackwright.decisions (
    "group" text, batch bigint, decision text NOT NULL, PRIMARY KEY ("group", batch)
);
"""
_MAY_CREATE = """
SELECT pg_has_role(c.relowner, 'USAGE') AND has_schema_privilege(c.relnamespace, 'CREATE')
FROM pg_class AS c WHERE c.oid = to_regclass('ackwright.positions')
"""
_LACKING = """
SELECT right_ FROM unnest(ARRAY['SELECT', 'INSERT', 'DELETE']) AS right_
WHERE NOT has_table_privilege(to_regclass(%s), right_)
"""


def problems(cursor: Statements) -> Iterator[JobError]:
    """Why the table of decisions can neither be used nor be created. Changes nothing."""
    if not positions.exist(cursor):
        return  # a role that may create those tables may create this one
    if positions.missing_of(cursor, [NAME]):
        if cursor.execute(_MAY_CREATE).fetchone() != (True,):
            yield JobError(
                Reason.TABLE_UNSUITABLE,
                f"the database has no {NAME}, where the decisions of stateful pipelines are, and the role may not "
                f"create it; run as the owner of ackwright.positions: {' '.join(TABLE.split())} and grant the role "
                "SELECT, INSERT, DELETE on it",
            )
        return
    lacking = ", ".join(right for (right,) in cursor.execute(_LACKING, [NAME]).fetchall())
    if lacking:
        yield JobError(
            Reason.AUTHORIZATION_FAILED,
            f"the role lacks {lacking} on the table of decisions; run GRANT {lacking} ON {NAME} TO the role",
        )


def create(cursor: Statements) -> None:
    """Creates the table of decisions if it is missing. Those of positions exist."""
    if positions.missing_of(cursor, [NAME]):
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('ackwright.positions'))")  # two drivers may start at once
        cursor.execute(TABLE)


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

    def open(self, lanes: Sequence[Lane], membership: Membership) -> DecidingTransaction:
        return DecidingTransaction(self._group, self._open_lanes(lanes, membership))


class DecidingTransaction:
    """All lanes of a stateful pipeline, locked."""

    def __init__(self, group: str, transaction: OpenTransaction) -> None:
        self._group, self._transaction = group, transaction

    @property
    def positions(self) -> Mapping[Lane, Position | None]:
        return self._transaction.positions

    def commit(self, positions: Mapping[Lane, Position], rows: Rows, decision: str) -> int:
        [batch] = {position.batch for position in positions.values()}
        if batch is None:
            raise JobError(Reason.UNEXPECTED, "a decision has no batch; report this")
        return self._transaction.commit(positions, rows, also=lambda c: add(c, self._group, batch, decision))

    def release(self) -> None:
        self._transaction.release()
