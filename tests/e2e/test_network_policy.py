"""The chart's NetworkPolicy on a real cluster.

On the lab's own cluster kube-router enforces policies. In other clusters that depends on the network plug-in, so the
test first checks it with a separate policy. Where policies are not enforced it is an expected failure, because it
proves nothing there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ackwright.render.pods import container_security, pod_security
from e2e.pipelines import NAMESPACE, SYSTEM, Installation, pipeline, wait_until

_ASK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).status)"
_SERVE = "from http.server import *; ThreadingHTTPServer(('', 8000), SimpleHTTPRequestHandler).serve_forever()"
_SLEEP = "import signal; signal.pause()"
_POLICY_TIMEOUT = 60.0  # seconds in which a plug-in enforces a new policy


@contextmanager
def pod(installed: Installation, program: str, label: str) -> Iterator[str]:
    """A pod in the pipelines' namespace that runs a Python program. Yields its name."""
    name = f"probe-{uuid.uuid4().hex[:6]}"
    container = {
        "name": "probe",
        "image": installed.operator.reference,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", program],
        "workingDir": "/tmp",  # noqa: S108 - a path in the container
        "securityContext": container_security(),
    }
    spec = {"automountServiceAccountToken": False, "securityContext": pod_security(), "containers": [container]}
    meta = {"name": name, "namespace": NAMESPACE, "labels": {"probe": label}}
    installed.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, "terminationGracePeriodSeconds": 0}}
    )
    try:
        installed.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s", timeout=130)
        yield name
    finally:
        installed.kubectl("delete", "pod", name, "--wait=false")


def reaches(installed: Installation, client: str, url: str) -> bool:
    argv = ("exec", client, "--", "sh", "-c", f"python3 -c '{_ASK}' {url} 2>/dev/null || true")
    return installed.kubectl(*argv).strip() == "200"


def address(installed: Installation, name: str) -> str:
    return str(installed.get("pod", name)["status"]["podIP"])


def is_enforced(installed: Installation, client: str) -> bool:
    """Whether a policy without any allowed peer blocks a connection."""
    with pod(installed, _SERVE, "server") as server:
        url = f"http://{address(installed, server)}:8000/"
        wait_until(lambda: reaches(installed, client, url), "pods reach each other without a policy", 60)
        spec = {"podSelector": {"matchLabels": {"probe": "server"}}, "policyTypes": ["Ingress"]}
        meta = {"name": "probe", "namespace": NAMESPACE}
        installed.apply({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec})
        try:
            wait_until(lambda: not reaches(installed, client, url), "the policy is enforced", _POLICY_TIMEOUT)
        except AssertionError:
            return False
        finally:
            installed.kubectl("delete", "networkpolicy", "probe")
        return True


def test_the_policy_admits_only_the_named_peers_and_the_operator_works_under_it(installed: Installation) -> None:
    is_certain = installed.cluster.enforce_policies()
    with pod(installed, _SLEEP, "named") as named, pod(installed, _SLEEP, "other") as other:
        if not is_enforced(installed, other):
            assert not is_certain, "kube-router does not enforce policies"
            pytest.xfail(
                "this cluster's network plug-in does not enforce NetworkPolicies, so this test proves nothing here"
            )
        everywhere: list[dict[str, Any]] = [
            {"ports": [{"port": port, "protocol": "TCP"} for port in (443, 6443, 8090, 9092, 9094)]}
        ]
        peer = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"probe": "named"}}}
        installed.install(networkPolicy={"enabled": True, "metricsFrom": [peer], "egress": everywhere})
        try:
            metrics = f"http://ackwright-operator.{SYSTEM}.svc:8080/metrics"
            wait_until(lambda: reaches(installed, named, metrics), "metrics for the named peer", 120)
            wait_until(lambda: not reaches(installed, other, metrics), "no metrics for other pods", _POLICY_TIMEOUT)
            with pipeline(installed, "exactly-once") as p:
                p.wait_for("TopicsReady", "True")
                p.produce_flights(1000)
                p.wait_for("Ready", "True")
        finally:
            installed.install()
