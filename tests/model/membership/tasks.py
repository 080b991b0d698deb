"""The ranges of a batch, and the ways to run them as tasks."""

from __future__ import annotations

from . import brokers as K

Range = tuple[int, int, int]  # lane, from, until


def groupings(ranges: tuple[Range, ...], tasks: str) -> list[tuple[tuple[int, tuple[Range, ...]], ...]]:
    """All ways to run ranges as tasks: ((transactional id, ranges), ...)."""
    if not ranges:
        return []
    if tasks == "lanes":
        return [tuple((K.LANE_IDS[r[0]], (r,)) for r in ranges)]
    if tasks == "driver":
        return [((K.DRIVER_ID, ranges),)]
    if len(ranges) == 1:
        return [((0, ranges),), ((1, ranges),)]
    first, second = ranges
    return [((0, ranges),), ((0, (first,)), (1, (second,))), ((0, (second,)), (1, (first,)))]
