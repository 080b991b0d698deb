"""Which pipelines are to be looked at, and when. Every trigger only adds a name here: that is what makes the operator level-triggered."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import time
from collections.abc import Awaitable, Callable

Key = tuple[str, str]  # namespace, name

_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0


class Worklist:
    """Names with the moment at which each is due. A name is handled by one worker at a time, and is on the list once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._busy: dict[Key, float | None] = {}  # being handled; due again at
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """How many are due now, or being handled."""
        now = self._clock()
        return len(self._busy) + sum(at <= now for at in self._due.values())

    def add(self, key: Key, delay: float = 0.0) -> None:
        """The pipeline is due in `delay` seconds; sooner, if it is on the list already and was due sooner."""
        at = self._clock() + delay
        if key in self._busy:
            known = self._busy[key]
            self._busy[key] = at if known is None else min(at, known)
        elif key not in self._due or at < self._due[key]:
            self._due[key] = at
            heapq.heappush(self._heap, (at, key))
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
                self.add(key, again)
            if added is not None:
                self.add(key, max(0.0, added - self._clock()))

    def _backoff(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return float(min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0))  # noqa: S311 (jitter)

    async def _next(self) -> Key:
        while True:
            now = self._clock()
            while self._heap and self._heap[0][0] <= now:
                at, key = heapq.heappop(self._heap)
                if self._due.get(key) == at:  # else an earlier entry has been handled
                    del self._due[key]
                    self._busy[key] = None
                    return key
            self._changed.clear()
            timeout = self._heap[0][0] - now if self._heap else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout)
