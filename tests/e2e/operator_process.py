"""The operator of a release as a process of this machine, before an API server that runs no pods: its arguments, settings and rights are
those of the chart's Deployment and account."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from ackwright.local.ports import free_ports
from ackwright.local.watch import Watch
from e2e.api_server import ApiServer

OPERATOR = "ackwright-operator"
_START = "from ackwright.cli.main import main; main()"


class OperatorProcess:
    """Use it as a context manager. namespace: the release's."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._watch = Watch()
        self.port = free_ports(1)[0]
        self.log = api.directory / f"operator-{self.port}.log"
        self.environment: dict[str, str] = {}

    def __enter__(self) -> OperatorProcess:
        try:
            self._start()
        except BaseException:
            self._watch.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        finally:
            self._watch.close()

    def running(self) -> bool:
        return self._process.poll() is None

    def looks(self) -> int:
        """How often it has looked at a pipeline; 0 while it does not answer yet."""
        if not self.running():
            raise AssertionError(f"the operator has ended: {self.log.read_text()[-1500:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
                found = re.search(rb"^ackwright_reconcile_seconds_count (\S+)", answer.read(), re.MULTILINE)
        except OSError:
            return 0
        return int(float(found[1])) if found else 0

    def _start(self) -> None:
        container = self._deployment()["spec"]["template"]["spec"]["containers"][0]
        self.environment = {
            **os.environ,
            **{e["name"]: e["value"] for e in container["env"]},
            "KUBECONFIG": str(self._kubeconfig()),
            "ACKWRIGHT_OWN_NAMESPACE": self._namespace,
            "ACKWRIGHT_METRICS_PORT": str(self.port),
        }
        argv = [sys.executable, "-c", _START, *container["args"]]
        with self.log.open("ab") as log:
            self._process = self._watch.start(argv, env=self.environment, stdout=log, stderr=subprocess.STDOUT)

    def _deployment(self) -> Any:
        code, found = self._api.request("GET", f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{OPERATOR}")
        assert code == 200, found
        return found

    def _kubeconfig(self) -> Path:
        account = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{OPERATOR}"
        code, answer = self._api.request("POST", f"{account}/token", {"spec": {"expirationSeconds": 3600}})
        assert code == 201, answer
        config = json.loads(self._api.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = answer["status"]["token"]
        file = self._api.directory / f"operator-{self.port}.kubeconfig"
        file.touch(mode=0o600)
        file.write_text(json.dumps(config))
        return file
