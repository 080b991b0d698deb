"""The state of a stateful pipeline in a bucket of S3: what the driver reads and writes there itself, and the settings
with which Spark does.

Spark reads and writes state by Hadoop's file system s3a. Its settings are Spark's, in the jobspec; only the login is
added here, because a jobspec has no secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, StateSettings
from ackwright_stream.reasons import REASONS
from ackwright_stream.s3_store import store_of
from ackwright_stream.secret_files import read_login
from ackwright_stream.storage_errors import translate
from ackwright_stream.storage_location import S3

_TIMEOUT_MS = 20_000  # of one request with its repetitions
_OF = "checkpoint.s3"
_ANSWER = re.compile(r"<Code>(?P<code>\w+)</Code>\s*<Message>(?P<message>[^<\n]+)</Message>")  # of a server of S3


class StateBucket:
    """The files below the location of a pipeline's state. Every method raises JobError(STATE_UNREACHABLE)."""

    def __init__(self, state: StateSettings) -> None:
        self._uri = state.checkpoint
        _, _, prefix = state.checkpoint.partition("://")[2].partition("/")
        with _unreachable(f"connecting to {self._uri}"):
            login = read_login(state.credentials, _OF) if state.credentials else (None, None)
            s3 = S3(state.bucket or "", prefix.strip("/"), state.endpoint, state.region, *login)
            self._store = store_of(s3, _TIMEOUT_MS)

    def check(self) -> None:
        """Raises JobError unless the bucket answers and its content may be listed."""
        import obstore

        with _unreachable(f"listing {self._uri}"):
            next(iter(obstore.list(self._store, chunk_size=1)), None)

    def write(self, file: str, content: bytes) -> None:
        """Writes or replaces a file, which is durable when the call returns."""
        import obstore

        with _unreachable(f"writing {self._uri}/{file}"):
            obstore.put(self._store, file, content, use_multipart=False)

    def read(self, file: str) -> bytes | None:
        """The content of a file; None if there is none."""
        import obstore

        with _unreachable(f"reading {self._uri}/{file}"):
            try:
                return bytes(obstore.get(self._store, file).bytes())
            except FileNotFoundError:
                return None

    def paths(self, directory: str) -> list[str]:
        """The files in a directory and those below it, each with the directory's name."""
        import obstore

        with _unreachable(f"listing {self._uri}/{directory}"):
            return [entry["path"] for part in obstore.list(self._store, directory) for entry in part]

    def remove(self, file: str) -> None:
        """Removes a file; does nothing if there is none."""
        self.remove_all([file])

    def remove_all(self, files: Sequence[str]) -> None:
        """Removes files; does nothing for those that are not there."""
        import obstore

        with _unreachable(f"removing {', '.join(f'{self._uri}/{file}' for file in files[:1])}"):
            obstore.delete(self._store, files)


def check(state: StateSettings | None) -> None:
    """Raises JobError(STATE_UNREACHABLE) if state is to be in a bucket that cannot be read. Writes nothing."""
    if state is not None and state.bucket is not None:
        StateBucket(state).check()


def login_settings(state: StateSettings) -> Mapping[str, str]:
    """Hadoop's settings with the login of the bucket; none for a directory, or for the identity of the pod.

    They are for the memory of driver and executors: files and logs must not have them. Raises JobError.
    """
    if state.bucket is None or state.credentials is None:
        return {}
    with _unreachable(f"connecting to {state.checkpoint}"):
        key, secret = read_login(state.credentials, _OF)
    of_bucket = f"fs.s3a.bucket.{state.bucket}"
    return {f"{of_bucket}.access.key": key, f"{of_bucket}.secret.key": secret}


@contextmanager
def _unreachable(what: str) -> Iterator[None]:
    """Raises JobError(STATE_UNREACHABLE) in place of the errors of clients. what: what is being done."""
    try:
        yield
    except Exception as e:
        if isinstance(e, JobError):
            cause = e.cause
        elif answer := _ANSWER.search(str(e)):
            cause = f"{what}: {answer['message'].rstrip('.')} ({answer['code']})"
        else:
            cause = translate(e, what).cause
        # Not from e: a log of it would have the request with its headers.
        raise JobError(Reason.STATE_UNREACHABLE, cause, REASONS[Reason.STATE_UNREACHABLE].remedy) from None
