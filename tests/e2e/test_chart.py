"""The chart's release and GitOps tools with a real API server, an operator with the chart's permissions, and fake pods.

An upgrade restarts no driver, and pipelines outlive the release. The manifests are in test_chart_manifests.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ackwright.clients.kubernetes import connect
from ackwright.local.kafka import EmbeddedKafka
from e2e.chart_server import CHART, OPERATOR, SYSTEM, ChartServer, ReleasedOperator, chart_server, render_chart
from e2e.pods import Pods, progress
from lab import binaries
from lab.cluster import print_progress
from waiting import wait_until

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "deliverypipelines.ackwright.io.yaml"
OPS = "ops"
PIPELINES = f"/apis/ackwright.io/v1alpha1/namespaces/{OPS}/deliverypipelines"
RELEASE: dict[str, Any] = {"watchNamespaces": [OPS], "settings": {"RESYNC": "2", "PROGRESS_EVERY": "1"}}


@pytest.fixture(scope="module")
def api() -> Iterator[ChartServer]:
    with chart_server(SYSTEM, OPS) as server:
        yield server


# -- a release with running pipelines ----------------------------------------------------------------------------------


def document(kafka: EmbeddedKafka, name: str, **topic: Any) -> dict[str, Any]:
    """A pipeline. topic: further fields of both its topics."""
    source, sink = f"{name}-in", f"{name}-out"
    spec = {
        "guarantee": "exactly-once",
        "tolerate": {"brokerFailures": 0},
        "kafka": {"bootstrapServers": kafka.bootstrap_servers},
        "source": {"topics": [source]},
        "transform": {"sql": "SELECT * FROM source"},
        "sink": {"kafka": {"topic": sink}},
        "topics": [{"name": n, "partitions": 1, "replicationFactor": 1, **topic} for n in (source, sink)],
    }
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": name, "namespace": OPS},
        "spec": spec,
    }


class RunningPipelines:
    """Pipelines whose fake pods are created when a test checks them."""

    def __init__(self, api: ChartServer, kafka: EmbeddedKafka, address: str) -> None:
        self.api, self.kafka = api, kafka
        self.pods = Pods(connect(str(api.kubeconfig)), OPS, address)

    def apply(self, name: str, **topic: Any) -> None:
        self.apply_server_side(document(self.kafka, name, **topic))

    def apply_server_side(self, resource: object) -> None:
        """Applies a resource in the way of Argo CD."""
        argv = ("apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller", "-f", "-")
        applied = self.api.kubectl(*argv, stdin=resource)
        assert applied.returncode == 0, applied.stderr

    def resource(self, name: str) -> Any:
        return self.api.get(f"{PIPELINES}/{name}")

    def ready(self, *names: str) -> bool:
        """Runs the fake controllers once; returns whether all these pipelines are Ready in their current generation."""
        self.pods.act()
        resources = [self.resource(n) for n in names]
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in r["status"].get("conditions", ()))
            and r["status"].get("observedGeneration") == r["metadata"]["generation"]
            for r in resources
        )

    def children(self) -> dict[tuple[str, str], str]:
        """The resource versions of all objects of the pipelines, by kind and name; a write changes one."""
        return {(o["kind"], o["metadata"]["name"]): o["metadata"]["resourceVersion"] for o in self.pods.children()}


@pytest.fixture(scope="module")
def live(api: ChartServer) -> Iterator[RunningPipelines]:
    with EmbeddedKafka(brokers=1) as kafka, progress() as address:
        yield RunningPipelines(api, kafka, address)


def wait_for_reconciles(operator: ReleasedOperator, count: int) -> None:
    """Waits until the operator has reconciled `count` more times."""
    target = operator.reconciles() + count
    wait_until(lambda: operator.reconciles() >= target, f"{count} more reconciles")


def test_install_upgrade_and_uninstall_with_running_pipelines(api: ChartServer, live: RunningPipelines) -> None:
    # A CRD that was applied without the chart.
    applied = api.kubectl("apply", "--server-side", "-f", CRD)
    assert applied.returncode == 0, applied.stderr
    installed = api.helm(
        "install", "ackwright", CHART, "--namespace", SYSTEM, values={**RELEASE, "crds": {"enabled": False}}
    )
    assert installed.returncode == 0, installed.stderr
    with ReleasedOperator(api) as operator:
        live.apply("keeps")
        live.apply("deletes", deletionPolicy="Delete")
        wait_until(
            lambda: operator.running() and live.ready("keeps", "deletes"),
            "both pipelines are ready with the chart's permissions",
        )
        assert "Forbidden" not in operator.log.read_text(), operator.log.read_text()
    assert live.resource("keeps")["metadata"].get("finalizers", []) == []
    assert live.resource("deletes")["metadata"]["finalizers"] == ["ackwright.io/topics"]
    before = live.children()
    assert {kind for kind, _ in before} >= {"StatefulSet", "ConfigMap", "Role", "Pod"}

    later = {
        **RELEASE,
        "settings": {**RELEASE["settings"], "STUCK": "77"},
        "image": {"operator": "ackwright-operator:later"},
    }
    refused = api.helm("upgrade", "ackwright", CHART, "--namespace", SYSTEM, values=later)
    assert "--take-ownership" in (CHART / "README.md").read_text()
    assert "invalid ownership metadata" in refused.stderr, "otherwise the README need not mention it"
    upgraded = api.helm("upgrade", "ackwright", CHART, "--namespace", SYSTEM, "--take-ownership", values=later)
    assert upgraded.returncode == 0, upgraded.stderr
    with ReleasedOperator(api) as operator:
        assert operator.environment["ACKWRIGHT_STUCK"] == "77"
        wait_for_reconciles(operator, 6)
        assert live.ready("keeps", "deletes")
        assert live.children() == before, "an upgrade of the operator writes to no object of a pipeline"
        check_helm_test(api, operator)
    assert live.pods.created == {"keeps": 1, "deletes": 1}, "no driver has been restarted"

    uninstalled = api.helm("uninstall", "ackwright", "--namespace", SYSTEM, "--wait", "--timeout", "30s")
    assert uninstalled.returncode == 0, uninstalled.stderr
    assert api.request("GET", f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{OPERATOR}")[0] == 404
    assert api.request("GET", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{OPS}/rolebindings/{OPERATOR}")[0] == 404
    live.pods.act()
    assert live.children() == before, "pipelines outlive the release"

    deleted = api.kubectl("delete", "deliverypipeline", "keeps", "--namespace", OPS, "--timeout=20s")
    assert deleted.returncode == 0, deleted.stderr
    hanging = api.kubectl("delete", "deliverypipeline", "deletes", "--namespace", OPS, "--timeout=2s")
    assert hanging.returncode != 0, "without an operator its topics cannot be deleted"
    command = re.search(r"kubectl (patch deliverypipeline .*)", (CHART / "README.md").read_text())
    assert command
    argv = command[1].replace("NAMESPACE", OPS).replace("NAME", "deletes").replace("'", "").split()
    released = api.kubectl(*argv)
    assert released.returncode == 0, released.stderr
    assert api.request("GET", f"{PIPELINES}/deletes")[0] == 404
    wait_until(lambda: not live.pods.act() and not live.children(), "the pipelines' objects are garbage-collected")

    reinstalled = api.helm("install", "ackwright", CHART, "--namespace", SYSTEM, values=RELEASE)
    assert reinstalled.returncode == 0, "the CRD that the release has left prevents it: " + reinstalled.stderr
    crd = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/deliverypipelines.ackwright.io")
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def check_helm_test(api: ChartServer, operator: ReleasedOperator) -> None:
    """Runs the commands of the chart's test pod with the operator's account; with wrong arguments they must fail."""
    manifests = yaml.safe_load_all(render_chart(api, RELEASE))
    pod = next(o for o in manifests if o and o["metadata"]["name"] == "ackwright-test")
    pipelines, ready = ([sys.executable, *c["command"][1:]] for c in pod["spec"]["containers"])
    address = f"http://127.0.0.1:{operator.port}/readyz"
    for argv, environment, output in (
        (pipelines, operator.environment, "2 pipelines in namespace ops"),
        ([*pipelines[:-1], SYSTEM], operator.environment, None),  # a namespace without permissions
        ([*ready[:-1], address], operator.environment, "ok"),
        ([*ready[:-1], address.replace("readyz", "nothing")], operator.environment, None),
    ):
        completed = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (completed.returncode == 0) == (output is not None), completed.stderr
        assert (output or "") in completed.stdout


# -- GitOps ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def operator(api: ChartServer, live: RunningPipelines) -> Iterator[ReleasedOperator]:
    upgraded = api.helm(
        "upgrade", "--install", "--take-ownership", "ackwright", CHART, "--namespace", SYSTEM, values=RELEASE
    )
    assert upgraded.returncode == 0, upgraded.stderr
    wait_until(lambda: api.request("GET", PIPELINES)[0] == 200, "pipelines are served")
    with ReleasedOperator(api) as released:
        live.apply("tidy")
        wait_until(lambda: released.running() and live.ready("tidy"), "the pipeline is ready")
        yield released


def with_metadata(live: RunningPipelines, **metadata: Any) -> dict[str, Any]:
    resource = document(live.kafka, "tidy")
    resource["metadata"] |= metadata
    return resource


@pytest.mark.usefixtures("operator")
def test_defaults_make_no_difference_to_the_applied_resource(api: ChartServer, live: RunningPipelines) -> None:
    resource = document(live.kafka, "tidy")
    assert live.resource("tidy")["spec"] != resource["spec"], "the CRD has defaults"
    argv = ("diff", "--server-side", "--field-manager=argocd-controller", "-f", "-")
    assert api.kubectl(*argv, stdin=resource).stdout == ""
    resource["spec"]["transform"] = {"sql": "SELECT key FROM source"}
    assert api.kubectl(*argv, stdin=resource).returncode == 1, "the control: diff reports a real difference"


@pytest.mark.parametrize(
    "change", ["applied again", "labelled", "annotated", "applied by another", "client-side", "replaced"]
)
def test_changes_by_tools_do_not_restart_a_converged_pipeline(
    api: ChartServer, live: RunningPipelines, operator: ReleasedOperator, change: str
) -> None:
    wait_until(lambda: live.ready("tidy"), "the pipeline is ready")
    wait_for_reconciles(operator, 3)  # until the operator has written its last status
    resource, before = live.resource("tidy"), live.children()
    if change == "applied again":
        live.apply_server_side(document(live.kafka, "tidy"))
        assert live.resource("tidy")["metadata"]["resourceVersion"] == resource["metadata"]["resourceVersion"]
    elif change == "labelled":
        live.apply_server_side(with_metadata(live, labels={"app.kubernetes.io/instance": "tidy"}))
    elif change == "annotated":
        tracking = {"argocd.argoproj.io/tracking-id": "pipelines:ackwright.io/DeliveryPipeline:ops/tidy"}
        live.apply_server_side(with_metadata(live, annotations=tracking))
    elif change == "applied by another":
        applied = api.kubectl(
            "apply",
            "--server-side",
            "--field-manager=kustomize-controller",
            "-f",
            "-",
            stdin=document(live.kafka, "tidy"),
        )
        assert applied.returncode == 0, applied.stderr
    else:
        argv = ["apply"] if change == "client-side" else ["replace"]
        applied = api.kubectl(*argv, "-f", "-", stdin=document(live.kafka, "tidy"))
        assert applied.returncode == 0, applied.stderr
    wait_for_reconciles(operator, 4)
    after = live.resource("tidy")
    assert after["metadata"]["generation"] == resource["metadata"]["generation"]
    assert after["spec"] == resource["spec"]
    assert after["status"] == resource["status"]
    assert live.ready("tidy")
    assert live.children() == before


def test_an_edit_restarts_the_driver(live: RunningPipelines, operator: ReleasedOperator) -> None:
    """The control of the test above."""
    before = live.children()
    resource = document(live.kafka, "tidy")
    resource["spec"]["transform"] = {"sql": "SELECT key FROM source"}
    live.apply_server_side(resource)
    wait_until(
        lambda: operator.running() and live.ready("tidy") and live.pods.created["tidy"] == 2,
        "the driver is a new one, and ready",
    )
    assert live.children() != before


def test_a_new_pipeline_differs_from_a_reconciled_one(api: ChartServer, live: RunningPipelines) -> None:
    """The status before the operator's first write, which kstatus and Argo CD's script evaluate."""
    code, created = api.request("POST", f"{PIPELINES}?dryRun=All", document(live.kafka, "fresh"))
    assert code == 201, created
    assert created["status"] == {"observedGeneration": -1}
    assert created["metadata"]["generation"] == 1


def test_an_operator_that_starts_before_the_crd_is_served_reconciles_when_it_is() -> None:
    with ChartServer(binaries.directory(print_progress)) as api:
        for name in (SYSTEM, OPS):
            api.create_namespace(name)
        installed = api.helm(
            "install", "ackwright", CHART, "--namespace", SYSTEM, values={**RELEASE, "crds": {"enabled": False}}
        )
        assert installed.returncode == 0, installed.stderr
        with ReleasedOperator(api) as early:
            wait_until(
                lambda: "the API server has no DeliveryPipeline" in early.log.read_text(), "it logs the missing CRD"
            )
            api.install(CRD)
            code, created = api.request("POST", PIPELINES, document_without_kafka())
            assert code == 201, created

            def reconciled() -> bool:
                assert early.running(), early.log.read_text()[-1500:]
                return bool(api.get(f"{PIPELINES}/early")["status"].get("conditions"))

            wait_until(reconciled, "the pipeline has been reconciled")


def document_without_kafka() -> dict[str, Any]:
    spec = {
        "guarantee": "exactly-once",
        "kafka": {"bootstrapServers": "127.0.0.1:1"},
        "source": {"topics": ["in"]},
        "transform": {"sql": "SELECT * FROM source"},
        "sink": {"kafka": {"topic": "out"}},
    }
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "early", "namespace": OPS},
        "spec": spec,
    }
