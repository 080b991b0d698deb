"""No team can stop or starve another: a live operator with several namespaces, on a real API server.

Nothing runs in a cluster: etcd, kube-apiserver, and the operator as a process, with kopf and the permissions of the
chart. The pods of its drivers do not exist; what matters here is which pipelines are reconciled.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chart.rendered import documents
from chart.rendered import objects as rendered_objects
from e2e.api_server import ApiServer
from e2e.operator_process import OperatorProcess
from lab import binaries
from lab.cluster import print_progress
from waiting import wait_until

Object = dict[str, Any]

CRD = Path(__file__).parents[2] / "crds" / "deliverypipelines.ackwright.io.yaml"
SYSTEM, OPERATOR = "ackwright-system", "ackwright-operator"
NOBODY = "127.0.0.1:1"  # an address without a broker


class Teams:
    """An API server with namespaces of teams, and an operator that watches them."""

    def __init__(self, api: ApiServer, teams: Sequence[str], values: Mapping[str, Any] | None = None) -> None:
        self.api, self.teams = api, tuple(teams)
        for namespace in (SYSTEM, *teams):
            self.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        manifests = rendered_objects({"watchNamespaces": list(teams), **(values or {})})
        for (kind, _), manifest in manifests.items():
            if kind == "ServiceAccount":
                self.request("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", manifest)
        self.roles = self._apply_roles(values or {})
        deployment = manifests["Deployment", OPERATOR]["spec"]["template"]["spec"]["containers"][0]
        settings = {e["name"]: e["value"] for e in deployment["env"]}
        self.operator = OperatorProcess(api, SYSTEM, OPERATOR, deployment["args"], settings)

    def _apply_roles(self, values: Mapping[str, Any]) -> list[Object]:
        manifests = documents({"watchNamespaces": list(self.teams), **values})
        roles = [o for o in manifests if o["kind"] in ("Role", "RoleBinding")]
        applied = self.api.kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": roles})
        assert applied.returncode == 0, applied.stderr
        return roles

    def request(self, method: str, path: str, body: object = None) -> Any:
        code, answer = self.api.request(method, path, body)
        assert code in (200, 201, 202), answer
        return answer

    def path(self, namespace: str, name: str = "") -> str:
        return f"/apis/ackwright.io/v1alpha1/namespaces/{namespace}/deliverypipelines{f'/{name}' if name else ''}"

    def declare(self, namespace: str, name: str, servers: str = NOBODY, **spec: Any) -> None:
        self.request(
            "POST",
            self.path(namespace),
            {
                "apiVersion": "ackwright.io/v1alpha1",
                "kind": "DeliveryPipeline",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "guarantee": "exactly-once",
                    "kafka": {"bootstrapServers": servers},
                    "source": {"topics": ["in"]},
                    "transform": {"sql": "SELECT key, value FROM source"},
                    "sink": {"kafka": {"topic": "out"}},
                    **spec,
                },
            },
        )

    def conditions(self, namespace: str, name: str) -> dict[str, str]:
        status = self.request("GET", self.path(namespace, name)).get("status") or {}
        return {c["type"]: f"{c['status']}/{c['reason']}: {c['message']}" for c in status.get("conditions", ())}

    def generation(self, namespace: str, name: str) -> int:
        """The generation that the operator has reconciled."""
        status = self.request("GET", self.path(namespace, name)).get("status") or {}
        return int(status.get("observedGeneration", 0))

    def edit(self, namespace: str, name: str, seconds: int) -> int:
        """Changes the interval of the trigger; returns the new generation."""
        edit = {"spec": {"trigger": {"interval": f"{seconds}s"}}}
        changed = self.request("PATCH", self.path(namespace, name), edit)
        return int(changed["metadata"]["generation"])

    def metric(self, name: str) -> dict[str, float]:
        """The samples of a metric of the operator, by their labels as in the text."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.operator.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return {m[1]: float(m[2]) for m in re.finditer(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)}

    def answers(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.operator.port}{path}", timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as e:
            return e.code
        except OSError:
            return 0

    def is_reconciled(self, namespace: str, name: str) -> bool:
        return self.generation(namespace, name) > 0

    def reconcile_edit(self, namespace: str, name: str, seconds: int) -> None:
        """Edits a pipeline and waits until the edit is reconciled."""
        edited = self.edit(namespace, name, seconds)
        wait_until(lambda: self.generation(namespace, name) == edited, f"edit of {namespace}/{name}")


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer(binaries.api_server(print_progress)) as server:
        server.install(CRD)
        yield server


@contextmanager
def running(teams: Teams) -> Iterator[Teams]:
    with teams.operator:
        wait_until(lambda: teams.answers("/readyz") == 200, "the operator is ready")
        yield teams


def test_the_loss_of_namespaces_stops_no_other_team(api: ApiServer) -> None:
    """Of three namespaces one is deleted and one loses its Role. The operator is restarted in this state."""
    teams = Teams(api, ["healthy", "deleted", "unauthorized"])
    with running(teams):
        for namespace in teams.teams:
            teams.declare(namespace, "p")
        for namespace in teams.teams:
            wait_until(lambda n=namespace: teams.is_reconciled(n, "p"), f"{namespace}/p is reconciled")  # type: ignore[misc]
        teams.request("DELETE", teams.path("deleted", "p"))
        # No controller removes what is in the namespace: the Role is removed by hand, and then the namespace itself.
        for namespace in ("deleted", "unauthorized"):
            for plural in ("roles", "rolebindings"):
                path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}/{OPERATOR}"
                teams.request("DELETE", path)
        remove_namespace(teams, "deleted")

        expected = {'namespace="deleted"': 1.0, 'namespace="healthy"': 0.0, 'namespace="unauthorized"': 1.0}
        wait_until(lambda: teams.metric("ackwright_namespace_lost") == expected, "both are reported as lost")
        teams.reconcile_edit("healthy", "p", 2)
        assert set(events(teams, "NamespaceLost")) == {"deleted", "unauthorized"}
        assert "namespace unauthorized is lost" in teams.operator.log.read_text()

        teams.operator.stop()
        teams.operator.start()
        wait_until(lambda: teams.answers("/readyz") == 200, "a new operator is ready although namespaces are lost")
        teams.reconcile_edit("healthy", "p", 3)
        assert teams.answers("/healthz") == 200

        teams.edit("unauthorized", "p", 4)
        roles = [r for r in teams.roles if r["metadata"]["namespace"] == "unauthorized"]
        applied = api.kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": roles})
        assert applied.returncode == 0, applied.stderr
        back = {'namespace="deleted"': 1.0, 'namespace="healthy"': 0.0, 'namespace="unauthorized"': 0.0}
        wait_until(lambda: teams.metric("ackwright_namespace_lost") == back, "one is back")
        wait_until(lambda: teams.generation("unauthorized", "p") == 2, "the edit meanwhile is reconciled")


def remove_namespace(teams: Teams, name: str) -> None:
    """Deletes a namespace as its controller would: it is empty, so only its finalizer is left."""
    teams.request("DELETE", f"/api/v1/namespaces/{name}")
    namespace = teams.request("GET", f"/api/v1/namespaces/{name}")
    namespace["spec"]["finalizers"] = []
    teams.request("PUT", f"/api/v1/namespaces/{name}/finalize", namespace)


def events(teams: Teams, reason: str) -> list[str]:
    """The namespaces that the operator's own Events with this reason name."""
    items = teams.request("GET", f"/api/v1/namespaces/{SYSTEM}/events")["items"]
    return [m[1] for e in items if e["reason"] == reason and (m := re.match(r"namespace (\S+)", e["message"]))]
