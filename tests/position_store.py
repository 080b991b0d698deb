"""Stands for a sink: its positions and its records of lanes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Records


class PositionStore:
    """What a sink stores of a pipeline. recorded: the topic id in each lane's record."""

    def __init__(self, committed: Mapping[Lane, Position | None], recorded: Mapping[Lane, str]) -> None:
        self.committed, self.recorded = committed, dict(recorded)

    def read(self, lanes: Iterable[Lane]) -> dict[Lane, Position | None]:
        return {lane: self.committed.get(lane) for lane in lanes}

    def records(self) -> Records:
        return Records(self.recorded)
