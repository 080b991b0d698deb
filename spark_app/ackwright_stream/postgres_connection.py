"""Connections to PostgreSQL, and its errors as JobErrors. No message contains a password or a row's content."""

from __future__ import annotations

import re
import ssl
import time
from typing import Any

import psycopg
from psycopg import errors
from psycopg.abc import RV, PQGen

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import PostgresSink, Reason
from ackwright_stream.reasons import REASONS
from ackwright_stream.secret_files import read_login

_DEBIANS_CAS = "/etc/ssl/certs/ca-certificates.crt"
# By the first characters of SQLSTATE, the longest first (PostgreSQL's appendix A, error codes).
_REASONS = {
    "42501": Reason.AUTHORIZATION_FAILED,
    "25006": Reason.SINK_UNREACHABLE,
    "25P03": Reason.TRANSACTION_TIMED_OUT,
    "25P04": Reason.TRANSACTION_TIMED_OUT,
    "57014": Reason.TRANSACTION_TIMED_OUT,
    "40": Reason.POSITION_CONFLICT,
    "55P03": Reason.POSITION_CONFLICT,
    "08": Reason.SINK_UNREACHABLE,
    "53": Reason.SINK_UNREACHABLE,
    "57P": Reason.SINK_UNREACHABLE,
    "58": Reason.SINK_UNREACHABLE,
    "28": Reason.SINK_LOGIN_REFUSED,
    "3D": Reason.SINK_LOGIN_REFUSED,
    "22P03": Reason.TABLE_UNSUITABLE,
    "22P04": Reason.TABLE_UNSUITABLE,
    "42": Reason.TABLE_UNSUITABLE,
    "0A": Reason.TABLE_UNSUITABLE,
    "3F": Reason.TABLE_UNSUITABLE,
    "22": Reason.ROW_REFUSED,
    "23": Reason.ROW_REFUSED,
    "44": Reason.ROW_REFUSED,
    "54": Reason.ROW_REFUSED,
    "P0001": Reason.ROW_REFUSED,  # RAISE EXCEPTION in a trigger
}
_CHECK_VIOLATION = "23514"
# In place of the reason's remedy.
_REMEDIES = {"53100": "free space on the disk of the server; the pipeline resumes by itself"}
# The beginning of an internal error (XX000), which the server does not translate: a row of 1 GB or more.
_TOO_LARGE = "invalid memory alloc request size"
_COPY = re.compile(r"^COPY .*?, line (?P<row>\d+)(?:, column (?P<column>[^:\n]+))?", re.MULTILINE)
# A failed connection has no SQLSTATE. The server's text may be in another language: then the reason is the default.
_LOST = "SSL SYSCALL error"  # the server ended while the connection began
_LOGIN = (
    "authentication failed",
    "password supplied",
    "does not exist",
    "not permitted to log in",
    "pg_hba.conf",
    "permission denied for database",
    "certificate",
    "SSL",
    "does not match host name",
)


class NoAnswer(psycopg.OperationalError):
    """The server has not answered within Connection.limit_s. What it has done is not known."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits only so long for each answer of the server.

    While the server is suspended, its kernel acknowledges packets and accepts connections, so that neither TCP nor a
    time-out of the server's own ends the wait.
    """

    limit_s: float | None = None  # None: no limit
    _is_lost = False

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """What the server answers. Raises NoAnswer, after which the connection is closed."""
        started = time.monotonic()
        try:
            return super().wait(gen, interval, self.limit_s if timeout is None else timeout)
        except psycopg.OperationalError:
            late = self.limit_s is not None and time.monotonic() - started >= self.limit_s
            if late:
                self.pgconn.finish()
                self._is_lost = True  # a COPY that is left waits once more
            if self._is_lost:
                raise NoAnswer(f"PostgreSQL has not answered within {self.limit_s:g} s") from None
            raise


def connect(sink: PostgresSink) -> Connection:
    """A connection, in a transaction from its first statement on. Raises JobError."""
    place = f"PostgreSQL at {sink.host}:{sink.port}"
    username, password = read_login(sink.credentials, "sink.postgres")
    settings: dict[str, Any] = dict(sink.connection)
    isolation_level, threshold = settings.pop("isolation_level"), settings.pop("prepare_threshold")
    limit_s = float(settings.pop("response_timeout"))
    try:
        connection = Connection.connect(
            host=sink.host,
            port=sink.port,
            dbname=sink.database,
            user=username,
            password=password,
            **_tls(sink),
            prepare_threshold=None if threshold == "none" else int(threshold),
            **settings,
        )
        connection.isolation_level = psycopg.IsolationLevel[isolation_level]
        connection.limit_s = limit_s
        return connection
    except psycopg.Error as e:
        text = _one_line(str(e))
        refused = any(sign in text for sign in _LOGIN) and _LOST not in text
        reason = Reason.SINK_LOGIN_REFUSED if refused else Reason.SINK_UNREACHABLE
        raise JobError(reason, f"{place}, database {sink.database}: {text[:400]}", REASONS[reason].remedy) from None


def _tls(sink: PostgresSink) -> dict[str, Any]:
    return {"sslmode": "verify-full", "sslrootcert": sink.ca or _trusted_cas()} if sink.tls else {"sslmode": "disable"}


def _trusted_cas() -> str:
    """The file with the CAs that the image trusts, or the one of SSL_CERT_FILE.

    libpq's sslrootcert=system means the directory of the OpenSSL inside psycopg's wheel, which does not exist.
    """
    return ssl.get_default_verify_paths().cafile or _DEBIANS_CAS


def translate(
    error: psycopg.Error, what: str, *, no_answer: Reason = Reason.SINK_UNREACHABLE, of_task: bool = True
) -> JobError:
    """The error of a statement as a JobError.

    what: what was being done, for the message. no_answer: the reason of NoAnswer. of_task: whether the rows of a COPY
    are those of a task, so that the number of one means something.
    """
    if isinstance(error, NoAnswer):
        why = f"{error}, because it is frozen or busy, so the outcome is not known"
        return JobError(no_answer, f"{what}: {why}", REASONS[no_answer].remedy)
    state = error.sqlstate or ("08" if isinstance(error, errors.OperationalError) else "")
    reason = next((_REASONS[state[:n]] for n in (5, 3, 2) if state[:n] in _REASONS), Reason.BATCH_FAILED)
    if state == _CHECK_VIOLATION and error.diag.constraint_name is None:
        reason = Reason.TABLE_UNSUITABLE  # no partition of the table takes the row
    if state == "XX000" and (error.diag.message_primary or "").startswith(_TOO_LARGE):
        reason = Reason.ROW_REFUSED
    # The detail and the context of a message quote values of the row; the name of a column and of a constraint do not.
    names = [("column", error.diag.column_name), ("constraint", error.diag.constraint_name)]
    more = "".join(f", {kind} {name}" for kind, name in names if name) + (_place(error) if of_task else "")
    text = _one_line(error.diag.message_primary or str(error))[:300]
    return JobError(reason, f"{what}: {text}{more}", _REMEDIES.get(state, REASONS[reason].remedy))


def copied_row(error: psycopg.Error) -> tuple[int, str | None] | None:
    """From "COPY orders, line 3, column amount: "12x"" the row, from 1 on, and the column, without the value."""
    context = _COPY.search(error.diag.context or "")
    return (int(context["row"]), context["column"]) if context else None


def _place(error: psycopg.Error) -> str:
    copied = copied_row(error)
    if copied is None:
        return ""
    row, column = copied
    return f" in row {row}{f', column {column}' if column else ''} of the task"


def _one_line(text: str) -> str:
    return " ".join(text.split())
