"""The command line against a cluster, including its use as a kubectl plug-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from e2e.command_line import ackwright, run_ackwright
from e2e.pipelines import NAMESPACE, Installation, pipeline


def test_status_logs_audit_suspend_and_resume(installed: Installation) -> None:
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("TopicsReady", "True")
        assert "no DeliveryPipeline nobody" in _error(installed, "status", "nobody")
        p.produce_flights(5_000)
        p.wait_for("Ready", "True")
        p.wait_until_delivered()

        assert "Delivering" in ackwright(installed, "status", p.name)
        assert p.name in ackwright(installed, "status")
        assert json.loads(ackwright(installed, "status", p.name, "-o", "json"))["metadata"]["name"] == p.name
        assert "owns 3 lanes" in ackwright(installed, "logs", p.name, "--tail", "200")

        report = json.loads(ackwright(installed, "audit", p.name, "-o", "json"))
        assert (report["guaranteeHeld"], report["sent"], report["lost"], report["duplicated"]) == (True, 5_000, 0, 0)

        assert "Suspended" in ackwright(installed, "suspend", p.name)
        assert p.driver() is None
        assert "has no driver now" in _error(installed, "logs", p.name)
        assert "Delivering" in ackwright(installed, "resume", p.name)

        changed = ackwright(installed, "plan", "-f", str(_edited(p.document, installed)), "--against", "cluster")
        assert "spec.trigger.interval" in changed
        assert "all changes: restart" in changed


def test_kubectl_finds_the_plugin(installed: Installation) -> None:
    kubectl = installed.cluster.programs / "kubectl"  # type: ignore[attr-defined]
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(installed.cluster.kubeconfig),
    }
    argv = [str(kubectl), "ackwright", "status", "-n", NAMESPACE]
    completed = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert "guarantee" in completed.stdout or "no pipelines" in completed.stdout, completed.stderr


def _error(installed: Installation, *arguments: str) -> str:
    completed = run_ackwright(installed, *arguments)
    assert completed.returncode != 0
    return completed.stderr


def _edited(document: dict[str, object], installed: Installation) -> Path:
    edited = json.loads(json.dumps(document))
    edited["spec"]["trigger"]["interval"] = "900ms"
    file = installed.cluster.kubeconfig.parent / "edited.yaml"
    file.write_text(json.dumps(edited))
    return file
