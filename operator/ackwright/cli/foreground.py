"""What the commands share that run brokers or jobs on this machine until these end or the command is interrupted."""

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
    """Counts SIGINT and SIGTERM. Until `deferred` is set, each also raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.count = 0
        self.deferred = False
        self._new = threading.Event()
        self._previous: dict[int, object] = {}  # handlers, by signal

    def wait(self, seconds: float) -> None:
        """Waits for the next interrupt, at most so many seconds."""
        self._new.wait(seconds)
        self._new.clear()

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self.deferred:
            raise KeyboardInterrupt
        self._new.set()


@contextlib.contextmanager
def working_directory(directory_option: Path | None, keep: bool) -> Iterator[Path]:
    """The directory_option directory, which stays, or a temporary one, which is removed unless `keep`.

    Raises click.BadParameter.
    """
    if directory_option is not None or keep:
        directory = directory_option or Path(tempfile.mkdtemp(prefix="ackwright-run-"))
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise click.BadParameter(f"{directory} cannot be used: {e.strerror}", param_hint="--dir") from e
        yield directory.resolve()
        return
    directory = Path(tempfile.mkdtemp(prefix="ackwright-run-"))
    with Watch(remove=(directory,)):  # also if this process is killed
        yield directory
