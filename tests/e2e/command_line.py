"""`ackwright` as a process, against the cluster of the tests."""

from __future__ import annotations

import os
import subprocess
import sys

from e2e.pipelines import NAMESPACE, Installation


def ackwright(installed: Installation, *arguments: str, code: int = 0) -> str:
    """Runs `ackwright … -n NAMESPACE`; returns what it printed on stdout."""
    argv = [sys.executable, "-c", "from ackwright.cli.main import main; main()", *arguments, "-n", NAMESPACE]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "KUBECONFIG": str(installed.cluster.kubeconfig)},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
