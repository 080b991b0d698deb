"""Logins of storage and catalogs, from the files of a mounted Secret. Job and audit share it."""

from __future__ import annotations

from pathlib import Path

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason


def read_login(directory: str, of: str) -> tuple[str, str]:
    """The contents of the files `username` and `password`. of: what they are for, in messages.

    They are read again each time: a Secret may have changed. Raises JobError(SINK_LOGIN_REFUSED) without them.
    """
    return _read(Path(directory, "username"), of), _read(Path(directory, "password"), of)


def read_token(file: str, of: str) -> str:
    """The content of a file. It is read again each time. of and errors: as for read_login()."""
    return _read(Path(file), of)


def _read(file: Path, of: str) -> str:
    try:
        return file.read_text().strip("\r\n")
    except (OSError, UnicodeDecodeError) as e:
        why = (e.strerror or str(e)) if isinstance(e, OSError) else "it is not UTF-8 text"
        raise JobError(
            Reason.SINK_LOGIN_REFUSED,
            f"the {file.name} of {of} cannot be read from {file}: {why}; put it there, one file per key, as in a "
            "mounted Secret",
        ) from None
