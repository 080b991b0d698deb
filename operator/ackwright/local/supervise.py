"""Runs the job as a process and follows its progress, for `ackwright run` and the demo."""

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

from ackwright.errors import AckwrightError
from ackwright.local import jars, spark_start
from ackwright.local.watch import Watch
from ackwright_stream.jobspec import JobSpec, Reason, StateSettings, to_json
from ackwright_stream.reports import Ending, Failure, ProgressReport

_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # to a proxy, 127.0.0.1 is itself
# Beginnings of lines on the job's stdout.
_PROGRESS = "progress "
_FINAL = "final "
_COMMAND = (sys.executable, "-m", "ackwright_stream")
_INSTALL = "install it, in a checkout: pip install '.[operator,spark]'"

# Commands of a Job that only checks: the schema and the transform; and also whether the sink takes the output.
CHECK_TRANSFORM = (*_COMMAND, "--check-transform")
CHECK_SINK = (*_COMMAND, "--check-sink")


def spark_settings(directory: Path) -> dict[str, str]:
    """Spark settings for this machine. directory: where Spark may write.

    Raises AckwrightError if Spark is not installed here.
    """
    if importlib.util.find_spec("pyspark") is None:  # the extra `operator` leaves it out, and suffices for a cluster
        raise AckwrightError(
            Reason.UNEXPECTED, f"this command runs Spark on this machine, and pyspark is missing: {_INSTALL}"
        )
    return {
        # Not spark.jars: Spark would copy them for its executor, which is in the same process, and load them past the
        # class archive.
        "spark.driver.extraClassPath": os.pathsep.join(
            sorted(str(jar) for jar in jars.directory("spark").glob("*.jar"))
        ),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "false",  # its directory is one of the cluster
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.hadoop.hadoop.tmp.dir": str(directory / "hadoop"),  # S3A buffers there what it sends
    }


class Job:
    """A process that runs a jobspec. It leads its own process group, and ends with the watch at the latest."""

    def __init__(
        self,
        job: JobSpec,
        directory: Path,  # gets job.json, job.log (all output of the job and Spark) and ending.json
        watch: Watch,
        *,
        command: Sequence[str] = _COMMAND,  # is run with --jobspec FILE and --ending FILE
        environment: Mapping[str, str] | None = None,  # further variables
    ) -> None:
        self.log = directory / "job.log"
        self._ending = directory / "ending.json"
        self._address: str | None = None
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "spark").mkdir(exist_ok=True)
        self._ending.unlink(missing_ok=True)  # of an earlier job in this directory
        self.log.unlink(missing_ok=True)
        file = directory / "job.json"
        file.write_text(to_json(job))
        variables = {**os.environ, **s3a_classes(job.state), **(environment or {})}
        with self.log.open("ab") as log:  # appended to, because _listen() writes to it as well
            argv = [*command, "--jobspec", str(file), "--ending", str(self._ending)]
            self._process = watch.start(
                argv,
                env=spark_environment(variables, directory),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._final: ProgressReport | None = None
        self._listener = threading.Thread(target=self._listen, name="job output", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def address(self) -> str | None:
        """The URL of its progress; None until it serves it."""
        return self._address

    def progress(self, timeout: float = 2.0) -> ProgressReport | None:
        """The job's current progress; None if it serves none, or does not answer in time (seconds)."""
        if self._address is None:
            return None
        try:
            with _WITHOUT_PROXY.open(self._address, timeout=timeout) as answer:
                return ProgressReport.of_json(json.load(answer))
        except (OSError, ValueError, KeyError, TypeError, HTTPException):  # of a job that ends while it answers
            return None

    def final(self) -> ProgressReport | None:
        """Its last progress, exact; None unless it ended without a failure."""
        self._listener.join(10)
        return self._final

    def poll(self) -> int | None:
        """The exit code, None while it runs. A job that was killed by signal n has the code 128 + n, as in shells."""
        return _exit_code(self._process.poll())

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end (seconds) and returns the exit code; raises subprocess.TimeoutExpired."""
        return _exit_code(self._process.wait(timeout)) or 0

    def drain(self) -> None:
        """Signals it to finish its batch, commit the positions and end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL to the driver and all that it started, as when its machine dies."""
        self.signal_all(signal.SIGKILL)
        self._process.wait(30)

    def processes(self) -> list[int]:
        """The ids of the job's processes."""
        return _session(self._process.pid)

    def signal_all(self, number: int) -> None:
        """Sends a signal to every process of the job's session; PySpark puts its workers into other process groups."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def failure(self) -> Failure | None:
        """The failure that it ended with; None if it runs, ended without one, or was killed."""
        try:
            ending = Ending.from_json(self._ending.read_text())
        except OSError:
            return None
        return ending.failure if ending else None

    def _listen(self) -> None:
        """Reads the job's stdout to its end; otherwise the job would block on a full pipe.

        Lines that are not meant for this process, as of a transform that prints, go to the log.
        """
        with self.log.open("ab", buffering=0) as log:
            for raw in self._process.stdout or ():
                line = raw.decode(errors="replace").strip()
                if line.startswith(_PROGRESS):
                    self._address = line.removeprefix(_PROGRESS)
                elif line.startswith(_FINAL):
                    self._final = ProgressReport.of_json(json.loads(line.removeprefix(_FINAL)))
                else:
                    with contextlib.suppress(OSError):  # a full disk must not keep this thread from reading on
                        log.write(raw)


def _session(leader: int) -> list[int]:
    """The processes of a session: the sixth field of /proc/PID/stat, of which four are behind the name in brackets."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == leader:
                pids.append(int(stat.parent.name))
    return sorted(pids)


def _exit_code(returncode: int | None) -> int | None:
    return 128 - returncode if returncode is not None and returncode < 0 else returncode


def s3a_classes(state: StateSettings | None) -> dict[str, str]:
    """Variables by which Spark finds the classes of S3A, behind its own; none for a job without state in a bucket.

    Not spark.driver.extraClassPath, which comes first: the class archive fits only a path that begins as its own does.
    """
    if state is None or state.bucket is None:
        return {}
    return {"SPARK_DIST_CLASSPATH": f"{jars.directory('s3')}/*"}


def spark_environment(base: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The environment of a process that runs Spark, from the variables in base.

    PYTHONPATH gets the working directory, where a user's transform module is, for the driver and its workers. Temporary
    files go into `directory`, and so disappear with it even if the process is killed.
    """
    path = os.pathsep.join(p for p in (os.getcwd(), base.get("PYTHONPATH", "")) if p)
    temporary = directory.resolve() / "tmp"
    temporary.mkdir(exist_ok=True)
    java = " ".join(o for o in (base.get("JDK_JAVA_OPTIONS", ""), spark_start.java_options()) if o)
    return {
        **base,
        "JDK_JAVA_OPTIONS": f'{java} "-Djava.io.tmpdir={temporary}"',
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
    }
