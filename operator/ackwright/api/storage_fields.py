"""Where files are: a directory, or a prefix of a bucket of S3. Files of sinks, and of Spark's event log."""

from __future__ import annotations

from typing import Annotated, Any

from ackwright.api.checks import Check
from ackwright.api.quantities import Pattern
from ackwright.api.secret_fields import S3
from ackwright_stream.jobspec import S3A_SCHEME

S3_SCHEME = "s3://"

LOCATION = "^((file://)?(/[A-Za-z0-9._=+-]+)+|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._=+-]+)*)$"
StoragePath = Annotated[
    str,
    Pattern(
        LOCATION,
        "must be an absolute directory or s3://bucket/prefix, of letters, digits and . _ = + -",
        "write for instance s3://lake/orders",
        longest=1024,
    ),
]


def s3_settings(s3: S3 | None) -> tuple[tuple[str, str], ...]:
    """The declared fields that are no Secrets, by name."""
    declared = (("endpoint", s3.endpoint), ("region", s3.region)) if s3 else ()
    return tuple((name, value) for name, value in declared if value)


_PART = "[A-Za-z0-9_][A-Za-z0-9._=+-]*"
_S3A_BUCKET = f"{S3A_SCHEME}[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9]"
S3A_PREFIX = f"^{_S3A_BUCKET}(/{_PART})+$"  # a bucket with a prefix
EventLogDirectory = Annotated[
    str,
    Pattern(
        f"^(file://(/{_PART})+|{_S3A_BUCKET}(/{_PART})*)$",
        "must be file:///directory or s3a://bucket/prefix, of letters, digits and . _ = + -",
        "write for instance s3a://logs/spark, or file:///mnt/events for a volume that is mounted there",
        longest=1024,
    ),
]


S3_OF_BUCKET: Check[Any] = Check(
    lambda sink: sink.s3 is None or sink.path.startswith(S3_SCHEME),
    "s3 belongs to a path that begins with s3://",
    "write path: s3://bucket/prefix, or remove s3",
    cel="!has(self.s3) || self.path.startsWith('s3://')",
    field="s3",
)
