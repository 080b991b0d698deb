"""Which pipelines are due for a reconcile, and when.

Events only add a pipeline's name, which makes the operator level-triggered.

Pipelines that have changed come before those that are only due for a routine reconcile, because a user may wait for the
change: a thousand routine reconciles do not delay an edit. Routine ones that have waited for long come first, so that
they are not starved.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

Key = tuple[str, str]  # namespace, name

_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0
_PATIENCE_S = 10.0  # after this time routine reconciles come first


class _Due(NamedTuple):
    at: float
    changed: bool

    def sooner(self, other: _Due | None) -> _Due:
        return self if other is None else _Due(min(self.at, other.at), self.changed or other.changed)


class Worklist:
    """Names of pipelines with the time at which each is due.

    One worker at a time handles a name, and it is on the list once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[Key, _Due] = {}
        self._heaps: dict[bool, list[tuple[float, Key]]] = {True: [], False: []}  # by whether the pipeline has changed
        self._busy: dict[Key, _Due | None] = {}  # names that are being handled, and when each is due again
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """How many names are due now, or being handled."""
        now = self._clock()
        return len(self._busy) + sum(due.at <= now for due in self._due.values())

    def add(self, key: Key, delay: float = 0.0, *, changed: bool = True) -> None:
        """Makes the pipeline due in `delay` seconds, or earlier. changed: False for a routine reconcile."""
        self._add(key, _Due(self._clock() + delay, changed))

    def _add(self, key: Key, due: _Due) -> None:
        if key in self._busy:
            self._busy[key] = due.sooner(self._busy[key])
        elif (soonest := due.sooner(self._due.get(key))) != self._due.get(key):
            self._due[key] = soonest
            heapq.heappush(self._heaps[soonest.changed], (soonest.at, key))
            self._changed.set()

    def forget(self, key: Key) -> None:
        """Removes a pipeline from the list."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    async def work(self, handle: Callable[[Key], Awaitable[float | None]]) -> None:
        """Handles due names forever. `handle` returns the seconds until the next time; None: never.

        When it raises, the name is handled again after a back-off, which the next success resets.
        """
        while True:
            key = await self._next()
            try:
                delay = await handle(key)
                self._failures.pop(key, None)
            except Exception:
                delay = self._backoff(key)
            added = self._busy.pop(key)
            if delay is not None:
                self.add(key, delay, changed=False)
            if added is not None:
                self._add(key, added)

    def _backoff(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return float(min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0))  # noqa: S311 (jitter)

    async def _next(self) -> Key:
        """The next due name; waits for it."""
        while True:
            now = self._clock()
            if (key := self._pop(now)) is not None:
                return key
            self._changed.clear()
            heads = [at for changed in self._heaps if (at := self._head(changed)) is not None]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(heads) - now if heads else None)

    def _pop(self, now: float) -> Key | None:
        """Takes the name to be handled next from the list; None if none is due."""
        routine = self._head(changed=False)
        overdue = routine is not None and routine <= now - _PATIENCE_S
        for changed in (False, True) if overdue else (True, False):
            at = self._head(changed)
            if at is not None and at <= now:
                _, key = heapq.heappop(self._heaps[changed])
                del self._due[key]
                self._busy[key] = None
                return key
        return None

    def _head(self, changed: bool) -> float | None:
        """When the first entry of a heap is due.

        Drops entries of names that have been handled, or are due at another time by now.
        """
        heap = self._heaps[changed]
        while heap and self._due.get(heap[0][1]) != (heap[0][0], changed):
            heapq.heappop(heap)
        return heap[0][0] if heap else None
