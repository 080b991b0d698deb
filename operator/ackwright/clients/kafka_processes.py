"""The client processes of an operator: which one makes a call, and what becomes of the calls when one ends."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from ackwright.clients.fence import clock
from ackwright.clients.kafka_calls import Answer, Call
from ackwright.clients.kafka_process import Ended, KafkaProcess
from ackwright.clients.suspects import SHARED, Suspects
from ackwright.errors import AckwrightError
from ackwright.wording import named
from ackwright_stream.jobspec import Reason

log = logging.getLogger("ackwright")

# Bytes of resident memory that a process may have: without connections, and for each. Measured: 34 MiB, and 0.35 MiB
# for a connection with three addresses.
_MEMORY, _MEMORY_OF_CONNECTION = 128 << 20, 1 << 20
_CHECK_EVERY_S = 0.25  # how often memory is read and closed connections are passed on
_ATTEMPTS = 3  # of a call that only reads
_MARGIN_S = 12.0  # beyond the time of a call: Kafka's own margins, and the start of a process
_ALIVE_S = 10.0  # for the answer of a process whose call is late
_RESTART_S = 1.0  # between two starts of a process of the same name


class ProcessFailure(AckwrightError):
    """A failure that tells nothing about the cluster of the call, which other namespaces may use, too."""

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(Reason.BROKERS_UNREACHABLE, cause, remedy)


class NoAnswer(ProcessFailure):
    """A call has no answer: it may have taken effect or not."""


class KafkaProcesses:
    """The client processes, each started with its first call. Safe for threads."""

    def __init__(
        self,
        suspects: Suspects | None = None,
        *,
        on_end: Callable[[], None] = lambda: None,
        memory: int = _MEMORY,
    ) -> None:
        """on_end: is called for each process that ends by itself. memory: bytes, of a process without connections."""
        self._suspects, self._count_end, self._memory = suspects or Suspects(), on_end, memory
        self._running: dict[str, KafkaProcess] = {}  # by name
        self._started: dict[str, float] = {}  # when each name was started
        self._unused: deque[int] = deque()  # connections to close
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watching: threading.Thread | None = None

    def call(self, namespace: str, call: Call, seconds: float) -> Answer:
        """The answer of a call that takes so many seconds.

        Raises NoAnswer if the process ends or does not answer, and ProcessFailure if the namespace may make no call.
        """
        address, until = call.cluster.bootstrap_servers, clock() + seconds
        # Another namespace may have ended the process, so a call that only reads is repeated in another one.
        attempts = _ATTEMPTS if call.write_s is None else 1
        while True:
            process = self._process(namespace)
            attempts -= 1
            try:
                return process.submit(call, namespace).result(seconds + _MARGIN_S)
            except TimeoutError as e:
                if not process.answers(_ALIVE_S):
                    process.kill("stopped answering")
                raise NoAnswer(f"{address} does not answer", "check that the brokers are up") from e
            except Ended as e:
                if not attempts or clock() > until:
                    what = f"the process of Kafka's clients {e} during a request to {address}"
                    raise NoAnswer(what, "check that the address is that of Kafka brokers") from e

    def release(self, connection: int) -> None:
        """Closes a connection that no call will use. May be called by the garbage collector, so it takes no lock."""
        self._unused.append(connection)

    def pids(self) -> tuple[int, ...]:
        """The ids of the processes that run."""
        with self._lock:
            return tuple(p.pid for p in self._running.values())

    def close(self) -> None:
        """Ends all processes; calls under way fail."""
        self._closed.set()
        with self._lock:
            running = tuple(self._running.values())
            self._running.clear()
        for process in running:
            process.close()

    def _process(self, namespace: str) -> KafkaProcess:
        """The process of a namespace. Raises ProcessFailure if it may make no call, or if none can be started."""
        while True:
            with self._lock:
                if refusal := self._suspects.refusal(namespace):
                    raise ProcessFailure(refusal.cause, refusal.remedy)
                name = self._suspects.process(namespace)
                if name in self._running:
                    return self._running[name]
                pause = self._started.get(name, float("-inf")) + _RESTART_S - time.monotonic()
                if pause <= 0:
                    return self._start(name)
            self._closed.wait(pause)

    def _start(self, name: str) -> KafkaProcess:
        if self._closed.is_set():
            raise ProcessFailure("the operator stops")
        try:
            process = self._running[name] = KafkaProcess(name, self._take_end)
        except OSError as e:
            cause = f"no process of Kafka's clients can be started: {e}"
            raise ProcessFailure(cause, "give the operator more memory") from e
        now = time.monotonic()
        self._started = {n: t for n, t in self._started.items() if now - t < _RESTART_S} | {name: now}
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, name="kafka processes", daemon=True)
            self._watching.start()
        return process

    def _take_end(self, process: KafkaProcess) -> None:
        """Takes that a process has ended by itself, before the calls under way fail."""
        namespaces = process.namespaces()
        what = f"the process of Kafka's clients {process.ended} {process.activity()}"
        self._count_end()
        with self._lock:
            if self._running.get(process.name) is process:
                del self._running[process.name]
            if not process.has_started:
                log.error("%s", what)
                return
            self._suspects.ended(process.name, namespaces, what)
            remaining = [
                (other, {n for n in other.namespaces() if self._suspects.process(n) == name})
                for name, other in self._running.items()
            ]
        log.warning("%s; it had connections of %s", what, named("namespace", sorted(namespaces)))
        for other, those in remaining:  # brokers of the others could end it
            other.keep(those)

    def _watch(self) -> None:
        """Ends processes with too much memory, and those without connections; closes unused connections."""
        while not self._closed.wait(_CHECK_EVERY_S):
            unused = [self._unused.popleft() for _ in range(len(self._unused))]
            with self._lock:
                running = tuple(self._running.values())
            for process in running:
                if unused:
                    process.close_connections(unused)
                limit = self._memory + process.connections() * _MEMORY_OF_CONNECTION
                if process.has_started and process.memory() > limit:
                    process.kill(f"was ended because it had more than {limit >> 20} MiB of memory")
            self._close_idle()

    def _close_idle(self) -> None:
        """Ends the processes that no namespace uses any more, except the first one."""
        with self._lock:
            idle = [p for name, p in self._running.items() if name != SHARED[0] and not p.namespaces()]
            for process in idle:
                del self._running[process.name]
        for process in idle:
            process.close()
