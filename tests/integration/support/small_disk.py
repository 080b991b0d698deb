"""A broker with its data on a small file system, which fills up for real."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ackwright.local.kafka import Broker, EmbeddedKafka

_SIZE_MB = 96  # the data of an idle broker, its indexes and the records of a test take less than half


def fill(disk: Path) -> Path:
    """Occupies what is left of a file system; returns the file that does it.

    The indexes of Kafka's logs are sparse files that are mapped into memory. Where one gets its first entry on a full
    disk, the append fails behind its write: later records get the same offsets, and the next start of the broker (4.1)
    empties the segment. With one replica these records are lost, so the indexes get their space before.
    """
    for index in disk.glob("*/*index"):
        with index.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, index.stat().st_size)
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as out:
        for size in (64 * 1024, 4096):
            with suppress(OSError):  # ENOSPC
                while out.write(bytes(size)):
                    pass
    return filler


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """While it is open, the file system is full."""
    filler = fill(disk)
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def small_disk(kafka: EmbeddedKafka, broker: Broker) -> Iterator[Path]:
    """The file system with the broker's data. Afterwards it is stopped, with its first data."""
    if os.getuid() != 0:
        pytest.skip("only root may mount a file system")
    data = kafka.directory / f"data-{broker.node}"
    before = data.with_name("moved")
    broker.stop()
    data.rename(before)
    data.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", f"size={_SIZE_MB}m", "tmpfs", data], check=True, timeout=30)
    try:
        shutil.copytree(before, data, dirs_exist_ok=True)
        broker.start()
        kafka.wait_until_in_sync(120)
        yield data
    finally:
        broker.stop()
        subprocess.run(["/bin/umount", "--lazy", data], check=True, timeout=30)
        data.rmdir()
        before.rename(data)  # older data: the broker copies what it lacks when it is started
