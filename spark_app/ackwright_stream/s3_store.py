"""obstore's client of a prefix of a bucket of S3: whether it may write, and whether the server keeps to conditions."""

from __future__ import annotations

import datetime
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, s3_region
from ackwright_stream.storage_errors import translate, translating
from ackwright_stream.storage_location import S3

if TYPE_CHECKING:  # its import takes time, which jobs without a bucket need not spend
    from obstore.store import S3Store


def store_of(s3: S3, timeout_ms: int) -> S3Store:
    """The client; it connects to nothing yet. timeout_ms: of one request with its repetitions."""
    from obstore.store import S3Store

    options = {
        "region": s3_region(s3.region, s3.endpoint),
        "endpoint": s3.endpoint,
        "access_key_id": s3.access_key,
        "secret_access_key": s3.secret_key,
        "session_token": s3.session_token,
    }
    seconds = datetime.timedelta(milliseconds=timeout_ms)
    return S3Store(
        s3.bucket,
        prefix=s3.prefix or None,
        config={name: value for name, value in options.items() if value is not None},  # type: ignore[arg-type]
        client_options={"timeout": seconds / 2, "allow_http": (s3.endpoint or "").startswith("http://")},
        retry_config={"retry_timeout": seconds / 2},
    )


def require_conditional(store: S3Store, path: str, uri: str) -> None:
    """Raises JobError(TABLE_UNSUITABLE) if the server replaces a file that it should refuse to create again.

    path: of a file that is there, and keeps its content. uri: the store, as messages name it.

    Failure window: a server that ignores `If-None-Match`. Two drivers would replace each other's files, and neither
    would learn of it.
    """
    import obstore

    with translating(f"creating {uri}/{path}"):
        content = obstore.get(store, path).bytes()
        try:
            obstore.put(store, path, content, mode="create", use_multipart=False)
        except obstore.exceptions.AlreadyExistsError:
            return
    raise JobError(
        Reason.TABLE_UNSUITABLE,
        f"the server of {uri} ignores If-None-Match, so two drivers would replace each other's files; use a server "
        "that supports conditional writes",
    )


def require_permission(store: S3Store, uri: str) -> None:
    """Raises JobError if there is no such bucket, or if the login may not write to it.

    It asks to replace a file that is not there (`If-Match`). A server refuses that for the condition, but for a missing
    permission first. Other answers say nothing about permissions. A server that ignores the condition creates an empty
    file, which is removed if the login may delete it.

    uri: the store, as messages name it.
    """
    import obstore

    path = f"_ackwright/{uuid.uuid4()}"
    try:
        obstore.put(store, path, b"", mode={"e_tag": '"0"'}, use_multipart=False)
    except Exception as e:
        error = translate(e, f"writing to {uri}")
        if error.reason is not Reason.SINK_UNREACHABLE:
            raise error from None  # a log of the error would have the request with its headers
        return
    with suppress(Exception):  # a server that ignores If-Match has created it
        obstore.delete(store, path)
