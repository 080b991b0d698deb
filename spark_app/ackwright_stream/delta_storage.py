"""Where a Delta table is: a directory, or a prefix of an S3 bucket, with its credentials. Job and audit share it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeltaSink, Reason


@dataclass(frozen=True)
class S3:
    """A prefix of a bucket, and how a client gets there."""

    bucket: str
    prefix: str  # without slashes at its ends
    endpoint: str | None  # None: AWS
    region: str | None
    access_key: str | None  # None: the pod's own identity
    secret_key: str | None = field(repr=False)


def s3_of(sink: DeltaSink) -> S3 | None:
    """The bucket of a table; None if the table is in a directory. Raises JobError if the credentials are missing."""
    if not sink.path.startswith("s3://"):
        return None
    bucket, _, prefix = sink.path.removeprefix("s3://").partition("/")
    access_key = secret_key = None
    if sink.credentials is not None:
        access_key, secret_key = (_read(Path(sink.credentials, name)) for name in ("username", "password"))
    return S3(bucket, prefix.strip("/"), sink.endpoint, sink.region, access_key, secret_key)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        why = (e.strerror or str(e)) if isinstance(e, OSError) else "it is not UTF-8 text"
        raise JobError(
            Reason.SINK_LOGIN_REFUSED,
            f"the {file.name} of sink.delta cannot be read from {file}: {why}; put it there, one file per key, as in a "
            "mounted Secret",
        ) from None
