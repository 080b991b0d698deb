"""The operator as a process of this machine, with the permissions of a ServiceAccount of an API server without pods."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ackwright.local.ports import free_ports
from ackwright.local.watch import Watch
from command import ACKWRIGHT
from e2e.api_server import ApiServer

_TOKEN_SECONDS = 7200  # longer than any test runs an operator


def kubeconfig_of(api: ApiServer, namespace: str, account: str) -> Path:
    """The path of a kubeconfig with a new token of the ServiceAccount."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    code, answer = api.request("POST", path, {"spec": {"expirationSeconds": _TOKEN_SECONDS}})
    if code != 201:
        raise AssertionError(f"POST {path}: {answer}")
    config = json.loads(api.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = answer["status"]["token"]
    file = api.directory / f"{namespace}-{account}.kubeconfig"
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))
    return file


class OperatorProcess:
    """An operator, used as a context manager, in which it can be stopped and restarted.

    namespace: the operator's own. account: its ServiceAccount. arguments: of `ackwright`. settings: further environment
    variables. program: instead of `ackwright`.
    """

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        account: str,
        arguments: Sequence[str],
        settings: Mapping[str, str] | None = None,
        *,
        program: Sequence[str] = ACKWRIGHT,
    ) -> None:
        self._argv = [*program, *arguments]
        self.port = free_ports(1)[0]
        self.log = api.directory / f"operator-{self.port}.log"
        self.environment = {
            **os.environ,
            **(settings or {}),
            "KUBECONFIG": str(kubeconfig_of(api, namespace, account)),
            "ACKWRIGHT_OWN_NAMESPACE": namespace,
            "ACKWRIGHT_METRICS_PORT": str(self.port),
        }

    def __enter__(self) -> Self:
        self._watch = Watch()
        try:
            self.start()
        except BaseException:
            self._watch.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._watch.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Starts the process, without waiting for it."""
        with self.log.open("ab") as log:
            self._process = self._watch.start(self._argv, env=self.environment, stdout=log, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        """Sends SIGTERM and waits until the process has ended."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def running(self) -> bool:
        return self._process.poll() is None

    def exit_code(self) -> int | None:
        """As of subprocess.Popen; None while it runs."""
        return self._process.poll()

    def metric(self, name: str) -> dict[str, float]:
        """The samples of a metric, by their labels as in the text."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return {m[1] or "": float(m[2]) for m in re.finditer(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)}

    def answers(self, path: str) -> int:
        """The status of the answer at this path; 0: there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as e:
            return e.code
        except OSError:
            return 0

    def leads(self) -> bool:
        """Whether this replica says that it leads."""
        try:
            return self.metric("ackwright_operator_leader") == {"": 1.0}
        except OSError:
            return False

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, without waiting for what it does."""
        self._process.send_signal(number)

    def reconciles(self) -> int:
        """The number of reconciles of this process; 0 while it does not answer yet."""
        if not self.running():
            raise AssertionError(f"the operator has ended: {self.log.read_text()[-1500:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
                count = re.search(rb"^ackwright_reconcile_seconds_count (\S+)", answer.read(), re.MULTILINE)
        except OSError:
            return 0
        return int(float(count[1])) if count else 0
