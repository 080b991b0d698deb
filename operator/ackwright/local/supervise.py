"""Runs the job as a process of its own and follows its progress, for `ackwright run` and the demo."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

from ackwright.errors import AckwrightError
from ackwright.local import jars, spark_start
from ackwright.local.watch import Watch
from ackwright_stream.jobspec import JobSpec, Reason, to_json

_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy's 127.0.0.1 is another machine
_PROGRESS = "progress "
_FINAL = "final "
_FAILURE = "ackwright: "
_COMMAND = (sys.executable, "-m", "ackwright_stream")
_REMEDY = "install it, in a checkout: pip install '.[operator,spark]'"


def spark_settings(directory: Path) -> dict[str, str]:
    """What Spark needs to know of this machine. directory: where it may write. Raises AckwrightError if Spark is not installed here."""
    if importlib.util.find_spec("pyspark") is None:  # the extra `operator` leaves it out, and is enough for a cluster
        raise AckwrightError(
            Reason.UNEXPECTED, f"Spark runs on this machine for that, and pyspark is missing: {_REMEDY}"
        )
    return {
        # Not spark.jars: Spark would copy them for its executor, which is in the same process, and load them past the class archive.
        "spark.driver.extraClassPath": os.pathsep.join(
            sorted(str(jar) for jar in jars.directory("spark").glob("*.jar"))
        ),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }


JUDGE = (*_COMMAND, "--judge")  # a Job that only says whether schema and transform are sound


class Job:
    """One process that runs a jobspec. It leads a process group of its own, and ends with the watch at the latest.

    directory: gets job.json and job.log (all that the job and Spark say). command: what is run, --jobspec FILE is added.
    environment: more variables for it.
    """

    def __init__(
        self,
        job: JobSpec,
        directory: Path,
        watch: Watch,
        *,
        command: Sequence[str] = _COMMAND,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = directory / "job.log"
        self._address: str | None = None
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "spark").mkdir(exist_ok=True)
        file = directory / "job.json"
        file.write_text(to_json(job))
        with self.log.open("wb") as log:
            argv = [*command, "--jobspec", str(file)]
            self._process = watch.start(
                argv,
                env=surroundings({**os.environ, **(environment or {})}, directory),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._final: Mapping[str, Any] | None = None
        self._listener = threading.Thread(target=self._listen, name="job output", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def address(self) -> str | None:
        """Where it serves its progress, once it does."""
        return self._address

    def progress(self, timeout: float = 2.0) -> Mapping[str, Any] | None:
        """The job's own account of itself; None while it serves none, or not in time (seconds)."""
        if self._address is None:
            return None
        try:
            with _DIRECTLY.open(self._address, timeout=timeout) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError, HTTPException):  # of a job that ends while it answers
            return None

    def final(self) -> Mapping[str, Any] | None:
        """Its last account of itself, exact; None unless it has ended well."""
        self._listener.join(10)
        return self._final

    def poll(self) -> int | None:
        """The exit code, None while it runs. A job that was killed by signal n has the code 128 + n, as shells have it."""
        return _code(self._process.poll())

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end (seconds); raises subprocess.TimeoutExpired."""
        return _code(self._process.wait(timeout)) or 0

    def drain(self) -> None:
        """Asks it to end its batch, commit the positions and go."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the driver and all that it started, as when its machine goes."""
        self.signal_all(signal.SIGKILL)
        self._process.wait(30)

    def signal_all(self, number: int) -> None:
        """A signal to every process of the job's session: PySpark puts its workers into a process group of their own."""
        for pid in _session(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def failure(self) -> str | None:
        """The sentence that it ended with ("Reason: what happened"); None if there is none."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return None
        return next((line.removeprefix(_FAILURE) for line in reversed(lines) if line.startswith(_FAILURE)), None)

    def _listen(self) -> None:
        """Reads the job's standard output to its end, lest the job block on a full pipe."""
        for raw in self._process.stdout or ():
            line = raw.decode(errors="replace").strip()
            if line.startswith(_PROGRESS):
                self._address = line.removeprefix(_PROGRESS)
            elif line.startswith(_FINAL):
                self._final = json.loads(line.removeprefix(_FINAL))


def _session(leader: int) -> list[int]:
    """The processes of a session, from Linux's /proc: the sixth field of a process's stat, counted behind its name in brackets."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(stat.parent.name))
    return sorted(found)


def _code(returned: int | None) -> int | None:
    return 128 - returned if returned is not None and returned < 0 else returned


def surroundings(given: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The environment of a process that runs Spark. PYTHONPATH gets the working directory, where a user's own transform module is, for the
    driver and its workers; what is written on the side goes into `directory`, and away with it even if the process is killed."""
    path = os.pathsep.join(p for p in (os.getcwd(), given.get("PYTHONPATH", "")) if p)
    place = directory.resolve() / "tmp"
    place.mkdir(exist_ok=True)
    java = " ".join(o for o in (given.get("JDK_JAVA_OPTIONS", ""), spark_start.java_options()) if o)
    own = {
        "JDK_JAVA_OPTIONS": f'{java} "-Djava.io.tmpdir={place}"',
        "TMPDIR": str(place),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
    }
    return {**given, **own}
