"""A real API server on loopback: etcd and kube-apiserver without controllers.

It validates, defaults, stores and watches objects, and controls access. No controller creates the pods of a
StatefulSet, and no garbage collector deletes the objects of a deleted owner.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ackwright.local import certificates
from ackwright.local.ports import free_ports
from ackwright.local.wait import wait_for
from ackwright.local.watch import Watch

_START_TIMEOUT = 120.0  # seconds


class ApiServer:
    """An API server, used as a context manager. Both processes and their directory end with this process.

    bin_dir: the directory of etcd, kube-apiserver and kubectl. flags: further flags of kube-apiserver.
    After the start, url, ca_file and token are those of an administrator; the file kubeconfig contains all three.
    """

    def __init__(self, bin_dir: Path, flags: Sequence[str] = ()) -> None:
        self._bin = bin_dir
        self._flags = tuple(flags)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watch: Watch | None = None
        self.token = secrets.token_hex(16)
        self.directory = self.ca_file = self.kubeconfig = Path()
        self.url = ""

    def __enter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="ackwright-api-"))
        self._watch = Watch(remove=(self.directory,))
        try:
            self._start()
        except BaseException:
            self._watch.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch:
            self._watch.close()
        for process in self._processes.values():
            process.wait(10)  # the watch has killed it; this reads its exit code

    def kubectl(self, *arguments: str | Path, stdin: object = None) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as the administrator; the caller checks the exit code. stdin: an object for `-f -`."""
        argv = [
            str(self._bin / "kubectl"),
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.directory}/cache",
            *map(str, arguments),
        ]
        text = None if stdin is None else json.dumps(stdin)
        return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)

    def request(self, method: str, path: str, body: object = None, token: str | None = None) -> tuple[int, Any]:
        """Sends a request and returns status code and decoded answer. token: default: the administrator's.

        PATCH sends a JSON merge patch.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(  # noqa: S310 - our own address
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token or self.token}", "Content-Type": kind},
        )
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:  # noqa: S310
                return answer.status, _decoded(answer.read())
        except urllib.error.HTTPError as e:
            with e:
                return e.code, _decoded(e.read())

    def install(self, crd: Path) -> Mapping[str, Any]:
        """Applies the file of a CustomResourceDefinition; returns the stored object when its resource is served."""
        applied = self.kubectl("apply", "-f", crd)
        if applied.returncode:
            raise AssertionError(f"{crd.name} was refused: {applied.stderr}")
        stored: Mapping[str, Any] = {}

        def is_established() -> bool:
            # `kubectl wait` fails at once while the API server has not set any condition.
            nonlocal stored
            stored = json.loads(self.kubectl("get", "-f", crd, "-o", "json").stdout)
            conditions = stored.get("status", {}).get("conditions") or ()
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

        wait_for(is_established, f"{crd.name} is established", 30)
        version = next(v["name"] for v in stored["spec"]["versions"] if v["storage"])
        served = f"/apis/{stored['spec']['group']}/{version}/{stored['spec']['names']['plural']}"
        wait_for(lambda: self.request("GET", served)[0] == 200, f"{served} is served", 30)
        return stored

    def exit_cause(self, program: str) -> str:
        """The last error in the log of etcd or kube-apiserver, or its last line."""
        lines = (self.directory / f"{program}.log").read_text(errors="replace").splitlines()
        errors = [line for line in lines if line.startswith(("E", "F", "Error")) or '"level":"fatal"' in line]
        return (errors or lines or ["its log is empty"])[-1]

    def _start(self) -> None:
        etcd_port, peer_port, port = free_ports(3)
        certificates.create(self.directory)
        self.ca_file = self.directory / "ca.crt"
        self.url = f"https://127.0.0.1:{port}"
        tokens = self.directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self.token},administrator,administrator,"system:masters"\n')
        self._write_kubeconfig()
        etcd, peer, key = (
            f"http://127.0.0.1:{etcd_port}",
            f"http://127.0.0.1:{peer_port}",
            self.directory / "broker.key",
        )
        self._start_process(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            "--unsafe-no-fsync",
            *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}"),
            *(
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
            ),
        )
        self._start_process(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}"),
            "--endpoint-reconciler-type=none",  # a reconciler refuses to publish a loopback address
            "--service-cluster-ip-range=10.0.0.0/24",
            *(
                f"--cert-dir={self.directory}",
                f"--tls-cert-file={self.directory / 'broker.crt'}",
                f"--tls-private-key-file={key}",
            ),
            *(f"--token-auth-file={tokens}", "--authorization-mode=RBAC"),
            "--service-account-issuer=https://kubernetes.default.svc",
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            # It would require the default account of a namespace, which no controller creates here.
            "--disable-admission-plugins=ServiceAccount",
            *self._flags,
        )
        wait_for(self._ready, "the API server is ready", _START_TIMEOUT)

    def _start_process(self, program: str, *arguments: str) -> None:
        assert self._watch is not None
        with (self.directory / f"{program}.log").open("ab") as log:
            self._processes[program] = self._watch.start(
                [str(self._bin / program), *arguments], stdout=log, stderr=subprocess.STDOUT, cwd=self.directory
            )

    def _ready(self) -> bool:
        for program, process in self._processes.items():
            if process.poll() is not None:
                raise AssertionError(f"{program} has ended: {self.exit_cause(program)}")
        with contextlib.suppress(OSError):
            return self.request("GET", "/readyz")[0] == 200
        return False

    def _write_kubeconfig(self) -> None:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": "administrator", "user": {"token": self.token}}],
            "contexts": [
                {"name": "test", "context": {"cluster": "test", "user": "administrator", "namespace": "default"}}
            ],
            "current-context": "test",
        }
        self.kubeconfig = self.directory / "kubeconfig"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(content))  # JSON is valid YAML


def _decoded(answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        return answer.decode(errors="replace")
