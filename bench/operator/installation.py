"""An operator as a process with a real API server that logs every request of the operator, and one real broker."""

from __future__ import annotations

import json
import os
import re
import ssl
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic

from ackwright.local.wait import wait_for
from ackwright_stream.admin_client import AdminClient
from e2e.api_server import ApiServer
from e2e.operator_process import OperatorProcess

OWN_NAMESPACE, NAMESPACE = "bench-operator", "bench"  # of the operator; of its pipelines, which may not be the same
_ACCOUNT = "operator"
_USER = f"system:serviceaccount:{OWN_NAMESPACE}:{_ACCOUNT}"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [_USER]}, {"level": "None"}],
}
_KIB_PER_MIB = 1024  # /proc contains KiB
_TICKS = os.sysconf("SC_CLK_TCK")


def audit_flags(directory: Path) -> tuple[str, ...]:
    """Flags of the API server that log the operator's requests to a file in the directory."""
    policy = directory / "policy.json"
    policy.write_text(json.dumps(_POLICY))
    return f"--audit-policy-file={policy}", f"--audit-log-path={directory / 'audit.log'}"


class Operator(OperatorProcess):
    """An operator with its own ServiceAccount, so that the log distinguishes its requests from ours.

    directory: the same as for audit_flags. arguments: of `ackwright`. settings: further environment variables.
    """

    def __init__(
        self,
        api: ApiServer,
        directory: Path,
        arguments: Sequence[str] = ("operator", "--namespace", NAMESPACE),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        _create_account(api)
        as_in_the_image = {"MALLOC_ARENA_MAX": "1"}
        super().__init__(api, OWN_NAMESPACE, _ACCOUNT, arguments, {**as_in_the_image, **(settings or {})})
        self._directory = directory

    def memory(self) -> tuple[float, float]:
        """Resident memory in MiB, with the client processes: the current value, and the sum of the peaks."""
        statuses = [Path(f"/proc/{pid}/status").read_text() for pid in self._processes()]
        now, peak = (
            sum(int(re.findall(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[0]) for status in statuses) / _KIB_PER_MIB
            for name in ("VmRSS", "VmHWM")
        )
        return now, peak

    def cpu(self) -> float:
        """CPU time in seconds, with the client processes that run."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split() for pid in self._processes()]
        return sum(int(f[11]) + int(f[12]) for f in fields) / _TICKS

    def _processes(self) -> list[int]:
        """The ids of the process and of its children."""
        children = [file.read_text().split() for file in Path(f"/proc/{self.pid}/task").glob("*/children")]
        return [self.pid, *(int(pid) for pids in children for pid in pids)]

    def requests(self) -> Counter[tuple[str, str]]:
        """The number of API requests by verb and resource, including those of earlier processes of the operator."""
        file = self._directory / "audit.log"
        lines = file.read_text().splitlines() if file.exists() else []
        events = (json.loads(line) for line in lines if line.endswith("}"))
        return Counter(
            (e["verb"], e.get("objectRef", {}).get("resource", e["requestURI"].split("?")[0])) for e in events
        )


def create_topics(bootstrap: str) -> None:
    """Creates the topics of the pipelines."""
    topics = [NewTopic(name, 1, 1) for name in ("in", "out")]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a variable, because the futures end with the client
    for future in admin.create_topics(topics).values():
        future.result(30)


def watch(api: ApiServer, path: str) -> Iterator[Mapping[str, Any]]:
    """The events of a watch from this call on, until the API server ends it."""
    code, answer = api.request("GET", f"{path}?limit=1")
    if code != 200:
        raise RuntimeError(f"GET {path}: {answer}")
    url = f"{api.url}{path}?watch=1&timeoutSeconds=7200&resourceVersion={answer['metadata']['resourceVersion']}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api.token}"})  # noqa: S310 - our own address
    lines = urllib.request.urlopen(request, context=ssl.create_default_context(cafile=api.ca_file))  # noqa: S310
    return (json.loads(line) for line in lines)


def wait_for_reconciles(operator: Operator, count: int, timeout: float) -> None:
    """Waits until the current process of the operator has reconciled `count` times. timeout: seconds."""
    wait_for(lambda: operator.reconciles() >= count, f"the operator has reconciled {count} times", timeout)


def _create_account(api: ApiServer) -> None:
    """Creates the namespaces and a ServiceAccount with the role cluster-admin."""
    binding = {
        "metadata": {"name": "bench-operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": OWN_NAMESPACE}],
    }
    objects = (
        ("/api/v1/namespaces", {"metadata": {"name": OWN_NAMESPACE}}),
        ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
        (f"/api/v1/namespaces/{OWN_NAMESPACE}/serviceaccounts", {"metadata": {"name": _ACCOUNT}}),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
    )
    for path, body in objects:
        code, answer = api.request("POST", path, body)
        if code not in (201, 409):  # another operator of this run may have the same account
            raise RuntimeError(f"POST {path}: {answer}")
