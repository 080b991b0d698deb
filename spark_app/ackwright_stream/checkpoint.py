"""The checkpoint that Spark insists on: a directory for one query, thrown away with it. The positions alone say where to go on.

A driver that is killed leaves its directory behind, in memory where there is /dev/shm, so the next one sweeps. A lock tells whose owner
still lives; a process id would not, for /dev/shm can be shared between containers that number their processes apart.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Options of a query that does not end by itself. Spark's logs of its batches are of no use here: they are written once an hour, and behind
# the batch's back. (Spark's guide, asynchronous progress tracking. That is for its own Kafka sink, and for others with the last option,
# which is not documented; a bounded run cannot have it.)
RARELY_LOGGED = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "3600000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
_PREFIX = "ackwright-"
_LOCK = "lock"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 (mkdtemp makes a private directory there)


def parent(wanted: str | None) -> Path:
    """Where checkpoints go: the wanted directory, which is made, or memory where there is some, for a bounded run waits for them."""
    if wanted:
        os.makedirs(wanted, exist_ok=True)
        return Path(wanted)
    return Path(_SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else tempfile.gettempdir())


@contextmanager
def throwaway(place: Path) -> Iterator[str]:
    """A fresh directory in `place`, and gone afterwards; those of dead drivers go first."""
    _sweep(place)
    fresh = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=place))
    with (fresh / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        owned = fresh.rename(place / fresh.name.removeprefix("."))  # only now others see it, and it is locked
        try:
            yield str(owned / "checkpoint")
        finally:
            shutil.rmtree(owned, ignore_errors=True)


def _sweep(place: Path) -> None:
    for lock in place.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
