"""Pod templates: what they add to pods, and that nothing of the job, its security or its guarantee changes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from ackwright.api.pod_values import ENV_NAMES, ENV_PREFIXES, EnvName, EnvPrefix
from ackwright.api.spec import DeliveryPipeline, examine, parse
from ackwright.planning.plan import plan
from ackwright.planning.steps import contains
from ackwright.planning.validation import check
from ackwright.render.audit import audit_job
from ackwright.settings import OperatorSettings
from unit.api.drawn_pods import pod_templates
from unit.documents import ROOT
from unit.render.pipelines import MINIMAL, SETTINGS, declared, driver, rendered
from unit.render.pod_security import violations

some = settings(max_examples=40)
NAME_OF_POD = {"fieldRef": {"fieldPath": "metadata.name"}}
SIDECAR = {"name": "s", "image": "x"}
MOUNTED = {"volumes": [{"name": "v", "emptyDir": {}}]}


def pods(pipeline: DeliveryPipeline, settings_: OperatorSettings = SETTINGS) -> dict[str, dict[str, Any]]:
    """The driver's pod and the executors', with metadata and spec."""
    objects = rendered(pipeline, settings_)
    executor: dict[str, Any] = yaml.load(objects["job"]["data"]["executor.yaml"], Loader=yaml.CSafeLoader)
    return {"driver": driver(objects)["spec"]["template"], "executor": executor}


def with_templates(template: dict[str, Any], **spec: Any) -> DeliveryPipeline:
    both = {role: {"podTemplate": template} for role in ("driver", "executor")}
    return declared(MINIMAL, spark=both, **spec)


def refusals(template: dict[str, Any]) -> str:
    """What is wrong with a template of executors."""
    spark = {"executor": {"podTemplate": template}}
    document = {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "p", "namespace": "ops"},
        "spec": {**MINIMAL, "spark": spark},
    }
    pipeline, shape = examine(document)
    return "\n".join(str(v) for v in (*shape, *(check(pipeline, shape) if pipeline else ())))


def unchanged(pod: dict[str, Any]) -> dict[str, Any]:
    """What no template may change: everything, without the lists and fields to which a template adds."""
    spec = dict(pod["spec"])
    own = {"affinity", "topologySpreadConstraints", "tolerations"}
    security = {k: v for k, v in spec["securityContext"].items() if k != "fsGroup"}
    return {**pod, "spec": {k: v for k, v in spec.items() if k not in own} | {"securityContext": security}}


@some
@given(pod_templates(), st.booleans())
def test_a_template_changes_nothing_that_the_operator_sets(template: dict[str, Any], standby: bool) -> None:
    before, after = pods(declared(MINIMAL, standby=standby)), pods(with_templates(template, standby=standby))
    for role in before:
        pod, plain = after[role], unchanged(before[role])
        for spec in (pod["spec"], plain["spec"]):  # the configuration's name is a digest of its content
            spec["volumes"] = [v for v in spec["volumes"] if v["name"] != "job"]
        assert contains(pod, plain)
        assert violations(pod["spec"]) == []
        own = before[role]["spec"]["tolerations"]
        assert pod["spec"]["tolerations"][: len(own)] == own, "of several tolerations of a taint the first one counts"
        first, *others = pod["spec"]["containers"]
        assert (first["name"], others) == (role, [])
        assert set(first) - set(before[role]["spec"]["containers"][0]) <= {"env", "envFrom", "resources"}
        for kind in ("env", "volumeMounts"):
            names = [entry["name" if kind == "env" else "mountPath"] for entry in first.get(kind, ())]
            assert len(names) == len(set(names)), kind
        if standby and role == "driver":
            apart = before[role]["spec"]["affinity"]["podAntiAffinity"]
            assert contains(
                pod["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0],
                apart["preferredDuringSchedulingIgnoredDuringExecution"][0],
            )


@some
@given(pod_templates())
def test_every_part_of_a_template_is_in_the_pod(template: dict[str, Any]) -> None:
    for role, pod in pods(with_templates(template)).items():
        spec, container = pod["spec"], pod["spec"]["containers"][0]
        assert contains(pod["metadata"].get("labels", {}), template.get("labels", {}))
        assert contains(pod["metadata"].get("annotations", {}), template.get("annotations", {}))
        assert spec.get("nodeSelector", {}) == template.get("nodeSelector", {})
        assert spec.get("priorityClassName") == template.get("priorityClassName")
        assert spec.get("schedulerName") == template.get("schedulerName")
        names = {v["name"] for v in spec["volumes"]}
        assert {v["name"] for v in template.get("volumes", ())} <= names
        assert {v["name"] for v in template.get("env", ())} <= {v["name"] for v in container.get("env", ())}
        assert len(container.get("envFrom", ())) == len(template.get("envFrom", ()))
        assert len(spec["tolerations"]) == 2 + len(template.get("tolerations", ()))
        sidecars = spec.get("initContainers", [])
        assert [s["name"] for s in sidecars] == [s["name"] for s in template.get("sidecars", ())]
        for sidecar in sidecars:
            assert sidecar["restartPolicy"] == "Always", "a pod with another kind of container would never complete"
            paths = {mount["mountPath"] for mount in sidecar["volumeMounts"]}
            assert "/var/run/secrets/kubernetes.io/serviceaccount" in paths, "a sidecar gets no token"
        chosen = template.get("topologySpreadConstraints", ())
        if chosen:
            assert len(spec["topologySpreadConstraints"]) == len(chosen)
            for constraint, entry in zip(spec["topologySpreadConstraints"], chosen, strict=True):
                if "labelSelector" not in entry:
                    selected = constraint["labelSelector"]["matchLabels"]
                    assert selected["ackwright.io/role"] == role
                    assert contains(pod["metadata"]["labels"], selected)


@some
@given(pod_templates())
def test_a_template_survives_the_round_trip(template: dict[str, Any]) -> None:
    pipeline = with_templates(template)
    again = parse(pipeline.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert again == pipeline
    assert pods(again) == pods(pipeline)


def test_without_a_template_pods_are_as_before() -> None:
    assert pods(with_templates({})) == pods(declared(MINIMAL))


def test_the_queues_of_the_guide_reach_the_pods() -> None:
    """docs/pod-templates.md#queues"""
    text = (ROOT / "docs" / "pod-templates.md").read_text().partition("## Queues")[2]
    volcano, kueue = (
        yaml.load(block.partition("```")[0], Loader=yaml.CSafeLoader)["spec"]["spark"]
        for block in text.split("```yaml\n")[1:3]
    )
    for role, pod in pods(declared(MINIMAL, spark=volcano)).items():
        assert pod["spec"]["schedulerName"] == "volcano", role
        assert pod["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] == "jobs", role
    executor = pods(declared(MINIMAL, spark=kueue))["executor"]
    assert executor["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "jobs"
    audit = audit_job(driver(rendered(declared(MINIMAL, spark=volcano))), "p-audit")
    assert audit["spec"]["template"]["spec"]["schedulerName"] == "volcano"


EVERY_VARIABLE = [
    *(v["name"] for v in pods(declared(MINIMAL))["driver"]["spec"]["containers"][0]["env"]),
    *("SPARK_DRIVER_URL", "SPARK_JAVA_OPT_0", "SPARK_LOCAL_DIRS", "SPARK_SUBMIT_OPTS", "SPARK_CLASSPATH"),
    *("PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHASHSEED", "HADOOP_CONF_DIR"),
    *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "JAVA_HOME", "CLASSPATH", "LD_PRELOAD", "PATH"),
    *("ACKWRIGHT_POINTS", "ACKWRIGHT_PLAIN_ENQUEUE", "KUBERNETES_SERVICE_HOST", "TZ", "LANG", "LC_ALL", "HOME"),
]


@pytest.mark.parametrize("name", EVERY_VARIABLE)
def test_a_variable_of_the_job_is_refused(name: str) -> None:
    assert f"env[0].name = '{name}': is a variable of the job's own" in refusals(
        {"env": [{"name": name, "value": "x"}]}
    )


@settings(max_examples=300)
@given(
    st.from_regex(r"\A[A-Za-z_]{1,6}_\Z") | st.sampled_from(["APP_", "AWS_", "S_", "JAVA_", "POD_", "_", "P_", "PY_"]),
    st.text("ABCDEHIJKLNOPRSTUVY_", max_size=12) | st.sampled_from([n[i:] for n in EVERY_VARIABLE for i in range(6)]),
)
def test_no_key_of_a_secret_becomes_a_variable_of_the_job(prefix: str, key: str) -> None:
    """Keys are not known before the pod starts, and change later."""
    try:
        TypeAdapter(EnvPrefix).validate_python(prefix)
    except ValidationError:
        return
    assert (prefix + key) not in ENV_NAMES
    assert not (prefix + key).startswith(ENV_PREFIXES)


def test_control_a_prefix_that_begins_a_variable_of_the_job_is_refused() -> None:
    for prefix in ("SPARK_", "POD_", "JAVA_", "KUBERNETES_SERVICE_"):
        with pytest.raises(ValidationError):
            TypeAdapter(EnvPrefix).validate_python(prefix)
    assert TypeAdapter(EnvPrefix).validate_python("APP_") == "APP_"
    assert TypeAdapter(EnvName).validate_python("AWS_REGION") == "AWS_REGION"
    assert "envFrom[0].prefix: is required" in refusals({"envFrom": [{"secretRef": {"name": "x"}}]})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "hostPath: unknown field"),
        ({"volumes": [{"name": "v", "nfs": {"server": "x"}}]}, "nfs"),
        ({"volumes": [{"name": "v"}]}, "must have exactly one of configMap"),
        ({"volumes": [{"name": "v", "emptyDir": {}, "secret": {"secretName": "x"}}]}, "must have exactly one of"),
        *(
            ({"volumes": [{"name": name, "emptyDir": {}}]}, "is the name of a volume of Ackwright or Spark")
            for name in ("job", "tmp", "shm", "checkpoint", "no-token", "secret-0", "spark-local-dir-1")
        ),
        ({"volumes": [{"name": "v", "emptyDir": {}}] * 2}, "volumes[1] = 'v': is there twice"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/mnt/x"}]}, "must be the name of a volume of this template"),
        *(
            ({**MOUNTED, "volumeMounts": [{"name": "v", "mountPath": path}]}, f"mountPath = '{path}': must be")
            for path in (
                *("/", "/etc/ackwright/job", "/etc", "/tmp", "/tmp/spark", "/opt/ackwright", "/opt/ackwright/lib"),  # noqa: S108
                *("/mnt", "/mnt/../etc", "/mnt//x", "mnt/x", "/var/run/secrets", "/usr/lib", "/dev/shm", "/mnt/x:y"),  # noqa: S108
            )
        ),
        ({**MOUNTED, "volumeMounts": [{"name": "v", "mountPath": "/mnt/x", "subPath": "../y"}]}, "without '..'"),
        ({**MOUNTED, "volumeMounts": [{"name": "v", "mountPath": "/mnt/x", "mountPropagation": "x"}]}, "unknown field"),
        ({"securityContext": {"privileged": True}}, "privileged"),
        ({"securityContext": {"runAsUser": 0}}, "runAsUser"),
        ({"securityContext": {"fsGroup": 0}}, "must be at least 1"),
        ({"securityContext": {"sysctls": []}}, "sysctls"),
        *(
            ({field: value}, f"podTemplate.{field}")
            for field, value in (
                *(("hostNetwork", True), ("hostPID", True), ("serviceAccountName", "admin"), ("containers", [])),
                *(("initContainers", []), ("automountServiceAccountToken", True), ("restartPolicy", "Never")),
                *(("terminationGracePeriodSeconds", 0), ("runtimeClassName", "x"), ("shareProcessNamespace", True)),
            )
        ),
        *(
            ({"labels": {key: "x"}}, f"which select and secure pods, and '{key}'")
            for key in (
                *("ackwright.io/role", "ackwright.io/pipeline", "spark-role", "spark-app-selector", "job-name"),
                *("app.kubernetes.io/managed-by", "app.kubernetes.io/name", "statefulset.kubernetes.io/pod-name"),
                *("controller-revision-hash", "batch.kubernetes.io/job-name", "x.kubernetes.io/y", "kubernetes.io/y"),
            )
        ),
        *(
            ({"annotations": {key: "x"}}, f"'{key}' does not fit")
            for key in (
                *("container.apparmor.security.beta.kubernetes.io/driver", "prometheus.io/port", "ackwright.io/x"),
                *("kubernetes.io/psp", "kubectl.kubernetes.io/restartedAt", "ackwright.io/credentials"),
            )
        ),
        ({"labels": {"a b": "x"}}, "must have keys of at most 63 letters"),
        ({"labels": {"a": "b c"}}, "must be a value of labels"),
        ({"schedulerName": "Volcano"}, "must be at most 253 lower-case letters"),
        ({"priorityClassName": "system-node-critical"}, "is a class of Kubernetes' own components"),
        ({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}, "nodes that are lost"),
        ({"tolerations": [{"value": "x"}]}, "needs a key, unless the operator is Exists"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}, "has no effect"),
        ({"tolerations": [{"key": "a", "tolerationSeconds": 3}]}, "belongs to effect: NoExecute"),
        (
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In"}]}]}}}},
            "needs values with In and NotIn",
        ),
        ({"resources": {"limits": {"memory": "1Gi"}}}, "set the memory by spec.spark.driver"),
        ({"resources": {"requests": {"cpu": "1"}}}, "set CPU and memory by"),
        ({"resources": {"limits": {"cpu": "0.5"}}}, "must be a whole number"),
        ({"env": [{"name": "A"}, {"name": "A", "value": "x"}]}, "is there twice"),
        ({"env": [{"name": "A", "value": "x", "valueFrom": NAME_OF_POD}]}, "at most one"),
        ({"sidecars": [{"name": "driver", "image": "x"}]}, "is the name of a container"),
        ({"sidecars": [{**SIDECAR, "ports": [{"containerPort": 8090}]}]}, "8090, on which the"),
        ({"sidecars": [{**SIDECAR, "ports": [{"containerPort": 1, "hostPort": 1}]}]}, "hostPort"),
        ({"sidecars": [{**SIDECAR, "securityContext": {"runAsUser": 0}}]}, "must be at least 1"),
        ({"sidecars": [{**SIDECAR, "securityContext": {"privileged": True}}]}, "privileged"),
        ({"sidecars": [{**SIDECAR, "volumeMounts": [{"name": "w", "mountPath": "/x"}]}]}, "of a volume"),
        (
            {**MOUNTED, "sidecars": [{**SIDECAR, "volumeMounts": [{"name": "v", "mountPath": "/var/run/x"}]}]},
            "must not be in /var/run",
        ),
        ({"sidecars": [{**SIDECAR, "readinessProbe": {}}]}, "readinessProbe"),
    ],
    ids=lambda value: None if isinstance(value, dict) else re.sub(r"\W+", " ", value)[:40],
)  # fmt: skip
def test_what_weakens_a_pod_or_the_guarantee_is_refused(template: dict[str, Any], message: str) -> None:
    assert message in refusals(template)


def test_pull_policy_and_pull_secrets_are_those_of_the_pipeline_and_of_the_platform() -> None:
    spark = {"imagePullPolicy": "Always", "imagePullSecrets": [{"name": "own"}, {"name": "platform"}]}
    pipeline = declared(MINIMAL, spark=spark)
    for pod in pods(pipeline, OperatorSettings(image_pull_secrets=("platform",))).values():
        assert pod["spec"]["imagePullSecrets"] == [{"name": "platform"}, {"name": "own"}]
    container = driver(rendered(pipeline))["spec"]["template"]["spec"]["containers"][0]
    assert container["imagePullPolicy"] == "Always"
    twice = {**MINIMAL, "spark": {"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}}
    assert plan(pipeline)
    with pytest.raises(Exception, match=r"spec\.spark\.imagePullSecrets\[1\] = 'a': names a Secret twice"):
        plan(declared(twice))


def test_the_audit_runs_where_the_driver_runs_and_with_its_variables() -> None:
    template = {
        "nodeSelector": {"pool": "jobs"},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
        "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
        **MOUNTED,
        "volumeMounts": [{"name": "v", "mountPath": "/mnt/v"}],
        "sidecars": [{"name": "s", "image": "x"}],
    }
    spec = audit_job(driver(rendered(with_templates(template))), "a")["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"pool": "jobs"}
    assert {"key": "pool", "operator": "Exists"} in spec["tolerations"]
    (container,) = spec["containers"]
    assert {"name": "AWS_REGION", "value": "eu-central-1"} in container["env"]
    assert {m["name"] for m in container["volumeMounts"]} <= {v["name"] for v in spec["volumes"]}
    assert "initContainers" not in spec
    assert violations(spec) == []
