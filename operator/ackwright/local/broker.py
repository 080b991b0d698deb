"""One broker of an embedded cluster: a process that can be started, killed, stopped and suspended."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Protocol

from ackwright.errors import AckwrightError
from ackwright.local.broker_settings import Ports
from ackwright.local.wait import wait_for
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Reason

START_TIMEOUT = 90.0  # seconds; a start takes 8 to 10 s on two busy cores


class Process(Protocol):
    """The part of subprocess.Popen that a broker uses."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class Cluster(Protocol):
    """The part of an embedded cluster that a broker uses."""

    def start_process(self, node: int) -> Process:
        """Starts the process of a node."""

    def exit_cause(self, node: int) -> str:
        """Why the process of a node has ended, as far as its log and its ports show."""


class Broker:
    """One node. Every wait has a timeout and raises AckwrightError when it expires."""

    def __init__(self, node: int, cluster: Cluster, ports: Ports, process: Process | None = None) -> None:
        self.node = node
        self.port = ports.plain
        self._host = ports.host
        self._cluster = cluster
        self._process = process

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"broker {self.node} was never started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs or is suspended."""
        return self._process is not None and self._process.poll() is None

    def start(self, wait: bool = True) -> None:
        """Starts the process; with wait, returns when the broker answers and is a registered member of the cluster."""
        if self.alive:
            return
        self._process = self._cluster.start_process(self.node)
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self, timeout: float = START_TIMEOUT) -> None:
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0, "reconnect.backoff.max.ms": 200})

        def ready() -> bool:
            if not self.alive:
                raise AckwrightError(
                    Reason.UNEXPECTED, f"broker {self.node} has ended: {self._cluster.exit_cause(self.node)}"
                )
            return self.node in client.list_topics(timeout=2).brokers

        wait_for(ready, f"broker {self.node} at {self.address} answers", timeout)

    def kill(self) -> None:
        """Sends SIGKILL: the broker flushes nothing and hands over no leadership."""
        self._end(signal.SIGKILL, 10)

    def stop(self, timeout: float = 30) -> None:
        """Sends SIGTERM: the broker hands over leadership first. Kills it after timeout (seconds)."""
        self._end(signal.SIGTERM, timeout)

    def suspend(self) -> None:
        """Sends SIGSTOP: connections stay open but the broker answers nothing, as on a machine that hangs."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: int, timeout: float) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)  # a suspended process handles SIGTERM only after it resumes
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
