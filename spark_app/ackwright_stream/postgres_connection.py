"""Connections to PostgreSQL, and its errors as JobErrors. No message contains a password or a row's content."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import PostgresSink, Reason
from ackwright_stream.reasons import REASONS

Connection = psycopg.Connection[tuple[Any, ...]]
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
_COPY = re.compile(r"^COPY .*?, line (?P<row>\d+)(?P<column>, column [^:\n]+)?", re.MULTILINE)
# A failed connection has no SQLSTATE. The server's text may be in another language: then the reason is the default.
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


def connect(sink: PostgresSink) -> Connection:
    """A connection, in a transaction from its first statement on. Raises JobError."""
    place = f"PostgreSQL at {sink.host}:{sink.port}"
    credentials = {name: _read(Path(sink.credentials, name)) for name in ("username", "password")}
    settings: dict[str, Any] = dict(sink.connection)
    isolation_level, threshold = settings.pop("isolation_level"), settings.pop("prepare_threshold")
    try:
        connection = psycopg.connect(
            host=sink.host,
            port=sink.port,
            dbname=sink.database,
            user=credentials["username"],
            password=credentials["password"],
            **_tls(sink),
            prepare_threshold=None if threshold == "none" else int(threshold),
            **settings,
        )
        connection.isolation_level = psycopg.IsolationLevel[isolation_level]
        return connection
    except psycopg.Error as e:
        text = _one_line(str(e))
        refused = any(sign in text for sign in _LOGIN)
        reason = Reason.SINK_LOGIN_REFUSED if refused else Reason.SINK_UNREACHABLE
        raise JobError(reason, f"{place}, database {sink.database}: {text[:400]}", REASONS[reason].remedy) from None


def _tls(sink: PostgresSink) -> dict[str, Any]:
    return {"sslmode": "verify-full", "sslrootcert": sink.ca or _trusted_cas()} if sink.tls else {"sslmode": "disable"}


def _trusted_cas() -> str:
    """The file with the CAs that the image trusts, or the one of SSL_CERT_FILE.

    libpq's sslrootcert=system means the directory of the OpenSSL inside psycopg's wheel, which does not exist.
    """
    return ssl.get_default_verify_paths().cafile or _DEBIANS_CAS


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as e:
        why = (e.strerror or str(e)) if isinstance(e, OSError) else "it is not UTF-8 text"
        raise JobError(
            Reason.SINK_LOGIN_REFUSED,
            f"the {file.name} of sink.postgres cannot be read from {file}: {why}; put it there, one file per "
            "key, as in a mounted Secret",
        ) from None


def translate(error: psycopg.Error, what: str) -> JobError:
    """The error of a statement as a JobError. what: what was being done, for the message."""
    state = error.sqlstate or ("08" if isinstance(error, errors.OperationalError) else "")
    reason = next((_REASONS[state[:n]] for n in (5, 3, 2) if state[:n] in _REASONS), Reason.BATCH_FAILED)
    # The detail and the context of a message quote values of the row; the name of a column and of a constraint do not.
    names = [("column", error.diag.column_name), ("constraint", error.diag.constraint_name)]
    more = "".join(f", {kind} {name}" for kind, name in names if name) + _place(error)
    text = _one_line(error.diag.message_primary or str(error))[:300]
    return JobError(reason, f"{what}: {text}{more}", REASONS[reason].remedy)


def _place(error: psycopg.Error) -> str:
    """From "COPY orders, line 3, column amount: "12x"" the row and the column, without the value."""
    context = _COPY.search(error.diag.context or "")
    return f" in row {context['row']}{context['column'] or ''} of the task" if context else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
