"""Each template, with each of its options."""

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
    ("PodDisruptionBudget", OPERATOR),
    ("Pod", "ackwright-test"),
}


def pod(values: dict[str, Any] | None = None) -> Object:
    template: Object = objects(values)["Deployment", OPERATOR]["spec"]["template"]
    return template


def container(values: dict[str, Any] | None = None) -> Object:
    first: Object = pod(values)["spec"]["containers"][0]
    return first


def environment(values: dict[str, Any] | None = None) -> dict[str, str]:
    return {e["name"]: e["value"] for e in container(values)["env"]}


@pytest.mark.parametrize(
    ("values", "added", "removed"),
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
def test_an_option_adds_or_removes_only_its_objects(
    values: dict[str, Any], added: set[tuple[str, str]], removed: set[tuple[str, str]]
) -> None:
    assert set(objects(values)) == (DEFAULT | added) - removed


CLUSTER_WIDE = {
    *("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}


@pytest.mark.parametrize("values", [{}, ALL, {"watchNamespaces": ["b", "a"]}])
def test_every_object_has_the_releases_labels_and_a_namespace(values: dict[str, Any]) -> None:
    for o in documents(values):
        labels = o["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "ackwright"
        if o["kind"] != "Pod":
            assert labels["app.kubernetes.io/name"] == "ackwright"
            assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert o["kind"] in CLUSTER_WIDE or o["metadata"]["namespace"], (
            "GitOps tools do not add the release's namespace"
        )


# -- the operator ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [("Deployment", OPERATOR), ("Pod", "ackwright-test")])
def test_pods_meet_the_restricted_standard(name: tuple[str, str]) -> None:
    resource = objects()[name]
    spec = resource["spec"]["template"]["spec"] if name[0] == "Deployment" else resource["spec"]
    assert violations(spec) == []
    assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in spec["containers"])
    assert spec["securityContext"]["runAsUser"] == 10001


def test_the_token_is_short_lived_and_mounted_at_the_default_path() -> None:
    spec = pod()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert objects()["ServiceAccount", OPERATOR]["automountServiceAccountToken"] is False
    sources = next(v["projected"]["sources"] for v in spec["volumes"] if v["name"] == "token")
    assert {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}} in sources
    paths = [i["path"] for s in sources for i in (s.get("configMap") or s.get("downwardAPI") or {}).get("items", ())]
    assert sorted(paths) == ["ca.crt", "namespace"]
    mounts = {m["mountPath"]: m.get("readOnly") for m in container()["volumeMounts"]}
    assert mounts == {"/tmp": None, TOKEN: True}  # noqa: S108 - a path in the container


def test_two_replicas_are_on_different_nodes_and_one_is_evicted_at_a_time() -> None:
    manifests = objects()
    spec, budget = manifests["Deployment", OPERATOR]["spec"], manifests["PodDisruptionBudget", OPERATOR]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["replicas"] == 2
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    (term,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert term["podAffinityTerm"]["labelSelector"]["matchLabels"].items() <= labels.items()


def test_a_single_replica_needs_neither_a_budget_nor_another_node() -> None:
    manifests = objects({"replicas": 1})
    assert manifests["Deployment", OPERATOR]["spec"]["replicas"] == 1
    assert ("PodDisruptionBudget", OPERATOR) not in manifests
    assert "affinity" not in manifests["Deployment", OPERATOR]["spec"]["template"]["spec"]


def test_an_upgrade_starts_a_replica_before_it_ends_one_which_has_time_to_finish_its_reconciles() -> None:
    spec = objects()["Deployment", OPERATOR]["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 60


def test_probes_use_the_operators_paths() -> None:
    operator = container()
    paths = {probe: operator[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {p["path"] for p in paths.values()} == {"/readyz", "/healthz"}
    assert {p["port"] for p in paths.values()} == {"metrics"}
    assert paths["livenessProbe"]["path"] == "/healthz"
    assert operator["ports"] == [{"name": "metrics", "containerPort": from_environment({}).metrics_port}]


def test_the_operator_reads_the_values_from_its_environment() -> None:
    assert "ACKWRIGHT_NAMESPACES" not in environment(), "the default is the operator's namespace"
    settings = from_environment(
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
    assert settings.namespaces == ("a", "b")
    assert settings.image_pull_secrets == ("registry", "mirror.example")
    assert "ACKWRIGHT_IMAGE_PULL_SECRETS" not in environment({"image": {"pullSecrets": [{"name": "for-the-operator"}]}})
    assert (settings.spark_image, settings.image_pull_policy) == ("spark@sha256:" + "0" * 64, "Always")
    assert (settings.stuck, settings.workers, settings.replication_rate) == (7.5, 3, 104857600)


def test_all_namespaces_are_selected_by_a_command_line_option() -> None:
    assert container({"watchAllNamespaces": True, "watchNamespaces": ["a"]})["args"] == ["operator", "--all-namespaces"]
    assert "ACKWRIGHT_NAMESPACES" not in environment({"watchAllNamespaces": True, "watchNamespaces": ["a"]})
    assert container()["args"] == ["operator"]


def test_the_pod_contains_the_values_for_it() -> None:
    placement = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"podAffinity": {"x": 1}},
        "priorityClassName": "high",
    }
    values = {
        **placement,
        "image": {"pullSecrets": [{"name": "registry"}]},
        "podLabels": {"team": "data", "app.kubernetes.io/name": "other"},
    }
    for spec in (pod(values)["spec"], objects(values)["Pod", "ackwright-test"]["spec"]):
        assert {k: spec[k] for k in placement} == placement
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
    labels = pod(values)["metadata"]["labels"]
    assert labels["team"] == "data"
    assert labels["app.kubernetes.io/name"] == "ackwright", "podLabels cannot replace the selector's labels"
    assert (
        "annotations"
        not in pod({"podAnnotations": {"prometheus.io/scrape": None, "prometheus.io/port": None}})["metadata"]
    )
    assert container({"resources": {"limits": {"memory": "1Gi"}}})["resources"]["limits"] == {"memory": "1Gi"}


def test_an_image_with_a_digest_is_not_changed() -> None:
    image = "registry.example:5000/ackwright-operator@sha256:" + "a" * 64
    assert container({"image": {"operator": image}})["image"] == image
    assert {
        c["image"] for c in objects({"image": {"operator": image}})["Pod", "ackwright-test"]["spec"]["containers"]
    } == {image}


# -- permissions -------------------------------------------------------------------------------------------------------


def test_the_operator_has_permissions_only_in_the_watched_namespaces() -> None:
    values = {"watchNamespaces": ["b", "a", "b"], "rbac": {"deletions": False}}
    for kind in ("Role", "RoleBinding"):
        assert [o["metadata"]["namespace"] for o in objects_of(kind, values)] == ["a", "b", NAMESPACE]
    assert [o["metadata"]["name"] for o in objects_of("ClusterRole", values)] == [
        "ackwright-view",
        "ackwright-edit",
        "ackwright-admin",
    ]
    assert objects_of("ClusterRoleBinding", values) == []
    subject = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": NAMESPACE}
    assert all(o["subjects"] == [subject] for o in objects_of("RoleBinding", values))
    assert [o["metadata"]["namespace"] for o in objects_of("Role")] == [NAMESPACE]


def test_permissions_in_all_namespaces_are_the_same_as_in_one() -> None:
    everywhere = objects({"watchAllNamespaces": True})
    assert everywhere["ClusterRole", OPERATOR]["rules"] == objects()["Role", OPERATOR]["rules"]


def test_aggregate_roles_extend_each_other_and_contain_only_pipelines() -> None:
    roles = {r: objects()["ClusterRole", f"ackwright-{r}"] for r in ("view", "edit", "admin")}
    for role, o in roles.items():
        assert o["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"
        assert {g for rule in o["rules"] for g in rule["apiGroups"]} == {"ackwright.io"}
    verbs = {r: {v for rule in o["rules"] for v in rule["verbs"]} for r, o in roles.items()}
    assert verbs["view"] == {"get", "list", "watch"}
    assert verbs["edit"] == {"create", "update", "patch", "delete", "deletecollection"}
    assert [rule["resources"] for rule in roles["admin"]["rules"]] == [["deliverypipelines/status"]]


# -- network and monitoring --------------------------------------------------------------------------------------------


def test_the_network_policy_selects_the_operator_and_restricts_only_what_the_values_name() -> None:
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


def test_monitors_select_the_operator_and_keep_the_pipelines_labels() -> None:
    rendered = objects(ALL)
    monitors = rendered["PodMonitor", OPERATOR]["spec"], rendered["ServiceMonitor", OPERATOR]["spec"]
    service, labels = rendered["Service", OPERATOR], pod()["metadata"]["labels"]
    assert monitors[0]["selector"]["matchLabels"].items() <= labels.items()
    assert monitors[1]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert [p["targetPort"] for p in service["spec"]["ports"]] == ["metrics"]
    for endpoint in (*monitors[0]["podMetricsEndpoints"], *monitors[1]["endpoints"]):
        assert endpoint == {"port": "metrics", "honorLabels": True}
    options = {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}}
    for kind, value in (("PodMonitor", "podMonitor"), ("ServiceMonitor", "serviceMonitor")):
        monitor = objects({value: options})[kind, OPERATOR]
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        endpoints = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
        assert endpoints[0]["interval"] == "15s"


def test_the_monitor_of_drivers_covers_the_pipelines_namespaces() -> None:
    values: dict[str, Any] = {"podMonitor": {"drivers": True}, "watchNamespaces": ["ops"]}
    spec = objects(values)["PodMonitor", "ackwright-drivers"]["spec"]
    assert spec["namespaceSelector"] == {"matchNames": ["ops"]}
    assert spec["selector"]["matchLabels"] == {"app.kubernetes.io/managed-by": MANAGED_BY, ROLE_LABEL: "driver"}
    assert PROGRESS_PORT == 8090, "values.yaml and the README name it"
    everywhere = objects(values | {"watchAllNamespaces": True})["PodMonitor", "ackwright-drivers"]["spec"]
    assert everywhere["namespaceSelector"] == {"any": True}


# -- helm test ---------------------------------------------------------------------------------------------------------


def test_the_test_pod_is_a_hook_that_the_service_does_not_select() -> None:
    test_pod = objects({"watchNamespaces": ["b", "a"]})["Pod", "ackwright-test"]
    assert test_pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    selected = objects()["Service", OPERATOR]["spec"]["selector"]
    assert not selected.items() <= test_pod["metadata"]["labels"].items()
    pipelines, operator = test_pod["spec"]["containers"]
    assert pipelines["command"][-1] == "a", "a namespace in which the account has permissions"
    assert operator["command"][-1] == "http://ackwright-operator.ackwright-system.svc:8080/readyz"


def test_helm_is_built_by_the_lab() -> None:
    assert helm().parent.name.startswith("helm-")
