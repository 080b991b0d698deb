"""The program of a client process: makes the operator's calls to Kafka (python -m ackwright.clients.kafka_worker).

Kafka's clients trust brokers: an invalid answer can end the process, and an endless one fill its memory. So the
operator makes no such call itself. The process ends when the operator does.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ackwright.clients.deadline import limited
from ackwright.clients.fence import clock
from ackwright.clients.kafka import Kafka
from ackwright.clients.kafka_calls import Answer, Call, Close, Ready, Request
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason

# Bytes of an answer for the operator, which needs ten times as much to read it: 65,000 partitions.
_ANSWER_MAX = 4 << 20
# Calls at the same time: more than the operator has workers, also with those that nobody waits for any more.
_CALLS = 256

_write_until: ContextVar[float] = ContextVar("write_until")  # by clock()


@contextmanager
def _writing() -> Iterator[float]:
    """The context of one write: the seconds that the operator's fence leaves.

    A process that was suspended since the operator has sent the call must not write: another operator may lead.
    """
    left = _write_until.get() - clock()
    if left <= 0:
        raise AckwrightError(Reason.BROKERS_UNREACHABLE, "the time in which the operator may write is over; try again")
    yield left


class Worker:
    """The calls that are under way, each in a thread of a pool, and the open connections."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._calls = ThreadPoolExecutor(_CALLS, thread_name_prefix="call")
        self._open: dict[int, Kafka] = {}
        self._uses: Counter[int] = Counter()  # calls under way, by connection
        self._unused: set[int] = set()  # connections to close with their last call
        self._lock = threading.Lock()  # of these three

    def serve(self) -> None:
        """Makes the calls that the operator sends, until it ends or closes the pipe."""
        self._send(Ready())
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                return
            match message:
                case Request(number, None):
                    self._send(Answer(number))
                case Request(number, Call() as call):
                    self._calls.submit(self._answer, number, call)
                case Close(connections):  # in a thread, because librdkafka waits for its own ones
                    threading.Thread(target=self._close, args=(connections,), daemon=True).start()

    def _answer(self, number: int, call: Call) -> None:
        answer = Answer(number)
        try:
            answer = Answer(number, self._result(call))
        except AckwrightError as e:
            answer = Answer(number, failure=(e.reason, e.cause, e.remedy))
        except Exception:
            answer = Answer(number, error=traceback.format_exc())
        self._send(answer)

    def _result(self, call: Call) -> Any:
        with ExitStack() as stack:
            kafka = stack.enter_context(self._connection(call))
            passed = clock() - call.sent
            if call.deadline is not None:
                left, total = call.deadline
                stack.enter_context(limited(left - passed, total))
            if call.write_s is not None:
                _write_until.set(call.sent + call.write_s)
            return getattr(kafka, call.method)(*call.arguments, **call.options)

    @contextmanager
    def _connection(self, call: Call) -> Iterator[Kafka]:
        """The connection of the call, while it is under way. Raises AckwrightError if it cannot be set up."""
        number = call.connection
        with self._lock:
            if number not in self._open:
                self._open[number] = Kafka(call.cluster, call.timeout, writing=_writing)
            kafka = self._open[number]
            self._uses[number] += 1
            self._unused.discard(number)
        try:
            yield kafka
        finally:
            with self._lock:
                self._uses[number] -= 1
            self._close(tuple(self._unused))

    def _close(self, connections: Collection[int]) -> None:
        """Closes connections, each when no call of it is under way any more."""
        closed = []
        with self._lock:
            for number in connections:
                if self._uses[number]:
                    self._unused.add(number)
                    continue
                self._unused.discard(number)
                del self._uses[number]
                if kafka := self._open.pop(number, None):
                    closed.append(kafka)
        for kafka in closed:
            kafka.close()

    def _send(self, message: Answer | Ready) -> None:
        data = pickle.dumps(message)
        if isinstance(message, Answer) and len(data) > _ANSWER_MAX:
            cause = f"the brokers' answer is larger than {_ANSWER_MAX >> 20} MiB"
            data = pickle.dumps(Answer(message.number, failure=(Reason.UNEXPECTED, cause, "")))
        with self._sending, suppress(OSError):  # the operator has ended
            self._pipe.send_bytes(data)


def _restrict() -> None:
    """Lets the system end this process before the operator, and without a file of its memory, which has passwords."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # not on Linux
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    _restrict()
    Worker(Connection(int(sys.argv[1]))).serve()
    os._exit(0)  # at once: calls under way have nobody to answer
