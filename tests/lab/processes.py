"""Commands, and daemons that outlive the process that started them.

A daemon joins a control group of the lab before it executes its program, so all its descendants, including containers,
belong to the group. The kernel therefore knows every process of the lab, even after a start that was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import cgroups

STATE = Path(
    "/var/lib/ackwright-lab"
)  # fixed, because a machine can have only one lab: its addresses are fixed as well
DAEMONS = STATE / "daemons"

# sh joins the control group ($1), writes its process id to the file $2, and then executes the program.
_JOIN_AND_EXECUTE = 'echo $$ > "$1" && echo $$ > "$2" && shift 2 && exec "$@"'


class LabError(Exception):
    """A failure of the lab. The message names the cause and the remedy."""


class DaemonEnded(LabError):
    """A daemon that should run has ended, so that waiting longer is pointless."""


def run(*argv: str | Path, timeout: float = 60, text: str | None = None) -> str:
    """The output of a command. text: its standard input. timeout: seconds. Raises LabError if it fails."""
    command = [str(a) for a in argv]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, input=text)
    except FileNotFoundError:
        raise LabError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(command)}: timed out after {timeout:g} s") from None
    if completed.returncode:
        output = completed.stderr.strip() or completed.stdout.strip() or f"exit code {completed.returncode}"
        raise LabError(f"{' '.join(command)}: {' | '.join(output.splitlines()[-3:])}")
    return completed.stdout


def wait_until(condition: Callable[[], bool], what: str, timeout: float, cause: Callable[[], str] = lambda: "") -> None:
    """Polls until the condition holds. Raises LabError after timeout (seconds).

    A LabError of the condition counts as "not yet", except for DaemonEnded, which ends the wait.
    what: the condition as a sentence; cause: a possible cause of the timeout; both are for the message.
    """
    deadline = time.monotonic() + timeout
    while True:
        last = ""
        try:
            if condition():
                return
        except DaemonEnded:
            raise
        except LabError as e:
            last = str(e)
        if time.monotonic() > deadline:
            raise LabError(
                ": ".join(
                    part for part in (f"timed out after {timeout:g} s, waiting until {what}", last, cause()) if part
                )
            )
        time.sleep(0.1)


@dataclass(frozen=True)
class Daemon:
    """A program that this or an earlier process has started under a name, with the interface of subprocess.Popen."""

    name: str

    @property
    def pid(self) -> int:
        """The process id. Raises LabError if the daemon was never started."""
        with contextlib.suppress(OSError, ValueError):
            return int((DAEMONS / f"{self.name}.pid").read_text())
        raise LabError(f"{self.name} was never started: run `make cluster-down`, then `make cluster`")

    @property
    def log(self) -> Path:
        return STATE / "log" / f"{self.name}.log"

    def alive(self) -> bool:
        """Whether the daemon runs. A process outside the lab's control group has reused the id and does not count."""
        try:
            return cgroups.holds(self.pid)
        except LabError:
            return False

    def check(self) -> None:
        """Raises DaemonEnded, with the last error in its log, if the daemon does not run."""
        if not self.alive():
            raise DaemonEnded(f"{self.name} has ended: {self.exit_cause()}")

    def poll(self) -> int | None:
        """None while the daemon runs; then 0, because the real exit code is unknown."""
        return None if self.alive() else 0

    def send_signal(self, number: int) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the daemon has ended. Raises subprocess.TimeoutExpired after timeout (seconds)."""
        deadline = time.monotonic() + (timeout or 1e9)
        while self.alive():
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.name, timeout or 0)
            time.sleep(0.02)
        return 0

    def exit_cause(self) -> str:
        """The last error in the daemon's log, or its last line."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").splitlines()
            errors = [line for line in lines if line.startswith(("E", "F")) or "rror" in line or "fatal" in line]
            return (errors or lines or ["its log is empty"])[-1]
        return "it has no log"

    def start(
        self, argv: Sequence[str | Path], enter: Sequence[str] = (), log: Path | None = None, cwd: Path | None = None
    ) -> None:
        """Starts the program, unless it runs, as the leader of a new session.

        enter: a command prefix such as nsenter. The log file and the file of the process id are opened before it, so
        they need not be visible to the program. log: default: the daemon's own file.
        """
        if self.alive():
            return
        pid_file = DAEMONS / f"{self.name}.pid"
        pid_file.unlink(missing_ok=True)
        for directory in (DAEMONS, self.log.parent):
            directory.mkdir(parents=True, exist_ok=True)
        join = ["sh", "-c", _JOIN_AND_EXECUTE, "sh", str(cgroups.daemons() / "cgroup.procs"), str(pid_file)]
        with (log or self.log).open("ab") as out:
            subprocess.run(
                ["setsid", "--fork", *join, *enter, *(str(a) for a in argv)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=cwd or STATE, check=True,
            )  # fmt: skip
        wait_until(
            lambda: pid_file.exists() and pid_file.read_text().endswith("\n"),
            f"{self.name} has started",
            10,
            self.exit_cause,
        )


def kill_all() -> None:
    """Kills all processes of the lab, including containers, and waits until they have ended."""

    def all_ended() -> bool:
        members = cgroups.members()
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not members

    wait_until(all_ended, "the lab's processes have ended", 30, lambda: f"still running: {cgroups.members()}")
