"""The program of a client process: makes the operator's calls to Kafka (python -m ackwright.clients.kafka_worker).

Kafka's clients trust brokers: an invalid answer can end the process, and an endless one fill its memory. So the
operator makes no such call itself. The process ends when the operator does.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import sys
import threading
import traceback
from collections.abc import Iterator
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
    """The calls that are under way, each in a thread, and the open connections."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._open: dict[int, Kafka] = {}
        self._opening = threading.Lock()

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
                case Request(number, call):
                    threading.Thread(target=self._answer, args=(number, call), daemon=True).start()
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
        kafka, passed = self._connection(call), clock() - call.sent
        with ExitStack() as stack:
            if call.deadline is not None:
                left, total = call.deadline
                stack.enter_context(limited(left - passed, total))
            if call.write_s is not None:
                _write_until.set(call.sent + call.write_s)
            return getattr(kafka, call.method)(*call.arguments, **call.options)

    def _connection(self, call: Call) -> Kafka:
        """The connection of the call. Raises AckwrightError if it cannot be set up."""
        with self._opening:
            if call.connection not in self._open:
                self._open[call.connection] = Kafka(call.cluster, call.timeout, writing=_writing)
            return self._open[call.connection]

    def _close(self, connections: tuple[int, ...]) -> None:
        """Closes connections, each with the last call that uses it."""
        for connection in connections:
            with self._opening:
                self._open.pop(connection, None)
        gc.collect()  # exceptions of failed calls refer to them in cycles

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
