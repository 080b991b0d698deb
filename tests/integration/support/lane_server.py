"""Starts lane processes by fork, from a process that has imported everything: 20 ms each instead of a second.

The server imports modules and creates no client, so a child begins like a new process. Its children stay in its process
group: the watch that started it ends all of them, even if this process is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ackwright.local.watch import Watch
from integration.support import lane_process
from waiting import ANSWER, wait_until

_REAP_S = 0.02  # between two checks for children that have ended


class ForkedProcess:
    """A child of the server, with the part of subprocess.Popen's interface that LaneProcess uses."""

    def __init__(self, pid: int, output: Path, status: Path) -> None:
        self.pid, self._output, self._status = pid, output, status
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        if self.returncode is None:
            with contextlib.suppress(FileNotFoundError):
                self.returncode = os.waitstatus_to_exitcode(int(self._status.read_text()))
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or 1e9)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("lane process", timeout or 0)
            time.sleep(_REAP_S / 2)
        return code

    def communicate(self, *, timeout: float | None = None) -> tuple[bytes, None]:
        self.wait(timeout)
        return self._output.read_bytes(), None


class LaneServer:
    """The running server. It ends with the watch."""

    def __init__(self, watch: Watch, directory: Path) -> None:
        self._directory, self._count = directory, 0
        name = f"ackwright-{uuid.uuid4().hex}"
        with (directory / "server.log").open("wb") as log:
            self._process = watch.start(
                [sys.executable, __file__, name], stdout=log, stderr=log, env=lane_process.environment()
            )
        self._connection = socket.socket(socket.AF_UNIX)
        wait_until(lambda: self._connected(name), f"the server of lane processes answers ({directory}/server.log)")
        self._connection.settimeout(60)
        self._answers: IO[str] = self._connection.makefile("r")

    def _connected(self, name: str) -> bool:
        assert self._process.poll() is None, (self._directory / "server.log").read_text()
        with contextlib.suppress(ConnectionRefusedError):
            self._connection.connect(f"\0{name}")
            return True
        return False

    def start(self, argv: Sequence[str], environment: Mapping[str, str]) -> ForkedProcess:
        """Starts a lane process with these arguments and further variables of the environment."""
        self._count += 1
        files = {name: str(self._directory / f"process-{self._count}.{name}") for name in ("out", "log", "status")}
        request = {"argv": list(argv), "environment": dict(environment), **files}
        self._connection.sendall(f"{json.dumps(request)}\n".encode())
        return ForkedProcess(int(self._answers.readline()), Path(files["out"]), Path(files["status"]))

    def close(self) -> None:
        """Ends the server. Its children run until the watch is closed."""
        self._answers.close()
        self._connection.close()
        self._process.wait(ANSWER)


# ---------------------------------------------------------------- the server


def serve(name: str) -> None:
    """Forks a child for each request, until the connection ends."""
    import random

    import pyarrow.compute  # noqa: F401

    from ackwright_stream import ownership  # noqa: F401
    from ackwright_stream.delivery import at_least_once, at_most_once, exactly_once  # noqa: F401
    from ackwright_stream.sinks import registry  # noqa: F401
    from ackwright_stream.sinks.kafka import sink  # noqa: F401
    from integration.support import source_rows  # noqa: F401

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        connection, _ = listener.accept()
    requests = connection.makefile("r")
    status_files: dict[int, str] = {}
    while True:
        readable = select.select([connection], [], [], _REAP_S)[0]
        _reap(status_files)
        if not readable:
            continue
        line = requests.readline()
        if not line:
            return
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            requests.close()  # both have the descriptor, without whose end the tests would not notice the server's
            connection.close()
            random.seed()
            _run(request)
        status_files[pid] = request["status"]
        connection.sendall(f"{pid}\n".encode())


def _reap(status_files: dict[int, str]) -> None:
    while status_files:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        file = Path(status_files.pop(pid))
        fresh = file.with_suffix(".new")
        fresh.write_text(str(status))
        fresh.rename(file)


def _run(request: Mapping[str, Any]) -> None:
    """Becomes the lane process; never returns."""
    code = 1
    try:
        for number, name in ((1, "out"), (2, "log")):
            file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
            os.close(file)
        os.environ.update(request["environment"])
        code = lane_process.main(request["argv"])
        sys.stdout.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
