"""Creates the brokers' data directories of an embedded cluster, and never removes data that it did not create."""

from __future__ import annotations

import shutil
from pathlib import Path

from ackwright.errors import AckwrightError
from ackwright.local.kafka_id import kafka_uuid
from ackwright_stream.jobspec import Reason

_MARKER = "formatting"  # this file exists while the data directories are being created


def begin_formatting(directory: Path) -> None:
    """Removes the data directories that an interrupted set-up left, and marks the directory as being set up.

    Raises AckwrightError, and changes nothing, if there are data directories without the mark.
    """
    existing = sorted(directory.glob("data-*"))
    marker = directory / _MARKER
    if existing and not marker.exists():
        names = ", ".join(path.name for path in existing)
        raise AckwrightError(
            Reason.UNEXPECTED,
            f"{directory} contains {names}, which no embedded cluster has created, and starting would overwrite it; "
            "choose another directory, or move its contents away",
        )
    marker.touch()
    for leftover in existing:
        shutil.rmtree(leftover)


def copy_to_other_nodes(directory: Path, count: int) -> None:
    """Creates the data directories of nodes 2 to count from node 1's, which Kafka's storage tool has formatted.

    Formatted directories differ between nodes in two identifiers only, and each run of the tool takes a second.
    """
    for node in range(2, count + 1):
        data = directory / f"data-{node}"
        shutil.copytree(directory / "data-1", data)
        meta = data / "meta.properties"
        pairs = dict(line.split("=", 1) for line in meta.read_text().splitlines() if "=" in line)
        pairs |= {"node.id": str(node), "directory.id": kafka_uuid()}
        meta.write_text("".join(f"{name}={value}\n" for name, value in pairs.items()))


def finish_formatting(directory: Path) -> None:
    """Removes the mark: from now on the data directories hold data and are never removed."""
    (directory / _MARKER).unlink(missing_ok=True)
