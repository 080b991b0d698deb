"""Which pipelines are to be looked at, and when. Every trigger only adds a name here: that is what makes the operator level-triggered.

A person who has just changed something waits for it; a look that is merely due is nobody's loss if it comes a little later. So what has
changed goes first, as long as nothing else waits for too long: a thousand pipelines that are due at once do not hold up an edit.
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
_PATIENCE_S = 10.0  # for so long what is merely due gives way


class _Due(NamedTuple):
    at: float
    changed: bool

    def sooner(self, other: _Due | None) -> _Due:
        return self if other is None else _Due(min(self.at, other.at), self.changed or other.changed)


class Worklist:
    """Names with the moment at which each is due. A name is handled by one worker at a time, and is on the list once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[Key, _Due] = {}
        self._heaps: dict[bool, list[tuple[float, Key]]] = {
            True: [],
            False: [],
        }  # of what has changed, and of what is merely due
        self._busy: dict[Key, _Due | None] = {}  # being handled; due again
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """How many are due now, or being handled."""
        now = self._clock()
        return len(self._busy) + sum(due.at <= now for due in self._due.values())

    def add(self, key: Key, delay: float = 0.0, *, changed: bool = True) -> None:
        """The pipeline is due in `delay` seconds; sooner, if it is on the list already and was due sooner. changed: something about it has;
        else it is only time to look again."""
        self._add(key, _Due(self._clock() + delay, changed))

    def _add(self, key: Key, due: _Due) -> None:
        if key in self._busy:
            self._busy[key] = due.sooner(self._busy[key])
        elif (soonest := due.sooner(self._due.get(key))) != self._due.get(key):
            self._due[key] = soonest
            heapq.heappush(self._heaps[soonest.changed], (soonest.at, key))
            self._changed.set()

    def forget(self, key: Key) -> None:
        self._due.pop(key, None)
        self._failures.pop(key, None)

    async def work(self, handle: Callable[[Key], Awaitable[float | None]]) -> None:
        """Handles what is due, for ever. `handle` returns the seconds until the next look, None for never; when it raises, the pipeline is
        looked at again after a back-off, which is forgiven by the next look that succeeds."""
        while True:
            key = await self._next()
            try:
                again = await handle(key)
                self._failures.pop(key, None)
            except Exception:
                again = self._backoff(key)
            added = self._busy.pop(key)
            if again is not None:
                self.add(key, again, changed=False)
            if added is not None:
                self._add(key, added)

    def _backoff(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return float(min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0))  # noqa: S311 (jitter)

    async def _next(self) -> Key:
        while True:
            now = self._clock()
            if (key := self._take(now)) is not None:
                return key
            self._changed.clear()
            heads = [at for changed in self._heaps if (at := self._head(changed)) is not None]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(heads) - now if heads else None)

    def _take(self, now: float) -> Key | None:
        """What is to be handled next, None if nothing is due."""
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
        """When the first of them is due. Earlier entries of names that have been handled, or are due otherwise by now, are dropped."""
        heap = self._heaps[changed]
        while heap and self._due.get(heap[0][1]) != (heap[0][0], changed):
            heapq.heappop(heap)
        return heap[0][0] if heap else None
