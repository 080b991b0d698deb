"""The brokers' data directories in the directory of an embedded cluster: made anew, and never at the cost of somebody else's."""

from __future__ import annotations

import shutil
from pathlib import Path

from ackwright.errors import AckwrightError
from ackwright.local.kafka_id import kafka_uuid
from ackwright_stream.jobspec import Reason

_MARKER = "formatting"  # there from before the first data directory is made until all of them are


def clear(directory: Path) -> None:
    """Removes what an interrupted set-up of ours left, and marks the directory as being set up. Raises AckwrightError, and changes
    nothing, if there are data directories of somebody else."""
    found = sorted(directory.glob("data-*"))
    marker = directory / _MARKER
    if found and not marker.exists():
        names = ", ".join(path.name for path in found)
        raise AckwrightError(
            Reason.UNEXPECTED,
            f"{directory} holds {names}, which no embedded cluster has made, and would be overwritten; give another directory, or move "
            "what is there away",
        )
    marker.touch()
    for leftover in found:
        shutil.rmtree(leftover)


def multiply(directory: Path, count: int) -> None:
    """Makes the data directories of nodes 2 to count from that of node 1, which Kafka's storage tool has formatted. What formatting writes
    differs between nodes in two identifiers alone: one run of the tool (a second of a JVM) does for all."""
    for node in range(2, count + 1):
        data = directory / f"data-{node}"
        shutil.copytree(directory / "data-1", data)
        meta = data / "meta.properties"
        pairs = dict(line.split("=", 1) for line in meta.read_text().splitlines() if "=" in line)
        pairs |= {"node.id": str(node), "directory.id": kafka_uuid()}
        meta.write_text("".join(f"{name}={value}\n" for name, value in pairs.items()))


def settle(directory: Path) -> None:
    """To be called when the directory is set up: what is in it now is data, and no leftover."""
    (directory / _MARKER).unlink(missing_ok=True)
