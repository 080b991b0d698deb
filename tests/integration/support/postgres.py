"""A real PostgreSQL server of Debian's package, and a reader that shares no code with the sink: psql."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ackwright.local import certificates
from ackwright.local.ports import free_ports
from ackwright.sinks.postgres import PostgresSink as Declared
from ackwright_stream.jobspec import PostgresSink
from waiting import wait_until

ADMIN, PASSWORD = "admin", "right-horse"
ROLE = "pipeline"
_FAST = ("fsync=off", "full_page_writes=off", "unix_socket_directories=", "listen_addresses=127.0.0.1")
_LOGINS = """
hostssl all all 127.0.0.1/32 scram-sha-256
hostnossl all all 127.0.0.1/32 scram-sha-256
"""


class Postgres:
    """One server on a loopback port, whose process can be killed, suspended and started again."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ackwright-postgres-"))
        self.data, self.log = self.directory / "data", self.directory / "log"
        (self.port,) = free_ports(1)
        self.host = "127.0.0.1"
        self._user = _unprivileged()
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def ca(self) -> str:
        """The file of the CA that signed the server's certificate."""
        return str(self.directory / "tls" / "ca.crt")

    def create(self) -> None:
        tls = self.directory / "tls"
        tls.mkdir()
        certificates.create(tls, (self.host,))
        password = self.directory / "password"
        password.write_text(PASSWORD)
        self.directory.chmod(0o755)
        if self._user is not None:
            for path in (self.directory, password, tls, *tls.iterdir()):
                os.chown(path, self._user, -1)
        initdb: list[str | Path] = [
            _program("initdb"),
            "-D",
            self.data,
            "-U",
            ADMIN,
            "--pwfile",
            password,
            "-A",
            "scram-sha-256",
        ]
        done = subprocess.run(
            [*initdb, "--no-sync", "-E", "UTF8", "--locale", "C"],
            user=self._user,
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        (self.data / "pg_hba.conf").write_text(_LOGINS)

    def start(self) -> None:
        settings = [
            *_FAST,
            f"port={self.port}",
            "ssl=on",
            f"ssl_cert_file={self.directory}/tls/broker.crt",
            f"ssl_key_file={self.directory}/tls/broker.key",
        ]
        options = [word for setting in settings for word in ("-c", setting)]
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                [_program("postgres"), "-D", str(self.data), *options],
                user=self._user,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        wait_until(self._answers, f"PostgreSQL answers; see {self.log}", 60)

    def _answers(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, self.log.read_text()[-2000:]
        return self._psql("SELECT 1", "postgres", ADMIN).returncode == 0

    def stop(self, number: int = signal.SIGQUIT) -> None:
        """Ends the server. SIGQUIT: at once, as in a crash; SIGKILL: all its processes at once; SIGINT: orderly."""
        if self._server is not None:
            sessions = self._sessions() if number == signal.SIGKILL else []
            self._server.send_signal(number)
            for pid in sessions:  # they notice the end of their parent only when they wait, and may commit before
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            self._server.wait(60)
            self._server = None

    def _sessions(self) -> list[int]:
        """The processes that the server has started."""
        assert self._server is not None
        pid = self._server.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory)

    def sql(self, statement: str, database: str = "postgres", user: str = ADMIN) -> list[list[str]]:
        """The rows of a statement, as psql prints them."""
        done = self._psql(statement, database, user)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def _psql(self, statement: str, database: str, user: str) -> subprocess.CompletedProcess[str]:
        address = f"host={self.host} port={self.port} dbname={database} user={user} connect_timeout=5"
        return subprocess.run(
            [_program("psql"), address, "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-c", statement],
            env={"PGPASSWORD": PASSWORD, "PATH": os.environ["PATH"]},
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )


class Database:
    """A new database with a role that may use it, and a login as in a mounted Secret."""

    def __init__(self, server: Postgres, directory: Path) -> None:
        self.server, self.name = server, f"d{uuid.uuid4().hex[:8]}"
        self.role = f"{ROLE}_{self.name}"
        self.secrets = directory / "secrets"
        self.credentials = self.secrets / "db-login"
        self.credentials.mkdir(parents=True)
        (self.credentials / "username").write_text(self.role)
        (self.credentials / "password").write_text(PASSWORD)
        (self.secrets / "db-ca").mkdir()
        shutil.copy(server.ca, self.secrets / "db-ca" / "ca.crt")
        server.sql(f"CREATE ROLE {self.role} LOGIN PASSWORD '{PASSWORD}'")
        server.sql(f"CREATE DATABASE {self.name} OWNER {self.role}")

    def sql(self, statement: str, *, admin: bool = False) -> list[list[str]]:
        """The rows of a statement of the role, or of the administrator."""
        return self.server.sql(statement, self.name, ADMIN if admin else self.role)

    def sink(self, table: str = "rows", **fields: Any) -> PostgresSink:
        """The sink's part of a jobspec. Unencrypted unless `tls` is set."""
        unencrypted = {**self.spec(table)["postgres"], "tls": None}
        job = Declared.model_validate(unencrypted).to_job("a group")
        return replace(job, **{"credentials": str(self.credentials), **fields})

    def spec(self, table: str = "rows", **fields: object) -> dict[str, dict[str, object]]:
        """spec.sink of a pipeline, with TLS."""
        return {
            "postgres": {
                "host": self.server.host,
                "port": self.server.port,
                "database": self.name,
                "credentialsSecret": {"name": "db-login"},
                "tls": {"caSecret": {"name": "db-ca"}},
                "table": table,
                **fields,
            }
        }


@contextmanager
def running() -> Iterator[Postgres]:
    """A server that is removed at the end."""
    server = Postgres()
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.remove()


def _program(name: str) -> str:
    """The path of a program of the newest PostgreSQL on this machine."""
    programs = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=_version)
    path = str(programs[-1]) if programs else shutil.which(name)
    assert path, f"{name} is not installed; run tools/setup.sh as root, or apt-get install postgresql"
    return path


def _version(path: Path) -> int:
    return int(re.sub(r"\D.*", "", path.parts[4]) or 0)


def _unprivileged() -> int | None:
    """The user for a server that refuses to run as root; None: this process's own."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_uid
    except KeyError:
        return pwd.getpwnam("nobody").pw_uid
