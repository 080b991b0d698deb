"""Each template, under each of its toggles."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.render.names import MANAGED_BY, ROLE_LABEL
from ackwright.render.workload import PROGRESS_PORT
from ackwright.settings import from_environment
from chart.rendered import ALL, NAMESPACE, Object, documents, helm, objects, objects_of
from unit.render.pod_security import violations

OPERATOR = "ackwright-operator"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT = {
    ("ServiceAccount", OPERATOR),
    ("CustomResourceDefinition", "deliverypipelines.ackwright.io"),
    ("ClusterRole", "ackwright-view"),
    ("ClusterRole", "ackwright-edit"),
    ("ClusterRole", "ackwright-admin"),
    ("Role", OPERATOR),
    ("RoleBinding", OPERATOR),
    ("Service", OPERATOR),
    ("Deployment", OPERATOR),
    ("Pod", "ackwright-test"),
}


def pod(values: dict[str, Any] | None = None) -> Object:
    found: Object = objects(values)["Deployment", OPERATOR]["spec"]["template"]
    return found


def container(values: dict[str, Any] | None = None) -> Object:
    found: Object = pod(values)["spec"]["containers"][0]
    return found


def environment(values: dict[str, Any] | None = None) -> dict[str, str]:
    return {e["name"]: e["value"] for e in container(values)["env"]}


@pytest.mark.parametrize(
    ("values", "more", "less"),
    [
        ({}, set(), set()),
        ({"crds": {"enabled": False}}, set(), {("CustomResourceDefinition", "deliverypipelines.ackwright.io")}),
        (
            {"rbac": {"aggregateRoles": False}},
            set(),
            {("ClusterRole", f"ackwright-{r}") for r in ("view", "edit", "admin")},
        ),
        (
            {"watchAllNamespaces": True},
            {("ClusterRole", OPERATOR), ("ClusterRoleBinding", OPERATOR)},
            {("Role", OPERATOR), ("RoleBinding", OPERATOR)},
        ),
        ({"networkPolicy": {"enabled": True}}, {("NetworkPolicy", OPERATOR)}, set()),
        ({"podMonitor": {"enabled": True}}, {("PodMonitor", OPERATOR)}, set()),
        ({"podMonitor": {"drivers": True}}, {("PodMonitor", "ackwright-drivers")}, set()),
        ({"serviceMonitor": {"enabled": True}}, {("ServiceMonitor", OPERATOR)}, set()),
        ({"prometheusRule": {"enabled": True}}, {("PrometheusRule", "ackwright")}, set()),
        ({"dashboard": {"enabled": True}}, {("ConfigMap", "ackwright-dashboard")}, set()),
    ],
    ids=str,
)
def test_a_toggle_adds_or_removes_its_objects_and_no_others(
    values: dict[str, Any], more: set[tuple[str, str]], less: set[tuple[str, str]]
) -> None:
    assert set(objects(values)) == (DEFAULT | more) - less


@pytest.mark.parametrize("values", [{}, ALL, {"watchNamespaces": ["b", "a"]}])
def test_everything_says_whose_it_is(values: dict[str, Any]) -> None:
    for o in documents(values):
        labels = o["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "ackwright"
        if o["kind"] != "Pod":
            assert labels["app.kubernetes.io/name"] == "ackwright"
            assert labels["app.kubernetes.io/managed-by"] == "Helm"
        cluster_wide = o["kind"] in ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition")
        assert cluster_wide or o["metadata"]["namespace"], "helm's own namespace is no part of what GitOps tools render"


# -- the operator -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [("Deployment", OPERATOR), ("Pod", "ackwright-test")])
def test_pods_keep_the_restricted_standard(name: tuple[str, str]) -> None:
    found = objects()[name]
    spec = found["spec"]["template"]["spec"] if name[0] == "Deployment" else found["spec"]
    assert violations(spec) == []
    assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in spec["containers"])
    assert spec["securityContext"]["runAsUser"] == 10001


def test_the_token_is_short_lived_and_mounted_where_clients_look() -> None:
    spec = pod()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert objects()["ServiceAccount", OPERATOR]["automountServiceAccountToken"] is False
    sources = next(v["projected"]["sources"] for v in spec["volumes"] if v["name"] == "token")
    assert {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}} in sources
    paths = [i["path"] for s in sources for i in (s.get("configMap") or s.get("downwardAPI") or {}).get("items", ())]
    assert sorted(paths) == ["ca.crt", "namespace"]
    mounts = {m["mountPath"]: m.get("readOnly") for m in container()["volumeMounts"]}
    assert mounts == {"/tmp": None, TOKEN: True}  # noqa: S108 - of the container


def test_there_is_never_a_second_operator_and_the_first_may_end_its_looks() -> None:
    found = objects()["Deployment", OPERATOR]["spec"]
    assert (found["replicas"], found["strategy"]) == (1, {"type": "Recreate"})
    assert found["selector"]["matchLabels"].items() <= found["template"]["metadata"]["labels"].items()
    assert found["template"]["spec"]["terminationGracePeriodSeconds"] == 60


def test_probes_ask_what_the_operator_answers() -> None:
    found = container()
    paths = {probe: found[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {p["path"] for p in paths.values()} == {"/readyz", "/healthz"}
    assert {p["port"] for p in paths.values()} == {"metrics"}
    assert paths["livenessProbe"]["path"] == "/healthz"
    assert found["ports"] == [{"name": "metrics", "containerPort": from_environment({}).metrics_port}]


def test_the_environment_is_read_by_the_operator_as_it_is_meant() -> None:
    assert "ACKWRIGHT_NAMESPACES" not in environment(), "its own namespace, wherever the manifests are applied"
    found = from_environment(
        environment(
            {
                "watchNamespaces": ["b", "a", "b"],
                "image": {
                    "spark": "spark@sha256:" + "0" * 64,
                    "pullPolicy": "Always",
                    "pullSecrets": [{"name": "for-the-operator"}],
                    "sparkPullSecrets": [{"name": "registry"}, {"name": "mirror.example"}],
                },
                "settings": {"STUCK": 7.5, "WORKERS": "3", "REPLICATION_RATE": 104857600},
            }
        )
    )
    assert found.namespaces == ("a", "b")
    assert found.image_pull_secrets == ("registry", "mirror.example")
    assert "ACKWRIGHT_IMAGE_PULL_SECRETS" not in environment({"image": {"pullSecrets": [{"name": "for-the-operator"}]}})
    assert (found.spark_image, found.image_pull_policy) == ("spark@sha256:" + "0" * 64, "Always")
    assert (found.stuck, found.workers, found.replication_rate) == (7.5, 3, 104857600)


def test_all_namespaces_are_asked_for_by_an_option() -> None:
    assert container({"watchAllNamespaces": True, "watchNamespaces": ["a"]})["args"] == ["operator", "--all-namespaces"]
    assert "ACKWRIGHT_NAMESPACES" not in environment({"watchAllNamespaces": True, "watchNamespaces": ["a"]})
    assert container()["args"] == ["operator"]


def test_what_is_said_of_the_pod_is_in_it() -> None:
    said = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"podAffinity": {"x": 1}},
        "priorityClassName": "high",
    }
    values = {
        **said,
        "image": {"pullSecrets": [{"name": "registry"}]},
        "podLabels": {"team": "data", "app.kubernetes.io/name": "other"},
    }
    for spec in (pod(values)["spec"], objects(values)["Pod", "ackwright-test"]["spec"]):
        assert {k: spec[k] for k in said} == said
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
    labels = pod(values)["metadata"]["labels"]
    assert labels["team"] == "data"
    assert labels["app.kubernetes.io/name"] == "ackwright", "the selector's own labels are not to be replaced"
    assert (
        "annotations"
        not in pod({"podAnnotations": {"prometheus.io/scrape": None, "prometheus.io/port": None}})["metadata"]
    )
    assert container({"resources": {"limits": {"memory": "1Gi"}}})["resources"]["limits"] == {"memory": "1Gi"}


def test_an_image_by_digest_is_taken_as_it_is() -> None:
    image = "registry.example:5000/ackwright-operator@sha256:" + "a" * 64
    assert container({"image": {"operator": image}})["image"] == image
    assert {
        c["image"] for c in objects({"image": {"operator": image}})["Pod", "ackwright-test"]["spec"]["containers"]
    } == {image}


# -- rights -------------------------------------------------------------------------------------------------------------------


def test_rights_are_given_in_the_watched_namespaces_and_nowhere_else() -> None:
    values = {"watchNamespaces": ["b", "a", "b"]}
    for kind in ("Role", "RoleBinding"):
        assert [o["metadata"]["namespace"] for o in objects_of(kind, values)] == ["a", "b"]
    assert [o["metadata"]["name"] for o in objects_of("ClusterRole", values)] == [
        "ackwright-view",
        "ackwright-edit",
        "ackwright-admin",
    ]
    assert objects_of("ClusterRoleBinding", values) == []
    subject = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": NAMESPACE}
    assert all(o["subjects"] == [subject] for o in objects_of("RoleBinding", values))
    assert [o["metadata"]["namespace"] for o in objects_of("Role")] == [NAMESPACE]


def test_rights_in_all_namespaces_are_the_same_ones() -> None:
    everywhere = objects({"watchAllNamespaces": True})
    assert everywhere["ClusterRole", OPERATOR]["rules"] == objects()["Role", OPERATOR]["rules"]


def test_aggregate_roles_add_to_each_other_and_hold_pipelines_alone() -> None:
    found = {r: objects()["ClusterRole", f"ackwright-{r}"] for r in ("view", "edit", "admin")}
    for role, o in found.items():
        assert o["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"
        assert {g for rule in o["rules"] for g in rule["apiGroups"]} == {"ackwright.io"}
    verbs = {r: {v for rule in o["rules"] for v in rule["verbs"]} for r, o in found.items()}
    assert verbs["view"] == {"get", "list", "watch"}
    assert verbs["edit"] == {"create", "update", "patch", "delete", "deletecollection"}
    assert [rule["resources"] for rule in found["admin"]["rules"]] == [["deliverypipelines/status"]]


# -- network and monitoring ---------------------------------------------------------------------------------------------------


def test_the_network_policy_is_of_the_operator_and_only_as_tight_as_asked_for() -> None:
    spec = objects(ALL)["NetworkPolicy", OPERATOR]["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == [{"ports": [{"port": "metrics", "protocol": "TCP"}]}]
    assert spec["podSelector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()
    peer, broker = {"namespaceSelector": {"matchLabels": {"a": "b"}}}, {"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}
    tight = {"networkPolicy": {"enabled": True, "metricsFrom": [peer], "egress": [broker]}}
    spec = objects(tight)["NetworkPolicy", OPERATOR]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"][0]["from"] == [peer]
    assert {p["port"] for p in spec["egress"][0]["ports"]} == {53}
    assert spec["egress"][1:] == [broker]


def test_monitors_find_the_operator_and_leave_the_pipelines_labels_alone() -> None:
    found = objects(ALL)
    monitors = found["PodMonitor", OPERATOR]["spec"], found["ServiceMonitor", OPERATOR]["spec"]
    service, labels = found["Service", OPERATOR], pod()["metadata"]["labels"]
    assert monitors[0]["selector"]["matchLabels"].items() <= labels.items()
    assert monitors[1]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert [p["targetPort"] for p in service["spec"]["ports"]] == ["metrics"]
    for endpoint in (*monitors[0]["podMetricsEndpoints"], *monitors[1]["endpoints"]):
        assert endpoint == {"port": "metrics", "honorLabels": True}
    chosen = {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}}
    for kind, value in (("PodMonitor", "podMonitor"), ("ServiceMonitor", "serviceMonitor")):
        found_one = objects({value: chosen})[kind, OPERATOR]
        assert found_one["metadata"]["labels"]["release"] == "prometheus"
        endpoints = found_one["spec"].get("podMetricsEndpoints") or found_one["spec"]["endpoints"]
        assert endpoints[0]["interval"] == "15s"


def test_the_monitor_of_drivers_looks_where_pipelines_are() -> None:
    values: dict[str, Any] = {"podMonitor": {"drivers": True}, "watchNamespaces": ["ops"]}
    spec = objects(values)["PodMonitor", "ackwright-drivers"]["spec"]
    assert spec["namespaceSelector"] == {"matchNames": ["ops"]}
    assert spec["selector"]["matchLabels"] == {"app.kubernetes.io/managed-by": MANAGED_BY, ROLE_LABEL: "driver"}
    assert PROGRESS_PORT == 8090, "values.yaml and the README name it"
    everywhere = objects(values | {"watchAllNamespaces": True})["PodMonitor", "ackwright-drivers"]["spec"]
    assert everywhere["namespaceSelector"] == {"any": True}


# -- helm test ----------------------------------------------------------------------------------------------------------------


def test_the_test_is_a_hook_and_not_the_services_pod() -> None:
    found = objects({"watchNamespaces": ["b", "a"]})["Pod", "ackwright-test"]
    assert found["metadata"]["annotations"]["helm.sh/hook"] == "test"
    selected = objects()["Service", OPERATOR]["spec"]["selector"]
    assert not selected.items() <= found["metadata"]["labels"].items()
    pipelines, operator = found["spec"]["containers"]
    assert pipelines["command"][-1] == "a", "a namespace in which the account has rights"
    assert operator["command"][-1] == "http://ackwright-operator.ackwright-system.svc:8080/readyz"


def test_helm_is_that_of_the_lab() -> None:
    assert helm().parent.name.startswith("helm-")
