"""Producers for coming transactions, connected before they are needed.

That happens while no transaction competes for the processor.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from confluent_kafka import Producer

MAX_WARM = 128  # handles per process; a handle holds a connection to each broker it has talked to
# A driver that takes a thousand lanes has no lull, and a handle has threads until it is destroyed.
MAX_RETIRED = 16
# After the last transaction; longer than the time between two tasks of a batch, or until a parallel task ends.
_LULL_S = 0.2
_TASK_S = 0.5  # after the start of a transaction, in case its end is not reported
_AT_LATEST_S = 1.0  # a process that is never quiet prepares its handles nevertheless
_READY_WITHIN_S = 1.0  # longer than a warm-up takes, many times
_LONG_BEFORE_S = 0.25  # a handle that was ready for so long could have waited for a lull


class Handle(Producer):  # type: ignore[misc]
    """A producer for one transaction."""

    writable: frozenset[str] = frozenset()  # topics that were checked when it was prepared, and are not checked again


class Handles:
    """Handles by their transactional.id, connected but not initialised. One per process, thread-safe.

    Connections and metadata take 50 ms and more; InitProducerId takes 5 to 10. An uninitialised handle has no epoch,
    fences nobody and cannot be fenced: it may wait for any time, in any number of processes.

    Preparing and destroying a handle costs as much processor time as a transaction, on both sides: a fifth of the time
    of a batch with a trigger of 1 s and two processors. So both wait for a lull. If the lanes come back before there
    was a lull, handles are prepared at once.
    """

    def __init__(self, make: Callable[[str], Handle], warm: Callable[[Handle], None]) -> None:
        self._make = make
        self._warm = warm
        self._ready: OrderedDict[str, Future[tuple[Handle, float]]] = OrderedDict()
        self._due: OrderedDict[str, float] = OrderedDict()  # names, and when they began to wait for a lull
        self._retired: list[Producer] = []
        self._waits_for_lulls = True
        self._lull: threading.Timer | None = None
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="handles")
        # Separate threads, so that the end of a handle never waits for a warm-up, which a broker may hold up.
        self._end = ThreadPoolExecutor(4, thread_name_prefix="ended handles")
        self._lock = threading.Lock()

    def take(self, name: str) -> Handle:
        """A handle of the caller's own, for exactly one transaction, which begins now."""
        with self._lock:
            ready = self._ready.pop(name, None)
            if self._due.pop(name, None) is not None or (ready is not None and not ready.done()):
                self._waits_for_lulls = False
            self._wait_for_a_lull(_TASK_S)
        if ready is None:
            return self._make(name)
        try:
            handle, since = ready.result(_READY_WITHIN_S)
        except TimeoutError:  # a broker holds up the warm-up; a new handle connects to the others
            ready.add_done_callback(lambda late: self.drop(late.result()[0]))
            return self._make(name)
        if time.monotonic() - since > _LONG_BEFORE_S:
            self._waits_for_lulls = True
        return handle

    def prepare(self, name: str) -> None:
        """Prepares a handle in the background."""
        with self._lock:
            if name not in self._ready:
                self._due.setdefault(name, time.monotonic())
            while len(self._ready) + len(self._due) > MAX_WARM:
                (self._ready or self._due).popitem(last=False)
            self._wait_for_a_lull(_LULL_S if self._waits_for_lulls else 0)

    def drop(self, producer: Producer) -> None:
        """Destroys a handle now, in the background, because that waits for librdkafka's threads.

        It must not wait for a lull: the handle would repeat its requests, and an unfinished init would fence the next
        handle.
        """
        self._end.submit(lambda p: None, producer)

    def retire(self, producer: Producer) -> None:
        """Destroys a handle at the next lull. Its transaction has ended, and it has no request left to send."""
        with self._lock:
            self._retired.append(producer)
            if len(self._retired) > MAX_RETIRED:
                self._destroy_retired()
            self._wait_for_a_lull(_LULL_S)

    def _wait_for_a_lull(self, seconds: float) -> None:
        """Starts the waiting work after so many seconds without another call. The caller holds the lock."""
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
        # The pool's thread has the only references, so that the caller, which holds the lock, destroys no handle.
        retired, self._retired = self._retired, []
        self._end.submit(retired.clear)

    def _fresh(self, name: str) -> tuple[Handle, float]:
        handle = self._make(name)
        self._warm(handle)
        return handle, time.monotonic()
