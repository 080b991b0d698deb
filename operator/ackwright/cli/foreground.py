"""What commands share that run brokers or jobs of their own until they end or are interrupted."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click

from ackwright.local.watch import Watch


class Interrupts:
    """Turns SIGINT and SIGTERM into KeyboardInterrupt, and from the moment on that the job runs, into a count to be looked at."""

    def __init__(self) -> None:
        self.count = 0
        self.deferred = False
        self._new = threading.Event()
        self._before: dict[int, object] = {}

    def wait(self, seconds: float) -> None:
        self._new.wait(seconds)
        self._new.clear()

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self.deferred:
            raise KeyboardInterrupt
        self._new.set()


@contextlib.contextmanager
def working_directory(given: Path | None, keep: bool) -> Iterator[Path]:
    """The given directory, which stays, or a temporary one, which stays only if it is to be kept. Raises click.BadParameter."""
    if given is not None or keep:
        place = given or Path(tempfile.mkdtemp(prefix="ackwright-run-"))
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise click.BadParameter(f"{place} cannot be used: {e.strerror}", param_hint="--dir") from e
        yield place.resolve()
        return
    place = Path(tempfile.mkdtemp(prefix="ackwright-run-"))
    with Watch(remove=(place,)):  # also if this process is killed
        yield place
