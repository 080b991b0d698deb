"""Where the files of a sink are: a directory, or a prefix of an S3 bucket, with its credentials; and errors of both.

Sinks and the audit share it.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.reasons import REASONS

_COLOURS = re.compile("\x1b\\[[0-9;]*m")  # of delta-rs, for a terminal
_SHOWN = 300  # characters of a message
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
# Of messages, which are all that the clients of object stores pass on.
_NO_LOGIN = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidClientTokenId")
_FORBIDDEN = ("403", "Forbidden", "AccessDenied", "Permission denied", "Operation not permitted", "Read-only file")


class Located(Protocol):
    """The part of a sink's jobspec that says where its files are."""

    @property
    def kind(self) -> str: ...

    @property
    def path(self) -> str:
        """An absolute directory, or s3://<bucket>/<prefix>."""
        ...

    @property
    def endpoint(self) -> str | None:
        """Of S3; None: AWS."""
        ...

    @property
    def region(self) -> str | None:
        """Of S3."""
        ...

    @property
    def credentials(self) -> str | None:
        """Directory with the files `username` and `password`; None: the identity of the pod."""
        ...


@dataclass(frozen=True)
class S3:
    """A prefix of a bucket, and how a client gets there."""

    bucket: str
    prefix: str  # without slashes at its ends
    endpoint: str | None  # None: AWS
    region: str | None
    access_key: str | None  # None: the pod's own identity
    secret_key: str | None = field(repr=False)


def s3_of(sink: Located) -> S3 | None:
    """The bucket of a sink; None if it is a directory. Raises JobError if the credentials are missing."""
    if not sink.path.startswith("s3://"):
        return None
    bucket, _, prefix = sink.path.removeprefix("s3://").partition("/")
    access_key = secret_key = None
    if sink.credentials is not None:
        access_key, secret_key = (_read(Path(sink.credentials, name), sink) for name in ("username", "password"))
    return S3(bucket, prefix.strip("/"), sink.endpoint, sink.region, access_key, secret_key)


def _read(file: Path, sink: Located) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        why = (e.strerror or str(e)) if isinstance(e, OSError) else "it is not UTF-8 text"
        raise JobError(
            Reason.SINK_LOGIN_REFUSED,
            f"the {file.name} of sink.{sink.kind} cannot be read from {file}: {why}; put it there, one file per key, "
            "as in a mounted Secret",
        ) from None


@contextmanager
def translating(what: str) -> Iterator[None]:
    """Raises JobError in place of the errors of files and of clients of object stores. what: what is being done."""
    try:
        yield
    except JobError:
        raise
    except Exception as e:
        raise translate(e, what) from None  # a log of the error would have the request with its headers


def translate(error: Exception, what: str) -> JobError:
    """An error of files or of a client of an object store as a JobError. what: as for translating()."""
    text = " ".join(_COLOURS.sub("", str(error)).split())
    reason = Reason.SINK_UNREACHABLE
    if isinstance(error, OSError) and error.errno is not None:
        text = error.strerror or text
        reason = Reason.AUTHORIZATION_FAILED if error.errno in _DENIED else Reason.SINK_UNREACHABLE
    elif any(sign in text for sign in _NO_LOGIN):
        reason = Reason.SINK_LOGIN_REFUSED
    elif any(sign in text for sign in _FORBIDDEN):
        reason = Reason.AUTHORIZATION_FAILED
    if len(text) > _SHOWN:  # the cause is at its end
        text = f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"
    return JobError(reason, f"{what}: {text}", REASONS[reason].remedy)
