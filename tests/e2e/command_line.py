"""The command line against the cluster of the end-to-end tests."""

from __future__ import annotations

import os
import subprocess

from command import ACKWRIGHT
from e2e.pipelines import NAMESPACE, Installation


def run_ackwright(installed: Installation, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `ackwright ARGUMENTS -n NAMESPACE` with the cluster's kubeconfig."""
    return subprocess.run(
        [*ACKWRIGHT, *arguments, "-n", NAMESPACE],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "KUBECONFIG": str(installed.cluster.kubeconfig)},
    )


def ackwright(installed: Installation, *arguments: str) -> str:
    """The standard output of `ackwright ARGUMENTS -n NAMESPACE`, which must succeed."""
    completed = run_ackwright(installed, *arguments)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout
