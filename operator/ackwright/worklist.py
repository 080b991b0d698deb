"""Which pipelines are due for a reconcile, and when.

Events only add a pipeline's name, which makes the operator level-triggered.

Pipelines that have changed come before those that are only due for a routine reconcile, because a user may wait for the
change: a thousand routine reconciles do not delay an edit. Some workers are never busy with routine ones, which may
take long. And of each few turns one is for those that have waited for long, so that changes do not starve them.
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
_PATIENCE_S = 10.0  # after this time a routine reconcile gets its turn although changes wait
_TURNS = 4  # of so many turns one is for routine reconciles that have waited for longer
_RESERVED = 4  # of so many workers one is reserved for changes


class _Due(NamedTuple):
    at: float
    changed: bool

    def sooner(self, other: _Due | None) -> _Due:
        return self if other is None else _Due(min(self.at, other.at), self.changed or other.changed)


class Postponed(Exception):
    """Raised by a handler that cannot do its work now, which is no failure: the name is handled again later."""

    def __init__(self, seconds: float | None = None) -> None:
        """seconds: until then; None: until Worklist.resume()."""
        super().__init__()
        self.seconds = seconds


class Worklist:
    """Names of pipelines with the time at which each is due.

    One worker at a time handles a name, and it is on the list once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, workers: int = 1) -> None:
        """workers: how many tasks call work()."""
        self._clock = clock
        self._routine_max, self._routine_busy = workers - workers // _RESERVED, 0
        self._turns_of_changes = 0  # since the last turn of a routine reconcile
        self._due: dict[Key, _Due] = {}
        self._heaps: dict[bool, list[tuple[float, Key]]] = {True: [], False: []}  # by whether the pipeline has changed
        self._busy: dict[Key, _Due | None] = {}  # names that are being handled, and when each is due again
        self._postponed: dict[Key, _Due] = {}  # names that wait for resume(), and what they were due for
        self._failures: dict[Key, int] = {}
        self._last_end = clock()  # when a worker last became free, or the list was last idle
        self._paused = False
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()  # of the worker that waits for the next name: each change wakes it alone

    def pause(self) -> None:
        """Handles no further name until unpause(); names are still added."""
        self._paused = True

    def unpause(self) -> None:
        """Handles due names again."""
        self._paused = False
        self._last_end = self._clock()
        self._changed.set()

    def is_idle(self) -> bool:
        """Whether no name is being handled."""
        return not self._busy

    def __len__(self) -> int:
        """How many names are due now, postponed, or being handled; while paused: being handled."""
        if self._paused:
            return len(self._busy)
        now = self._clock()
        return len(self._busy) + len(self._postponed) + sum(due.at <= now for due in self._due.values())

    def age(self, *, changed: bool) -> float:
        """For how many seconds the name that has waited longest has been due; 0: none waits.

        changed: of the pipelines that have changed, or of those that are due for a routine reconcile.
        """
        if self._paused:
            return 0.0
        now = self._clock()
        return max(
            (now - due.at for due in tuple(self._due.values()) if due.changed is changed and due.at < now), default=0.0
        )

    def standstill(self) -> float:
        """For how many seconds names have been due without a worker becoming free; 0: none waits."""
        oldest = max(self.age(changed=True), self.age(changed=False))
        return min(oldest, self._clock() - self._last_end)

    def add(self, key: Key, delay: float = 0.0, *, changed: bool = True) -> None:
        """Makes the pipeline due in `delay` seconds, or earlier. changed: False for a routine reconcile."""
        self._add(key, _Due(self._clock() + delay, changed))

    def _add(self, key: Key, due: _Due) -> None:
        if key in self._busy:
            self._busy[key] = due.sooner(self._busy[key])
        elif (soonest := due.sooner(self._due.get(key))) != self._due.get(key):
            self._due[key] = soonest
            heap, entry = self._heaps[soonest.changed], (soonest.at, key)
            heapq.heappush(heap, entry)
            if heap[0] == entry:  # otherwise no worker waits for longer than until the first entry
                self._changed.set()

    def resume(self, key: Key) -> None:
        """Makes a postponed name due now, as what it was due for before."""
        if (due := self._postponed.pop(key, None)) is not None:
            self._add(key, _Due(self._clock(), due.changed))

    def forget(self, key: Key) -> None:
        """Removes a pipeline from the list."""
        self._due.pop(key, None)
        self._postponed.pop(key, None)
        self._failures.pop(key, None)

    async def work(self, handle: Callable[[Key], Awaitable[float | None]]) -> None:
        """Handles due names forever. `handle` returns the seconds until the next time; None: never.

        When it raises, the name is handled again after a back-off, which the next success resets; Postponed is neither.
        """
        while True:
            async with self._turn:
                key, due = await self._next()
            delay: float | None = None
            try:
                delay = await handle(key)
                self._failures.pop(key, None)
            except Postponed as e:
                self._postpone(key, due, e.seconds)
            except Exception:
                delay = self._backoff(key)
            self._last_end = self._clock()
            if not due.changed:
                if not self._may_take(changed=False):
                    self._changed.set()  # another worker may wait for this turn
                self._routine_busy -= 1
            added = self._busy.pop(key)
            if delay is not None:
                self.add(key, delay, changed=False)
            if added is not None:
                self._add(key, added)

    def _postpone(self, key: Key, due: _Due, seconds: float | None) -> None:
        if seconds is None:
            self._postponed[key] = due.sooner(self._postponed.get(key))
        else:
            again = _Due(self._clock() + seconds, due.changed)
            self._busy[key] = again.sooner(self._busy[key])

    def _backoff(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return float(min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0))  # noqa: S311 (jitter)

    async def _next(self) -> tuple[Key, _Due]:
        """The next due name, and what it is due for; waits for it."""
        while True:
            now = self._clock()
            if not self._paused and (due_name := self._pop(now)) is not None:
                return due_name
            self._changed.clear()
            heads = [
                at
                for changed in self._heaps
                if not self._paused and (at := self._head(changed)) is not None and self._may_take(changed)
            ]
            # Not asyncio.wait_for, which before Python 3.12 loses a cancellation that comes together with the event:
            # the operator would never stop (bpo-37658).
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(heads) - now if heads else None):
                    await self._changed.wait()

    def _pop(self, now: float) -> tuple[Key, _Due] | None:
        """Takes the name to be handled next from the list; None if none is due."""
        routine = self._head(changed=False)
        overdue = routine is not None and routine <= now - _PATIENCE_S
        routine_first = overdue and self._turns_of_changes >= _TURNS - 1
        for changed in (False, True) if routine_first else (True, False):
            at = self._head(changed)
            if at is not None and at <= now and self._may_take(changed):
                _, key = heapq.heappop(self._heaps[changed])
                self._busy[key] = None
                self._turns_of_changes = self._turns_of_changes + 1 if changed else 0
                self._routine_busy += not changed
                return key, self._due.pop(key)
        return None

    def _may_take(self, changed: bool) -> bool:
        return changed or self._routine_busy < self._routine_max

    def _head(self, changed: bool) -> float | None:
        """When the first entry of a heap is due.

        Drops entries of names that have been handled, or are due at another time by now.
        """
        heap = self._heaps[changed]
        while heap and self._due.get(heap[0][1]) != (heap[0][0], changed):
            heapq.heappop(heap)
        return heap[0][0] if heap else None
