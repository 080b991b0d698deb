"""A real PostgreSQL server on this machine, for the demo and the tests."""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ackwright.errors import AckwrightError
from ackwright.local import certificates
from ackwright.local.ports import free_ports
from ackwright.local.wait import wait_for
from ackwright.local.watch import Watch
from ackwright_stream.jobspec import Reason

ADMIN = "admin"  # the superuser
_DEBIAN = Path("/usr/lib/postgresql")  # Debian's packages, one directory per version
_TIMEOUT = 120.0  # seconds, of one step
# A process that is killed leaves what it has written to the operating system, so nothing has to be flushed to the disk.
_SETTINGS = ("fsync=off", "full_page_writes=off", "unix_socket_directories=", "ssl=on")


class EmbeddedPostgres:
    """A server with TLS on a port of this machine, by default of loopback, as a context manager.

    Its data are in a temporary directory. When this process ends, the server is killed and the directory is removed,
    also if SIGKILL ends this process. Every method raises AckwrightError with the cause of a failure.
    """

    def __init__(
        self,
        *,
        log: Path | None = None,
        password: str | None = None,
        host: str = "127.0.0.1",
        clients: str = "127.0.0.1/32",
    ) -> None:
        """log: the file for the server's log; None: in its directory.

        password: of the administrator; None: a random one. host: the address at which it listens. clients: the
        addresses from which it accepts logins, in CIDR notation.
        """
        self.host = host
        self._clients = clients
        self.password = password or secrets.token_urlsafe(16)
        self.directory = Path()
        self.port = 0
        self._log = log
        self._programs = Path()
        self._account: pwd.struct_passwd | None = None
        self._watch: Watch | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self._log or self.directory / "log"

    @property
    def pid(self) -> int | None:
        """The server's first process, which has started the others; None if it does not run."""
        return self._server.pid if self._server else None

    @property
    def ca(self) -> Path:
        """The certificate of the authority that signed the server's, for its host."""
        return self.directory / "tls" / "ca.crt"

    def __enter__(self) -> Self:
        self._programs, self._account = installed_programs(), unprivileged_account()
        self.directory = Path(tempfile.mkdtemp(prefix="ackwright-postgres-")).resolve()
        self._watch = Watch(remove=(self.directory,))
        try:
            (self.port,) = free_ports(1)
            self._create()
            self.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def start(self) -> None:
        """Starts the server, and returns when it answers; after kill() it first recovers what was committed."""
        tls = self.directory / "tls"
        settings = (
            *_SETTINGS,
            f"listen_addresses={self.host}",
            f"port={self.port}",
            f"ssl_cert_file={tls}/broker.crt",
            f"ssl_key_file={tls}/broker.key",
        )
        options = [word for setting in settings for word in ("-c", setting)]
        self._server = self._run("postgres", "-D", str(self.directory / "data"), *options)
        wait_for(self._answers, f"PostgreSQL answers; see {self.log}", _TIMEOUT, Reason.SINK_UNREACHABLE)

    def kill(self) -> None:
        """Sends SIGKILL to all processes of the server, as when its machine dies; returns when they have ended."""
        if self._server is None:
            return
        server, self._server = self._server, None
        processes: list[int] = []
        if server.poll() is None:
            server.send_signal(signal.SIGSTOP)  # it starts no further process
            processes = _children(server.pid)
            server.kill()
        for process in processes:  # they would notice the end of their parent only when they wait, and commit before
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        server.wait(_TIMEOUT)
        wait_for(lambda: not any(map(_runs, processes)), "PostgreSQL ends", _TIMEOUT, Reason.SINK_UNREACHABLE)

    def suspend(self) -> None:
        """Sends SIGSTOP to all processes of the server: it answers nothing, and its kernel accepts connections."""
        if self._server is not None:
            self._server.send_signal(signal.SIGSTOP)  # first, so that it starts no further process
            for process in _children(self._server.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)

    def resume(self) -> None:
        """Continues after suspend()."""
        if self._server is not None:
            for process in (*_children(self._server.pid), self._server.pid):
                with suppress(ProcessLookupError):  # those that continue may end others
                    os.kill(process, signal.SIGCONT)

    def sql(self, statement: str, database: str = "postgres", user: str = ADMIN) -> list[list[str]]:
        """The rows of a statement, as psql prints them. user: one whose password is that of the administrator."""
        address = f"host={self.host} port={self.port} dbname={database} user={user} connect_timeout=5"
        options = ["-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            [self._programs / "psql", address, *options, "-c", statement],
            env={"PGPASSWORD": self.password, "PATH": os.environ["PATH"]},
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
        )
        if done.returncode:
            raise AckwrightError(Reason.UNEXPECTED, f"psql at {self.host}:{self.port}: {done.stderr.strip()}")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def _create(self) -> None:
        tls, password = self.directory / "tls", self.directory / "password"
        tls.mkdir()
        certificates.create(tls, (self.host,))
        password.touch(mode=0o600)
        password.write_text(self.password)
        self.directory.chmod(0o755)
        if self._account is not None:
            for path in (self.directory, password, tls, *tls.iterdir()):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        data = self.directory / "data"
        encoding = ("--no-sync", "-E", "UTF8", "--locale", "C")
        login = ("-U", ADMIN, "--pwfile", str(password), "-A", "scram-sha-256")
        try:
            failed = self._run("initdb", "-D", str(data), *login, *encoding).wait(_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AckwrightError(
                Reason.SINK_UNREACHABLE,
                f"PostgreSQL has not created {data} within {_TIMEOUT:g} s",
                "end other programs that use the processors or the disk, and start again",
            ) from None
        if failed:
            name = self._account.pw_name if self._account else "this user"
            raise AckwrightError(
                Reason.UNEXPECTED,
                f"PostgreSQL cannot create {data}: {self._last_line()}; set TMPDIR to a directory that {name} may "
                "enter, with enough space",
            )
        (data / "pg_hba.conf").write_text(f"host all all {self._clients} scram-sha-256\n")

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        if self._watch is None:
            raise RuntimeError("the server is a context manager, which has not been entered")
        argv: Sequence[str] = [str(self._programs / program), *arguments]
        with self.log.open("ab") as log:
            return self._watch.start(argv, stdout=log, stderr=log, cwd=Path("/"), account=self._account)

    def _answers(self) -> bool:
        if self._server is None or self._server.poll() is not None:
            raise AckwrightError(
                Reason.SINK_UNREACHABLE, f"PostgreSQL has ended: {self._last_line()}; its log is {self.log}"
            )
        argv = [str(self._programs / "pg_isready"), "-q", "-h", self.host, "-p", str(self.port)]
        return subprocess.run(argv, check=False, timeout=_TIMEOUT).returncode == 0

    def _last_line(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"

    def _close(self) -> None:
        try:
            self.kill()
        finally:
            if self._watch is not None:
                self._watch.close()


def installed_programs() -> Path:
    """The directory with the programs of the newest PostgreSQL server. Raises AckwrightError if there is none."""
    servers = sorted(_DEBIAN.glob("*/bin/initdb"), key=_version)
    server = str(servers[-1]) if servers else shutil.which("initdb")
    if server is None:
        raise AckwrightError(
            Reason.UNEXPECTED,
            "PostgreSQL is not installed on this machine, and this command starts a server of it; install it: "
            "apt-get install postgresql",
        )
    return Path(server).parent


def _version(program: Path) -> int:
    return int(re.sub(r"\D.*", "", program.parents[1].name) or 0)


def unprivileged_account() -> pwd.struct_passwd | None:
    """The account for a server, which refuses to run as root; None: that of this process."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _runs(pid: int) -> bool:
    """Whether the process has not ended; one that has may be a zombie, until its parent asks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
