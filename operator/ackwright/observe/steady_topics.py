"""Topics of steady pipelines: those that are due next by the same connection are read together, in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.observe.topics import topics
from ackwright.planning.comparison import ObservedTopic

FRESH_S = 3.0  # for how long a topic that was read for a pipeline that is due next serves
_TOGETHER = 100  # pipelines whose topics are read together
_FORGET_S = 600.0  # after the last request for the topics of a pipeline

Names = tuple[str, ...]


@dataclass(frozen=True)
class _Asked:
    """When the topics of a pipeline were requested."""

    last: float
    interval: float | None = None  # before that; None: they were requested once


@dataclass
class _OfConnection:
    """What was requested by one connection, and what was read ahead."""

    asked: dict[Names, _Asked] = field(default_factory=dict)
    read: dict[Names, tuple[float, Mapping[str, ObservedTopic]]] = field(default_factory=dict)  # with the time


class SteadyTopics:
    """Safe for threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._connections: dict[str, _OfConnection] = {}  # by key
        self._lock = threading.Lock()

    def read(self, key: str, kafka: Kafka, names: Sequence[str]) -> dict[str, ObservedTopic]:
        """Those of a pipeline's topics that exist, as they were at most FRESH_S ago.

        key: of the connection. Raises AckwrightError if the brokers cannot be read.
        """
        own, now = tuple(names), self._clock()
        with self._lock:
            connection = self._connections.setdefault(key, _OfConnection())
            before = connection.asked.get(own)
            connection.asked[own] = _Asked(now, now - before.last if before else None)
            at, ahead = connection.read.pop(own, (now - FRESH_S, {}))
            if now - at < FRESH_S:
                return dict(ahead)
            following = _due(connection, own, now)
        try:
            observed = topics(kafka, {name: None for each in (own, *following) for name in each})
        except AckwrightError:
            if not following:
                raise
            observed, following = topics(kafka, own), ()  # the connection may read only some of the others
        with self._lock:
            for each in following:
                connection.read[each] = now, _of(each, observed)
        return _of(own, observed)

    def forget_old(self) -> None:
        """Forgets what nobody has requested for long."""
        now = self._clock()
        with self._lock:
            for key, connection in list(self._connections.items()):
                for names in [n for n, asked in connection.asked.items() if now - asked.last > _FORGET_S]:
                    del connection.asked[names]
                    connection.read.pop(names, None)
                if not connection.asked:
                    del self._connections[key]


def _due(connection: _OfConnection, own: Names, now: float) -> tuple[Names, ...]:
    """The topics of the other pipelines that will be requested within FRESH_S, if they are as regularly as before."""
    due = [
        names
        for names, asked in connection.asked.items()
        if names != own and asked.interval is not None and now <= asked.last + asked.interval < now + FRESH_S
    ]
    return tuple(due[:_TOGETHER])


def _of(names: Names, observed: Mapping[str, ObservedTopic]) -> dict[str, ObservedTopic]:
    return {name: observed[name] for name in names if name in observed}
