"""An operator as a real process, before a real API server whose every request of the operator's is on record, and one real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.e2e.api_server import ApiServer

from ackwright.local.ports import free_ports
from ackwright.local.wait import wait_for
from ackwright.local.watch import Watch

NAMESPACE = "bench"
_ACCOUNT = "operator"
_USER = f"system:serviceaccount:{NAMESPACE}:{_ACCOUNT}"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [_USER]}, {"level": "None"}],
}
_MIB = 1024  # /proc tells KiB
_TICKS = os.sysconf("SC_CLK_TCK")
_ARGV = [sys.executable, "-c", "from ackwright.cli.main import main; main()", "operator", "--namespace", NAMESPACE]


def audit_flags(directory: Path) -> tuple[str, ...]:
    """For the API server: what the operator asks for goes to a file in the directory."""
    policy = directory / "policy.json"
    policy.write_text(json.dumps(_POLICY))
    return f"--audit-policy-file={policy}", f"--audit-log-path={directory / 'audit.log'}"


class Operator:
    """The process, which can be ended and started anew. Use it as a context manager. directory: that of audit_flags."""

    def __init__(self, api: ApiServer, directory: Path) -> None:
        self._api, self._directory = api, directory
        self._watch = Watch()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = free_ports(1)[0]

    def __enter__(self) -> Operator:
        try:
            self._kubeconfig = self._account()
            self.start()
        except BaseException:
            self._watch.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._watch.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns at once."""
        settings = {"KUBECONFIG": str(self._kubeconfig), "ACKWRIGHT_OWN_NAMESPACE": NAMESPACE, "ACKWRIGHT_METRICS_PORT": str(self._port)}
        with (self._directory / "operator.log").open("ab") as log:
            self._process = self._watch.start(_ARGV, env={**os.environ, **settings}, stdout=log, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        """Tells it to end, and waits until it has."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def looks(self) -> int:
        """How often this process has looked at a pipeline; 0 while it does not answer yet."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the operator has ended: {(self._directory / 'operator.log').read_text()[-500:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as answer:
                found = re.search(rb"^ackwright_reconcile_seconds_count (\S+)", answer.read(), re.MULTILINE)
        except OSError:
            return 0
        return int(float(found[1])) if found else 0

    def memory(self) -> tuple[float, float]:
        """MiB: resident now, and at most so far."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        now, most = (int(re.findall(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[0]) / _MIB for name in ("VmRSS", "VmHWM"))
        return now, most

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def requests(self) -> Counter[tuple[str, str]]:
        """Requests that the operator has made so far, of all its processes, by verb and resource."""
        file = self._directory / "audit.log"
        lines = file.read_text().splitlines() if file.exists() else []
        events = (json.loads(line) for line in lines if line.endswith("}"))
        return Counter((e["verb"], e.get("objectRef", {}).get("resource", e["requestURI"].split("?")[0])) for e in events)

    def _account(self) -> Path:
        """A kubeconfig of an account of the operator's own, so that its requests can be told from ours."""
        binding = {
            "metadata": {"name": "bench-operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": NAMESPACE}],
        }
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        made = (
            ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
            (accounts, {"metadata": {"name": _ACCOUNT}}),
            ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
            (f"{accounts}/{_ACCOUNT}/token", {"spec": {"expirationSeconds": 7200}}),
        )
        for path, wanted in made:
            code, answer = self._api.request("POST", path, wanted)
            if code != 201:
                raise RuntimeError(f"POST {path}: {answer}")
        config = json.loads(self._api.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = answer["status"]["token"]
        file = self._directory / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(json.dumps(config))
        return file


def watch(api: ApiServer, path: str) -> Iterator[Mapping[str, Any]]:
    """The events of a watch from this call on, until the API server ends it."""
    code, answer = api.request("GET", f"{path}?limit=1")
    if code != 200:
        raise RuntimeError(f"GET {path}: {answer}")
    url = f"{api.url}{path}?watch=1&timeoutSeconds=7200&resourceVersion={answer['metadata']['resourceVersion']}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api.token}"})  # noqa: S310 - our own address
    lines = urllib.request.urlopen(request, context=ssl.create_default_context(cafile=api.ca_file))  # noqa: S310
    return (json.loads(line) for line in lines)


def wait_for_looks(operator: Operator, count: int, timeout: float) -> None:
    """Until this process has looked at pipelines so often (seconds)."""
    wait_for(lambda: operator.looks() >= count, f"the operator has looked {count} times", timeout)
