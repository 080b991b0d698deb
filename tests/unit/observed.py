"""Topics as brokers would show them."""

from __future__ import annotations

from collections.abc import Mapping

from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.replicas import Partition


def topic(
    name: str,
    *,
    partitions: int = 1,
    factor: int = 3,
    lag: int = 0,
    config: Mapping[str, str] | None = None,
    identity: str = "id",
) -> ObservedTopic:
    """Replicas are on brokers 0, 1, … in turn; the last `lag` of each partition are out of sync."""
    layout = tuple(
        Partition(n, replicas, frozenset(replicas[: factor - lag]), replicas[0])
        for n in range(partitions)
        for replicas in [tuple((n + i) % max(3, factor) for i in range(factor))]
    )
    return ObservedTopic(name, identity, layout, dict(config or {}))
