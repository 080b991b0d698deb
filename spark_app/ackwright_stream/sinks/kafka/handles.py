"""Producers for coming transactions, connected before they are needed.

That happens while no transaction competes for the processor.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from confluent_kafka import Producer

# Names per process for which a handle is prepared. A handle has several threads, and a connection to each leader of the
# sink's partitions, in every worker. A worker serves one slot at a time, and mostly the slots of its executor's
# processors, because Spark reads a partition where it read it before. It comes back to more slots too seldom to keep a
# handle for each.
MAX_WARM = 8
# A driver that takes a thousand lanes has no lull, and a handle has threads until it is destroyed.
MAX_RETIRED = 16
# After the last transaction; longer than the time between two tasks of a batch, or until a parallel task ends.
_LULL_S = 0.2
_TASK_S = 0.5  # after the start of a transaction, in case its end is not reported
_AT_LATEST_S = 1.0  # a process that is never quiet prepares its handles nevertheless
_READY_WITHIN_S = 1.0  # longer than a warm-up takes, many times
_LONG_BEFORE_S = 0.25  # a handle that was ready for so long could have waited for a lull
log = logging.getLogger(__name__)


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
        self._recent: OrderedDict[str, None] = OrderedDict()  # names of the last prepare(), the latest last
        self._ready: dict[str, Future[tuple[Handle, float]]] = {}
        self._due: dict[str, float] = {}  # names, and when they began to wait for a lull
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
            if not ready.cancel():
                ready.add_done_callback(self._drop_late)
            return self._make(name)
        except Exception as e:  # such as credentials that were being replaced at that moment
            log.info("a producer could not be prepared: %s", e)
            return self._make(name)
        if time.monotonic() - since > _LONG_BEFORE_S:
            self._waits_for_lulls = True
        return handle

    def prepare(self, name: str) -> None:
        """Prepares a handle in the background, if this process comes back to the name soon.

        With more names than MAX_WARM, that is one of the latest MAX_WARM.
        """
        evicted: list[Future[tuple[Handle, float]]] = []
        with self._lock:
            comes_back = name in self._recent or len(self._recent) < MAX_WARM
            self._recent[name] = None
            self._recent.move_to_end(name)
            if len(self._recent) > MAX_WARM:
                oldest, _ = self._recent.popitem(last=False)
                self._due.pop(oldest, None)
                if oldest in self._ready:
                    evicted.append(self._ready.pop(oldest))
            if comes_back and name not in self._ready:
                self._due.setdefault(name, time.monotonic())
            self._wait_for_a_lull(_LULL_S if self._waits_for_lulls else 0)
        if evicted:
            self._end.submit(_discard, evicted)

    def drop(self, producer: Producer) -> None:
        """Destroys a handle now, in the background, because that waits for librdkafka's threads.

        It must not wait for a lull: the handle would repeat its requests, and an unfinished init would fence the next
        handle.
        """
        self.drop_all([producer])

    def drop_all(self, producers: list[Producer]) -> None:
        """As drop(), and empties the list. Callers without another reference do not wait for librdkafka's threads."""
        self._end.submit(producers.clear)

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
        # The caller, which holds the lock, destroys no handle.
        retired, self._retired = self._retired, []
        self.drop_all(retired)

    def _drop_late(self, late: Future[tuple[Handle, float]]) -> None:
        if late.exception() is None:
            self.drop(late.result()[0])

    def _fresh(self, name: str) -> tuple[Handle, float]:
        handle = self._make(name)
        self._warm(handle)
        return handle, time.monotonic()


def _discard(prepared: list[Future[tuple[Handle, float]]]) -> None:
    """Empties the list. One that is being prepared ends when that is done, in the thread that prepares it."""
    for future in prepared:
        future.cancel()
    prepared.clear()
