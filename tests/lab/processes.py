"""Commands, and daemons that outlive whoever started them.

A daemon joins a control group of the lab before it becomes its program, and so do all that it starts, containers included. What belongs
to the lab is therefore a question to the kernel, and the answer is right even after a start that was killed half-way.
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

STATE = Path("/var/lib/ackwright-lab")  # one lab per machine, wherever the caches are: its addresses are fixed too
DAEMONS = STATE / "daemons"

# sh tells its process id, joins the control group, and then becomes the program.
_ANNOUNCE = 'echo $$ > "$1" && echo $$ > "$2" && shift 2 && exec "$@"'


class LabError(Exception):
    """The lab cannot do what was asked. The message names the cause and the remedy."""


class Ended(LabError):
    """A daemon has ended that should run: to wait any longer is in vain."""


def run(*argv: str | Path, timeout: float = 60, text: str | None = None) -> str:
    """Runs a command to its end and returns what it printed. text: its standard input. Raises LabError if it fails."""
    command = [str(a) for a in argv]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, input=text)
    except FileNotFoundError:
        raise LabError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(command)}: no end after {timeout:g} s") from None
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise LabError(f"{' '.join(command)}: {' | '.join(words[-3:])}")
    return done.stdout


def wait_until(
    condition: Callable[[], bool], what: str, timeout: float, because: Callable[[], str] = lambda: ""
) -> None:
    """Polls until the condition holds; a LabError inside it, other than Ended, counts as "not yet".
    Raises LabError after timeout (seconds)."""
    deadline = time.monotonic() + timeout
    while True:
        last = ""
        try:
            if condition():
                return
        except Ended:
            raise
        except LabError as e:
            last = str(e)
        if time.monotonic() > deadline:
            raise LabError(
                ": ".join(part for part in (f"waited {timeout:g} s in vain until {what}", last, because()) if part)
            )
        time.sleep(0.1)


@dataclass(frozen=True)
class Daemon:
    """A program that was started under this name, here or by an earlier process. To its callers it looks like a subprocess.Popen."""

    name: str

    @property
    def pid(self) -> int:
        """Raises LabError if it was never started."""
        with contextlib.suppress(OSError, ValueError):
            return int((DAEMONS / f"{self.name}.pid").read_text())
        raise LabError(f"{self.name} was never started: run `make cluster-down`, then `make cluster`")

    @property
    def log(self) -> Path:
        return STATE / "log" / f"{self.name}.log"

    def alive(self) -> bool:
        """Whether it runs. A number that another process got since does not count: that one is not in the lab's control group."""
        try:
            return cgroups.holds(self.pid)
        except LabError:
            return False

    def check(self) -> None:
        """Raises Ended, with the cause as far as the log tells, if it does not run."""
        if not self.alive():
            raise Ended(f"{self.name} has ended: {self.last_words()}")

    def poll(self) -> int | None:
        """None while it runs; then 0, as nobody is left to know the real exit code."""
        return None if self.alive() else 0

    def send_signal(self, number: int) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Returns once it has ended. Raises subprocess.TimeoutExpired after timeout (seconds)."""
        deadline = time.monotonic() + (timeout or 1e9)
        while self.alive():
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.name, timeout or 0)
            time.sleep(0.02)
        return 0

    def last_words(self) -> str:
        """The last telling line of its log."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").splitlines()
            telling = [line for line in lines if line.startswith(("E", "F")) or "rror" in line or "fatal" in line]
            return (telling or lines or ["it left no log"])[-1]
        return "it left no log"

    def start(
        self, argv: Sequence[str | Path], enter: Sequence[str] = (), log: Path | None = None, cwd: Path | None = None
    ) -> None:
        """Starts the program if it does not run, detached, as leader of its own session. enter: a command in front of it, such as nsenter;
        the process id and the log (its own file by default) are taken before, so both work whatever the program sees of the machine."""
        if self.alive():
            return
        pid_file = DAEMONS / f"{self.name}.pid"
        pid_file.unlink(missing_ok=True)
        for directory in (DAEMONS, self.log.parent):
            directory.mkdir(parents=True, exist_ok=True)
        announce = ["sh", "-c", _ANNOUNCE, "sh", str(cgroups.daemons() / "cgroup.procs"), str(pid_file)]
        with (log or self.log).open("ab") as out:
            subprocess.run(
                ["setsid", "--fork", *announce, *enter, *(str(a) for a in argv)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=cwd or STATE, check=True,
            )  # fmt: skip
        wait_until(
            lambda: pid_file.exists() and pid_file.read_text().endswith("\n"),
            f"{self.name} has started",
            10,
            self.last_words,
        )


def kill_all() -> None:
    """Kills every process of the lab, containers included, and waits until they are gone."""

    def gone() -> bool:
        found = cgroups.members()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_until(gone, "the lab's processes have ended", 30, lambda: f"left: {cgroups.members()}")
