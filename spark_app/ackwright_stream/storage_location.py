"""Where a Delta table or the files of a sink are: a directory, or a prefix of an S3 bucket, with its credentials.

Job and audit share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ackwright_stream.jobspec import DeltaSink, FilesSink
from ackwright_stream.secret_files import read_login


@dataclass(frozen=True)
class S3:
    """A prefix of a bucket, and how a client gets there."""

    bucket: str
    prefix: str  # without slashes at its ends
    endpoint: str | None  # None: AWS
    region: str | None
    access_key: str | None  # None: the pod's own identity
    secret_key: str | None = field(repr=False)
    session_token: str | None = field(default=None, repr=False)  # of a temporary login


def s3_of(sink: DeltaSink | FilesSink) -> S3 | None:
    """The bucket of a sink; None if it is a directory. Raises JobError if the credentials are missing."""
    if not sink.path.startswith("s3://"):
        return None
    bucket, _, prefix = sink.path.removeprefix("s3://").partition("/")
    access_key = secret_key = None
    if sink.credentials is not None:
        access_key, secret_key = read_login(sink.credentials, f"sink.{sink.kind}")
    return S3(bucket, prefix.strip("/"), sink.endpoint, sink.region, access_key, secret_key)
