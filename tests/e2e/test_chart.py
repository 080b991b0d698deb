"""The chart, and what GitOps tools do with it, before a real API server: everything is accepted, an upgrade restarts no driver, and
pipelines outlive the release. The operator is a real process with the chart's own settings and rights; pods are only written down."""

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
from e2e.chart_server import CHART, OPERATOR, SYSTEM, ReleasedOperator, Server, dry_run, monitoring_crd, rendered
from e2e.pods import Pods, progress
from lab import binaries
from waiting import wait_until

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "deliverypipelines.ackwright.io.yaml"
OPS = "ops"
PIPELINES = f"/apis/ackwright.io/v1alpha1/namespaces/{OPS}/deliverypipelines"
RELEASE = {"watchNamespaces": [OPS], "settings": {"RESYNC": "2", "PROGRESS_EVERY": "1"}}
EVERYTHING = {
    "podMonitor": {"enabled": True, "drivers": True},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 9092, "protocol": "TCP"}]}],
    },
    "image": {
        "operator": "registry.example/ackwright-operator@sha256:" + "a" * 64,
        "pullSecrets": [{"name": "registry"}],
    },
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
            }
        }
    },
    "priorityClassName": "system-cluster-critical",
    "podLabels": {"team": "data"},
    "settings": {"STUCK": 300, "WORKERS": "4"},
}


@pytest.fixture(scope="module")
def api() -> Iterator[Server]:
    with Server(binaries.directory(lambda line: print(line, file=sys.stderr))) as server:
        for name in (SYSTEM, OPS):
            server.namespace(name)
        for plural, kind in (
            ("podmonitors", "PodMonitor"),
            ("servicemonitors", "ServiceMonitor"),
            ("prometheusrules", "PrometheusRule"),
        ):
            made = server.kubectl("apply", "-f", "-", stdin=monitoring_crd(plural, kind))
            assert made.returncode == 0, made.stderr
        yield server


# -- what is rendered ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [{}, {"watchNamespaces": [OPS, SYSTEM]}, {"watchAllNamespaces": True}, EVERYTHING], ids=range(4)
)
def test_the_api_server_takes_what_is_rendered_without_a_warning(api: Server, values: dict[str, Any]) -> None:
    manifests = rendered(api, values)
    done = dry_run(api, manifests)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert len(done.stdout.splitlines()) == len([o for o in yaml.safe_load_all(manifests) if o])


@pytest.mark.parametrize(
    ("said", "instead", "complaint"),
    [
        ("readOnlyRootFilesystem:", "readOnlyRootFilesystems:", "readOnlyRootFilesystems"),
        ("runAsNonRoot: true", "runAsNonRoot: false", "violate PodSecurity"),
        ("periodSeconds: 5", "periodSeconds: -5", "greater than or equal"),
    ],
)
def test_it_would_not_take_everything(api: Server, said: str, instead: str, complaint: str) -> None:
    manifests = rendered(api, {})
    assert said in manifests
    assert complaint in dry_run(api, manifests.replace(said, instead)).stderr


def test_the_kustomize_base_is_taken_and_can_be_moved(api: Server) -> None:
    for directory, namespace in ((ROOT / "deploy" / "base", SYSTEM), (ROOT / "examples" / "gitops" / "kustomize", OPS)):
        built = api.kubectl("kustomize", directory)
        assert built.returncode == 0, built.stderr
        done = dry_run(api, built.stdout)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        objects = [o for o in yaml.safe_load_all(built.stdout) if o]
        assert {o["metadata"].get("namespace", namespace) for o in objects} == {namespace}
        binding = next(o for o in objects if o["kind"] == "RoleBinding")
        assert [s["namespace"] for s in binding["subjects"]] == [namespace]
    container = next(o for o in objects if o["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example/ackwright-operator:0.1.0"
    assert {"name": "ACKWRIGHT_SPARK_IMAGE", "value": "registry.example/ackwright-spark:0.1.0"} in container["env"]
    assert any(e["name"] == "ACKWRIGHT_IMAGE_PULL_POLICY" for e in container["env"]), "the overlay adds to the base"


@pytest.mark.parametrize(
    ("values", "told", "untold"),
    [
        ({}, ["helm test ackwright --namespace ackwright-system", "name theirs in watchNamespaces"], ["crds/"]),
        (
            {"watchNamespaces": [OPS, "z"]},
            ["kubectl apply --namespace ops --filename", "pipelines in ops, z."],
            ["watchNamespaces"],
        ),
        ({"watchAllNamespaces": True}, ["pipelines in every namespace."], ["watchNamespaces"]),
        ({"crds": {"enabled": False}}, ["kubectl apply --server-side --filename crds/"], []),
    ],
    ids=range(4),
)
def test_the_notes_say_the_next_command(
    api: Server, values: dict[str, Any], told: list[str], untold: list[str]
) -> None:
    done = api.helm("install", "ackwright", CHART, "--namespace", SYSTEM, "--dry-run=server", values=values)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.split("NOTES:\n")[1]
    assert [t for t in told if t not in notes] == [], notes
    assert [t for t in untold if t in notes] == [], notes


# -- a release, with live pipelines -------------------------------------------------------------------------------------------


def document(kafka: EmbeddedKafka, name: str, **topic: Any) -> dict[str, Any]:
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


class Live:
    """Pipelines with pods that are written down when the test looks."""

    def __init__(self, api: Server, kafka: EmbeddedKafka, address: str) -> None:
        self.api, self.kafka = api, kafka
        self.pods = Pods(connect(str(api.kubeconfig)), OPS, address)

    def apply(self, name: str, **topic: Any) -> None:
        self.server_side(document(self.kafka, name, **topic))

    def server_side(self, wanted: object) -> None:
        argv = ("apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller", "-f", "-")
        done = self.api.kubectl(*argv, stdin=wanted)
        assert done.returncode == 0, done.stderr

    def resource(self, name: str) -> Any:
        return self.api.get(f"{PIPELINES}/{name}")

    def ready(self, *names: str) -> bool:
        self.pods.act()
        found = [self.resource(n) for n in names]
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in r["status"].get("conditions", ()))
            and r["status"].get("observedGeneration") == r["metadata"]["generation"]
            for r in found
        )

    def children(self) -> dict[tuple[str, str], str]:
        """Everything of the pipelines, with its version: the same as before if nobody has written anything."""
        return {(o["kind"], o["metadata"]["name"]): o["metadata"]["resourceVersion"] for o in self.pods.children()}


@pytest.fixture(scope="module")
def live(api: Server) -> Iterator[Live]:
    with EmbeddedKafka(brokers=1) as kafka, progress() as address:
        yield Live(api, kafka, address)


def looked(operator: ReleasedOperator, times: int) -> None:
    """Waits until it has looked so often from now on."""
    wanted = operator.reconciles() + times
    wait_until(lambda: operator.reconciles() >= wanted, f"{times} more looks")


def test_installed_upgraded_and_uninstalled_under_live_pipelines(api: Server, live: Live) -> None:
    # As it was before the definition came with the chart.
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
            "both pipelines are ready with the chart's rights",
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
    }  # type: ignore[dict-item]
    refused = api.helm("upgrade", "ackwright", CHART, "--namespace", SYSTEM, values=later)
    assert "--take-ownership" in (CHART / "README.md").read_text()
    assert "invalid ownership metadata" in refused.stderr, "else the README need not speak of it"
    upgraded = api.helm("upgrade", "ackwright", CHART, "--namespace", SYSTEM, "--take-ownership", values=later)
    assert upgraded.returncode == 0, upgraded.stderr
    with ReleasedOperator(api) as operator:
        assert operator.environment["ACKWRIGHT_STUCK"] == "77"
        looked(operator, 6)
        assert live.ready("keeps", "deletes")
        assert live.children() == before, "an upgrade of the operator writes nothing of a pipeline's"
        check_helm_test(api, operator)
    assert live.pods.made == {"keeps": 1, "deletes": 1}, "no driver has been restarted"

    gone = api.helm("uninstall", "ackwright", "--namespace", SYSTEM, "--wait", "--timeout", "30s")
    assert gone.returncode == 0, gone.stderr
    assert api.request("GET", f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{OPERATOR}")[0] == 404
    assert api.request("GET", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{OPS}/rolebindings/{OPERATOR}")[0] == 404
    live.pods.act()
    assert live.children() == before, "pipelines outlive the release"

    deleted = api.kubectl("delete", "deliverypipeline", "keeps", "--namespace", OPS, "--timeout=20s")
    assert deleted.returncode == 0, deleted.stderr
    hanging = api.kubectl("delete", "deliverypipeline", "deletes", "--namespace", OPS, "--timeout=2s")
    assert hanging.returncode != 0, "nobody is there to delete its topics"
    command = re.search(r"kubectl (patch deliverypipeline .*)", (CHART / "README.md").read_text())
    assert command
    argv = command[1].replace("NAMESPACE", OPS).replace("NAME", "deletes").replace("'", "").split()
    released = api.kubectl(*argv)
    assert released.returncode == 0, released.stderr
    assert api.request("GET", f"{PIPELINES}/deletes")[0] == 404
    wait_until(lambda: not live.pods.act() and not live.children(), "what the pipelines owned is collected")

    again = api.helm("install", "ackwright", CHART, "--namespace", SYSTEM, values=RELEASE)
    assert again.returncode == 0, "the definition that has stayed is in the way: " + again.stderr
    kept = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/deliverypipelines.ackwright.io")
    assert kept["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def check_helm_test(api: Server, operator: ReleasedOperator) -> None:
    """The commands of the test's pod, by the operator's account; each fails where what it asks for is not there."""
    pod = next(o for o in yaml.safe_load_all(rendered(api, RELEASE)) if o and o["metadata"]["name"] == "ackwright-test")
    pipelines, ready = ([sys.executable, *c["command"][1:]] for c in pod["spec"]["containers"])
    address = f"http://127.0.0.1:{operator.port}/readyz"
    for argv, environment, outcome in (
        (pipelines, operator.environment, "2 pipelines in namespace ops"),
        ([*pipelines[:-1], SYSTEM], operator.environment, None),  # where the account has no rights
        ([*ready[:-1], address], operator.environment, "ok"),
        ([*ready[:-1], address.replace("readyz", "nothing")], operator.environment, None),
    ):
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode == 0) == (outcome is not None), done.stderr
        assert (outcome or "") in done.stdout


# -- GitOps -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def operator(api: Server, live: Live) -> Iterator[ReleasedOperator]:
    upgraded = api.helm(
        "upgrade", "--install", "--take-ownership", "ackwright", CHART, "--namespace", SYSTEM, values=RELEASE
    )
    assert upgraded.returncode == 0, upgraded.stderr
    wait_until(lambda: api.request("GET", PIPELINES)[0] == 200, "pipelines are served")
    with ReleasedOperator(api) as found:
        live.apply("tidy")
        wait_until(lambda: found.running() and live.ready("tidy"), "the pipeline is ready")
        yield found


def edited(live: Live, **meta: Any) -> dict[str, Any]:
    wanted = document(live.kafka, "tidy")
    wanted["metadata"] |= meta
    return wanted


@pytest.mark.usefixtures("operator")
def test_defaults_make_no_difference_to_what_was_applied(api: Server, live: Live) -> None:
    wanted = document(live.kafka, "tidy")
    assert live.resource("tidy")["spec"] != wanted["spec"], "the definition has defaults"
    argv = ("diff", "--server-side", "--field-manager=argocd-controller", "-f", "-")
    assert api.kubectl(*argv, stdin=wanted).stdout == ""
    wanted["spec"]["transform"] = {"sql": "SELECT key FROM source"}
    assert api.kubectl(*argv, stdin=wanted).returncode == 1, "it would see a difference"


@pytest.mark.parametrize(
    "way", ["applied again", "labelled", "annotated", "applied by another", "client-side", "replaced"]
)
def test_what_tools_do_to_a_converged_pipeline_restarts_nothing(
    api: Server, live: Live, operator: ReleasedOperator, way: str
) -> None:
    wait_until(lambda: live.ready("tidy"), "the pipeline is ready")
    looked(operator, 3)  # its last own words are written
    resource, before = live.resource("tidy"), live.children()
    if way == "applied again":
        live.server_side(document(live.kafka, "tidy"))
        assert live.resource("tidy")["metadata"]["resourceVersion"] == resource["metadata"]["resourceVersion"]
    elif way == "labelled":
        live.server_side(edited(live, labels={"app.kubernetes.io/instance": "tidy"}))
    elif way == "annotated":
        live.server_side(
            edited(
                live, annotations={"argocd.argoproj.io/tracking-id": "pipelines:ackwright.io/DeliveryPipeline:ops/tidy"}
            )
        )
    elif way == "applied by another":
        done = api.kubectl(
            "apply",
            "--server-side",
            "--field-manager=kustomize-controller",
            "-f",
            "-",
            stdin=document(live.kafka, "tidy"),
        )
        assert done.returncode == 0, done.stderr
    else:
        argv = ["apply"] if way == "client-side" else ["replace"]
        done = api.kubectl(*argv, "-f", "-", stdin=document(live.kafka, "tidy"))
        assert done.returncode == 0, done.stderr
    looked(operator, 4)
    after = live.resource("tidy")
    assert after["metadata"]["generation"] == resource["metadata"]["generation"]
    assert after["spec"] == resource["spec"]
    assert after["status"] == resource["status"]
    assert live.ready("tidy")
    assert live.children() == before


def test_an_edit_is_seen_all_the_same(live: Live, operator: ReleasedOperator) -> None:
    """Whether the test above could see anything."""
    before = live.children()
    wanted = document(live.kafka, "tidy")
    wanted["spec"]["transform"] = {"sql": "SELECT key FROM source"}
    live.server_side(wanted)
    wait_until(
        lambda: operator.running() and live.ready("tidy") and live.pods.made["tidy"] == 2,
        "the driver is a new one, and ready",
    )
    assert live.children() != before


def test_a_new_pipeline_is_not_taken_for_one_that_was_looked_at(api: Server, live: Live) -> None:
    """What the API server hands out before the operator has written anything; kstatus and Argo CD's script are told by it."""
    code, made = api.request("POST", f"{PIPELINES}?dryRun=All", document(live.kafka, "fresh"))
    assert code == 201, made
    assert made["status"] == {"observedGeneration": -1}
    assert made["metadata"]["generation"] == 1


def test_an_operator_that_starts_before_the_definition_is_served_begins_when_it_is() -> None:
    with Server(binaries.directory(lambda line: print(line, file=sys.stderr))) as api:
        for name in (SYSTEM, OPS):
            api.namespace(name)
        installed = api.helm(
            "install", "ackwright", CHART, "--namespace", SYSTEM, values={**RELEASE, "crds": {"enabled": False}}
        )
        assert installed.returncode == 0, installed.stderr
        with ReleasedOperator(api) as early:
            wait_until(lambda: "there is no DeliveryPipeline" in early.log.read_text(), "it says what it misses")
            api.install(CRD)
            code, made = api.request("POST", PIPELINES, document_without_kafka())
            assert code == 201, made

            def seen() -> bool:
                assert early.running(), early.log.read_text()[-1500:]
                return bool(api.get(f"{PIPELINES}/early")["status"].get("conditions"))

            wait_until(seen, "the pipeline has been looked at")


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
