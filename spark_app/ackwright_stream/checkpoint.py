"""The checkpoint that Spark requires: a temporary directory for one query. A query resumes from the positions alone.

A killed driver leaves its directory behind, in memory where /dev/shm exists, and the next driver removes it. A lock
shows whether its driver still runs. A process id would not, because containers that share /dev/shm number their
processes separately.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "ackwright-"
_LOCK = "lock"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 (mkdtemp creates a private directory there)


def parent(directory: str | None) -> Path:
    """The directory for checkpoints, which is created.

    None: one in memory if possible, because a bounded run waits for the writes.
    """
    if directory:
        os.makedirs(directory, exist_ok=True)
        return Path(directory)
    return Path(_SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else tempfile.gettempdir())


@contextmanager
def throwaway(place: Path) -> Iterator[str]:
    """A new directory in `place`, which is removed afterwards; directories of dead drivers are removed first."""
    _sweep(place)
    fresh = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=place))
    with (fresh / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Other drivers see it from here on, and it is locked.
        owned = fresh.rename(place / fresh.name.removeprefix("."))
        try:
            yield str(owned / "checkpoint")
        finally:
            shutil.rmtree(owned, ignore_errors=True)


def _sweep(place: Path) -> None:
    for lock in place.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
