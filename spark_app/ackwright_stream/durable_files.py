"""Files and directories of a local file system that survive the loss of power."""

from __future__ import annotations

import os
from pathlib import Path


def make_durable(path: Path) -> None:
    """Makes a file durable, or the names in a directory. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Creates a directory and those above it, durably, unless they exist. Raises OSError."""
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(exist_ok=True)
        make_durable(place.parent)
