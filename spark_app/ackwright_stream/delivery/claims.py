"""What a failed batch had claimed (at-most-once): known once the driver reads the positions again.

A batch that fails for the sink or the brokers cannot be abandoned while they do not answer. What its tasks had claimed
by then is lost all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ackwright_stream.positions import Lane, Position, Range


@dataclass(frozen=True)
class FailedBatch:
    """A batch whose positions move before its rows are written."""

    ranges: tuple[Range, ...]
    driver: int  # the number of its driver
    abandoned: int  # of its offsets, those that were counted when it failed

    def uncounted(self, positions: Mapping[Lane, Position | None]) -> int:
        """How many of its offsets are claimed, beyond those that were counted when it failed.

        positions: as the driver reads them once its older tasks are fenced.
        """
        return max(0, sum(self._claimed(r, positions.get(r.lane)) for r in self.ranges) - self.abandoned)

    def _claimed(self, r: Range, position: Position | None) -> int:
        if position is None or position.driver != self.driver:  # such as one that a person has set
            return 0
        return min(max(position.offset, r.start), r.until) - r.start
