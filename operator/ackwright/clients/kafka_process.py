"""One client process, as the operator uses it: starts it, sends calls, takes answers, and notices its end."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from ackwright.clients.kafka_calls import Answer, Call, Close, Ready, Request

_SEND_S = 10  # for a message; a process that takes none for so long is killed
_NAMED = 3  # addresses in a message
_STOP_S = 5.0  # for a process to end by itself


class Ended(Exception):
    """The process ended before the answer; its text says how."""


@dataclass(frozen=True)
class _Pending:
    """A call that is under way."""

    answer: Future[Answer]
    namespace: str
    address: str


class KafkaProcess:
    """A client process. Safe for threads."""

    def __init__(self, name: str, on_end: Callable[[KafkaProcess], None]) -> None:
        """Starts the process. Raises OSError.

        on_end: is called when the process has ended without close(), before the calls under way fail.
        """
        self.name, self._on_end = name, on_end
        self.ended: str | None = None  # how; None: it runs
        self.has_started = False  # whether it takes calls
        self._numbers = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._users: dict[int, set[str]] = {}  # the namespaces that use each connection
        self._addresses: dict[int, str] = {}  # of each connection
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._closing = False
        self._killed_for: str | None = None
        self._socket, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            argv = [sys.executable, "-m", "ackwright.clients.kafka_worker", str(number)]
            # In a new session, so that Ctrl-C at the terminal reaches the operator only.
            self._program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=[number], start_new_session=True)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", _SEND_S, 0))
        self._pipe = Connection(os.dup(self._socket.fileno()))
        threading.Thread(target=self._read, name=f"kafka process {name}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._program.pid

    def submit(self, call: Call, namespace: str) -> Future[Answer]:
        """Sends the call of a namespace. The answer raises Ended if the process ends before it has answered."""
        return self._submit(call, namespace, call.cluster.bootstrap_servers)

    def answers(self, seconds: float) -> bool:
        """Whether the process answers at all within so many seconds."""
        with suppress(TimeoutError, Ended):
            self._submit(None, "", "").result(seconds)
            return True
        return False

    def _submit(self, call: Call | None, namespace: str, address: str) -> Future[Answer]:
        answer: Future[Answer] = Future()
        number = next(self._numbers)
        with self._lock:
            if self.ended is not None:
                answer.set_exception(Ended(self.ended))
                return answer
            self._pending[number] = _Pending(answer, namespace, address)
            if call is not None:
                self._users.setdefault(call.connection, set()).add(namespace)
                self._addresses[call.connection] = address
        self._send(Request(number, call))
        return answer

    def namespaces(self) -> dict[str, bool]:
        """The namespaces with connections in this process, each with whether a call of it is under way."""
        with self._lock:
            connected = {n: False for users in self._users.values() for n in users}
            return connected | {p.namespace: True for p in self._pending.values() if p.namespace}

    def activity(self) -> str:
        """With which clusters it communicates: those whose calls are under way, or else those that are connected."""
        with self._lock:
            called = {p.address for p in self._pending.values() if p.address}
            connected = set(self._addresses.values())
        if called:
            return f"during a request to {_listed(called)}"
        return f"while it was connected to {_listed(connected)}"

    def connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return len(self._users)

    def close_connections(self, connections: Collection[int]) -> None:
        """Closes connections that no call will use."""
        with self._lock:
            closed = tuple(c for c in connections if self._users.pop(c, None) is not None)
            for connection in closed:
                del self._addresses[connection]
        if closed:
            self._send(Close(closed))

    def keep(self, namespaces: Collection[str]) -> None:
        """Closes the connections that none of these namespaces uses."""
        with self._lock:
            for users in self._users.values():
                users.intersection_update(namespaces)
            unused = [c for c, users in self._users.items() if not users]
        self.close_connections(unused)

    def memory(self) -> int:
        """Bytes of its resident memory; 0: unknown."""
        with suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def kill(self, why: str) -> None:
        """Ends the process at once. why: completes "the process …"."""
        self._killed_for = self._killed_for or why
        self._program.kill()

    def close(self) -> None:
        """Ends the process; calls under way fail."""
        self._closing = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, message: Request | Close) -> None:
        with self._sending:
            try:
                self._pipe.send_bytes(pickle.dumps(message))  # send() takes longer
            except BlockingIOError:
                self.kill(f"took no request for {_SEND_S} s")
            except OSError:  # it has ended, which _read() notices
                return

    def _read(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._take(self._pipe.recv())
        self._finish()

    def _take(self, message: Answer | Ready) -> None:
        if isinstance(message, Ready):
            self.has_started = True
            return
        with self._lock:
            pending = self._pending.pop(message.number, None)
        if pending is not None:
            pending.answer.set_result(message)

    def _finish(self) -> None:
        """Takes the end of the process, or of what can be read from it."""
        try:
            code = self._program.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._program.kill()
            code = self._program.wait()
        ended = self._killed_for or (f"was ended by {_signal(-code)}" if code < 0 else f"ended with exit code {code}")
        if not self.has_started:
            ended = f"did not start and {ended}"
        with self._lock:
            self.ended = ended
        if not self._closing:
            self._on_end(self)
        with self._lock:
            pending = tuple(self._pending.values())
            self._pending.clear()
        for p in pending:
            p.answer.set_exception(Ended(ended))
        self._pipe.close()
        self._socket.close()


def _listed(addresses: Collection[str]) -> str:
    """The addresses, of many only some."""
    some = sorted(addresses)[:_NAMED]
    return " and ".join(some) + (f" and {len(addresses) - len(some)} more" if len(addresses) > len(some) else "")


def _signal(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
