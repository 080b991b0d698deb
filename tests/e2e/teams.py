"""An operator with several namespaces, on an API server without controllers."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ackwright.render.names import MANAGED_BY, PIPELINE_LABEL, ROLE_LABEL
from chart.rendered import documents
from chart.rendered import objects as rendered_objects
from command import ACKWRIGHT
from e2e.api_server import ApiServer
from e2e.operator_process import OperatorProcess
from waiting import wait_until

Object = dict[str, Any]

CRD = Path(__file__).parents[2] / "crds" / "deliverypipelines.ackwright.io.yaml"
SYSTEM, OPERATOR = "ackwright-system", "ackwright-operator"
DELETIONS = f"ackwright-deletions-{SYSTEM}"  # what it may do in namespaces that are deleted
_DELETIONS_KINDS = (
    "clusterrole",
    "clusterrolebinding",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
)
NOBODY = "127.0.0.1:1"  # an address without a broker


class Teams:
    """An API server with namespaces of teams, and an operator that watches them."""

    def __init__(self, api: ApiServer, teams: Sequence[str], values: Mapping[str, Any] | None = None) -> None:
        self.api, self.teams = api, tuple(teams)
        for namespace in (SYSTEM, *teams):
            code, answer = api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            assert code in (201, 409), answer  # the operator's namespace is that of all tests
        manifests = rendered_objects({"watchNamespaces": list(teams), **(values or {})})
        for (kind, _), manifest in manifests.items():
            if kind == "ServiceAccount":
                code, answer = api.request("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", manifest)
                assert code in (201, 409), answer
        self.roles = self._apply_roles(values or {})
        deployment = manifests["Deployment", OPERATOR]["spec"]["template"]["spec"]["containers"][0]
        settings = {e["name"]: e["value"] for e in deployment["env"]}
        self._arguments, self._settings = deployment["args"], settings
        self.operator = self.new_replica()

    def new_replica(self, program: Sequence[str] = ACKWRIGHT, **settings: str) -> OperatorProcess:
        """Another process of the operator, not started yet. program: instead of `ackwright`. settings: further
        environment variables.
        """
        variables = {**self._settings, **settings}
        return OperatorProcess(self.api, SYSTEM, OPERATOR, self._arguments, variables, program=program)

    def _apply_roles(self, values: Mapping[str, Any]) -> list[Object]:
        manifests = documents({"watchNamespaces": list(self.teams), **values})
        roles = [o for o in manifests if o["kind"] in ("Role", "RoleBinding")]
        deletions = [o for o in manifests if o["metadata"]["name"] == DELETIONS]
        for kind in _DELETIONS_KINDS if not deletions else ():  # those of another test
            self.api.kubectl("delete", kind, DELETIONS, "--ignore-not-found")
        items = [*roles, *deletions]
        applied = self.api.kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": items})
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
        return self.operator.metric(name)

    def answers(self, path: str) -> int:
        return self.operator.answers(path)

    def is_reconciled(self, namespace: str, name: str) -> bool:
        return self.generation(namespace, name) > 0

    def reconcile_edit(self, namespace: str, name: str, seconds: int) -> None:
        """Edits a pipeline and waits until the edit is reconciled."""
        edited = self.edit(namespace, name, seconds)
        wait_until(lambda: self.generation(namespace, name) == edited, f"edit of {namespace}/{name}")


@contextmanager
def running(teams: Teams) -> Iterator[Teams]:
    with teams.operator:
        wait_until(lambda: teams.answers("/readyz") == 200, "the operator is ready")
        yield teams


@contextmanager
def dead_brokers(number: int) -> Iterator[list[socket.socket]]:
    """Listeners whose connections the kernel accepts, and which never answer."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]


def connected(brokers: Sequence[socket.socket]) -> int:
    """How many of these listeners a client has connected to."""
    return len(select.select(brokers, [], [], 0)[0])


def create_driver(teams: Teams, namespace: str, pipeline: str, address: str) -> None:
    """Creates the pod of a driver that runs at this IP address."""
    labels = {
        "app.kubernetes.io/managed-by": MANAGED_BY,
        PIPELINE_LABEL: pipeline,
        ROLE_LABEL: "driver",
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    container = {"name": "driver", "image": "none"}
    pod = {
        "metadata": {"name": f"{pipeline}-0", "labels": labels},
        "spec": {"nodeName": "node-1", "containers": [container]},
    }
    teams.request("POST", path, pod)
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    teams.request("PATCH", f"{path}/{pipeline}-0/status", {"status": status})
