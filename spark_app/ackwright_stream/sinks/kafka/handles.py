"""Producers for coming transactions, connected before they are needed, in moments in which nobody waits for the processor."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from confluent_kafka import Producer

MAX_WARM = 128  # handles per process; a handle holds a connection to each broker it has talked to
MAX_RETIRED = (
    16  # a driver that takes a thousand lanes has no lull, and a handle that is not destroyed yet has its threads
)
_LULL_S = 0.2  # since the last transaction: longer than from one task of a batch to the next, or to the end of a task beside it
_TASK_S = 0.5  # since a transaction's start, should its end not be told
_AT_LATEST_S = 1.0  # a process that is never quiet has its handles made ready all the same
_LONG_BEFORE_S = 0.25  # a handle that had been ready for so long could have waited for a lull


class Handle(Producer):  # type: ignore[misc]
    """A producer for one transaction. writable: topics that were found so when it was made ready, and are not looked at again."""

    writable: frozenset[str] = frozenset()


class Handles:
    """Handles by their transactional.id, connected but not initialised. One per process, thread-safe.

    Connections and metadata are what takes time (50 ms and more); InitProducerId takes 5 to 10. An uninitialised handle has no epoch,
    fences nobody and cannot be fenced: it may wait as long as it likes, in as many processes as like.

    Making one ready and destroying one costs as much of a processor as a transaction does, on both sides. With a trigger of 1 s and two
    processors that was a fifth of the time in which a batch's lanes were under way; so both wait for a lull. Where the lanes come back
    before there was one, handles are made ready at once.
    """

    def __init__(self, make: Callable[[str], Handle], warm: Callable[[Handle], None]) -> None:
        self._make = make
        self._warm = warm
        self._ready: OrderedDict[str, Future[tuple[Handle, float]]] = OrderedDict()
        self._due: OrderedDict[str, float] = OrderedDict()  # names, and since when they wait for a lull
        self._retired: list[Producer] = []
        self._patient = True
        self._lull: threading.Timer | None = None
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="handles")
        self._end = ThreadPoolExecutor(
            4, thread_name_prefix="ended handles"
        )  # never behind a warm-up, which a broker may hold up
        self._lock = threading.Lock()

    def take(self, name: str) -> Handle:
        """A handle that nobody else has, for exactly one transaction, which begins now."""
        with self._lock:
            ready = self._ready.pop(name, None)
            if self._due.pop(name, None) is not None or (ready is not None and not ready.done()):
                self._patient = False
            self._wait_for_a_lull(_TASK_S)
        if ready is None:
            return self._make(name)
        handle, since = ready.result()
        if time.monotonic() - since > _LONG_BEFORE_S:
            self._patient = True
        return handle

    def prepare(self, name: str) -> None:
        """Makes a handle ready in the background."""
        with self._lock:
            if name not in self._ready:
                self._due.setdefault(name, time.monotonic())
            while len(self._ready) + len(self._due) > MAX_WARM:
                (self._ready or self._due).popitem(last=False)
            self._wait_for_a_lull(_LULL_S if self._patient else 0)

    def drop(self, producer: Producer) -> None:
        """Destroys a handle now, in the background, for destroying waits for librdkafka's threads: what it still has to say would be
        said again and again, and one whose init was not finished would fence the next."""
        self._end.submit(lambda p: None, producer)

    def retire(self, producer: Producer) -> None:
        """Destroys a handle whose transaction is over, and which has nothing more to say, when there is a lull."""
        with self._lock:
            self._retired.append(producer)
            if len(self._retired) > MAX_RETIRED:
                self._destroy_retired()
            self._wait_for_a_lull(_LULL_S)

    def _wait_for_a_lull(self, seconds: float) -> None:
        """Lock held. What waits begins after so many seconds in which this is not called again."""
        if self._lull is not None:
            self._lull.cancel()
        oldest = next(iter(self._due.values()), None)
        if seconds <= 0 or (oldest is not None and oldest < time.monotonic() - _AT_LATEST_S):
            self._begin()
        elif self._due or self._retired:
            self._lull = threading.Timer(seconds, self._quiet)
            self._lull.daemon = True
            self._lull.start()

    def _quiet(self) -> None:
        with self._lock:
            self._begin()

    def _begin(self) -> None:
        for name in self._due:
            self._ready[name] = self._pool.submit(self._fresh, name)
        self._due.clear()
        self._destroy_retired()

    def _destroy_retired(self) -> None:
        for producer in self._retired:
            self.drop(producer)
        self._retired.clear()

    def _fresh(self, name: str) -> tuple[Handle, float]:
        handle = self._make(name)
        self._warm(handle)
        return handle, time.monotonic()
