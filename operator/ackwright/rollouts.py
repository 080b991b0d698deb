"""How many pipelines may have their drivers replaced at a time because the operator or its settings have changed.

A pipeline keeps its place until its new driver is ready: if the new drivers do not start, the others keep theirs. But
a driver may also fail for a reason of its author's, so late places limit the pipelines of other namespaces less: all
those of a namespace count as one, and after an hour as none.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

_FORGOTTEN_S = 3600.0  # after this time a place limits its own namespace only
_ASKS_WITHIN_S = 60.0  # a pipeline that has not asked again for this long does not wait


@dataclass(frozen=True)
class _Entry:
    """A pipeline that has a place, or waits for one."""

    namespace: str
    at: float  # seconds: since when it has its place, or when it last asked for one


class Rollouts:
    """The pipelines whose drivers are being replaced. Several threads use it.

    Of the namespaces that wait, the one with the fewest places gets the next one.
    """

    def __init__(self, limit: int, *, late: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        """limit: the number of places. late: seconds that a new driver may take to become ready."""
        self._limit, self._late, self._clock = limit, late, clock
        self._lock = threading.Lock()
        self._replacing: dict[str, _Entry] = {}  # by uid
        self._waiting: dict[str, _Entry] = {}

    def admit(self, uid: str, namespace: str) -> bool:
        """Whether the driver of the pipeline with this uid may be replaced now. It then has a place until `end`."""
        with self._lock:
            if uid in self._replacing:
                return True
            entry = _Entry(namespace, self._clock())
            if self._is_full(entry.at) or not self._is_next(entry):
                self._waiting[uid] = entry
                return False
            self._waiting.pop(uid, None)
            self._replacing[uid] = entry
            return True

    def end(self, uid: str) -> None:
        """Frees the place of a pipeline, if it has one."""
        with self._lock:
            self._replacing.pop(uid, None)
            self._waiting.pop(uid, None)

    def clear(self) -> None:
        """Frees all places."""
        with self._lock:
            self._replacing.clear()
            self._waiting.clear()

    def _is_full(self, now: float) -> bool:
        ages = [(entry.namespace, now - entry.at) for entry in self._replacing.values()]
        late = {namespace for namespace, age in ages if self._late < age <= _FORGOTTEN_S}
        return sum(age <= self._late for _, age in ages) + len(late) >= self._limit

    def _is_next(self, entry: _Entry) -> bool:
        """Whether a namespace has a place left, and no namespace that waits has fewer."""
        places = Counter(other.namespace for other in self._replacing.values())
        self._waiting = {uid: w for uid, w in self._waiting.items() if entry.at - w.at <= _ASKS_WITHIN_S}
        fewest = min((places[w.namespace] for w in self._waiting.values()), default=self._limit)
        return places[entry.namespace] < self._limit and places[entry.namespace] <= fewest
