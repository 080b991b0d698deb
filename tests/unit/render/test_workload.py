"""Rendered objects: restricted pods, valid names, no effect of a spec outside its fields, and a stable result."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from ackwright.api.quantities import canonical
from ackwright.api.spark_conf import ALLOWED
from ackwright.planning.bounded_runs import RUN_ANNOTATION
from ackwright.render.names import FINALIZER, HASH_ANNOTATION, Object, digest
from ackwright.render.pods import SECRETS
from ackwright.settings import OperatorSettings
from ackwright_stream.jobspec import StandbyTimes, from_json
from unit.render.pipelines import EXAMPLES, MINIMAL, UID, declared, driver, pipelines, rendered, specs
from unit.render.pod_security import violations

some = settings(max_examples=15)


def pod(by_kind: dict[str, Object]) -> dict[str, Any]:
    spec: dict[str, Any] = driver(by_kind)["spec"]["template"]["spec"]
    return spec


def executor(by_kind: dict[str, Object]) -> dict[str, Any]:
    template: dict[str, Any] = yaml.load(by_kind["job"]["data"]["executor.yaml"], Loader=yaml.CSafeLoader)
    return template


# -- security --------------------------------------------------------------------------------------------------


def check_security(by_kind: dict[str, Object]) -> None:
    for spec in (pod(by_kind), executor(by_kind)["spec"]):
        assert violations(spec) == []
        assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in spec["containers"])
    assert pod(by_kind)["automountServiceAccountToken"]
    assert not executor(by_kind)["spec"]["automountServiceAccountToken"], "executors get no token"
    assert not by_kind["ServiceAccount"]["automountServiceAccountToken"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.metadata.name)
def test_examples_keep_the_restricted_standard(example: Any) -> None:
    check_security(rendered(example))


@some
@given(pipelines)
def test_every_pipeline_keeps_the_restricted_standard(pipeline: Any) -> None:
    check_security(rendered(pipeline))


@pytest.mark.parametrize(
    ("at", "value", "violation"),
    [
        ("hostNetwork", True, "hostNetwork"),
        ("volumes", [{"name": "v", "hostPath": {"path": "/"}}], "volume v"),
        ("volumes", [{"name": "v"}], "volume v"),
        ("securityContext", {}, "driver: may run as root"),
        ("securityContext.runAsUser", 0, "runs as root"),
        ("securityContext.seccompProfile", {"type": "Unconfined"}, "driver: seccomp"),
        ("containers.0.securityContext", {}, "driver: may escalate"),
        ("containers.0.securityContext.privileged", True, "driver: privileged"),
        ("containers.0.securityContext.runAsNonRoot", False, "driver: may run as root"),
        ("containers.0.securityContext.capabilities.add", ["NET_RAW"], "driver: capabilities"),
        ("containers.0.ports.0.hostPort", 80, "driver: host port"),
        ("initContainers", [{"name": "i"}], "i: may escalate"),
    ],
)
def test_control_the_pod_security_check_detects_each_violation(at: str, value: Any, violation: str) -> None:
    spec = copy.deepcopy(pod(rendered(EXAMPLES[0])))
    *parents, last = at.split(".")
    holder: Any = spec
    for name in parents:
        holder = holder[int(name) if name.isdigit() else name]
    holder[last] = value
    assert violation in violations(spec)


_TOUCHED = {  # what a user sets on purpose, in dedicated fields
    *(
        "spark.driver.cores",
        "spark.driver.memory",
        "spark.executor.cores",
        "spark.executor.instances",
        "spark.executor.memory",
    ),
    *("spark.kubernetes.container.image", "spark.kubernetes.executor.request.cores", "spark.executor.memoryOverhead"),
}


@some
@given(specs)
def test_a_spec_changes_nothing_outside_its_declared_fields(spec: dict[str, Any]) -> None:
    by_kind = rendered(declared(spec))
    plain = rendered(declared(MINIMAL, guarantee=spec["guarantee"], trigger=spec.get("trigger", {})))
    job, neutral = (from_json(f["job"]["data"]["job.json"]) for f in (by_kind, plain))
    chosen = set(spec.get("spark", {}).get("conf", {}))
    assert chosen <= ALLOWED
    assert {k: v for k, v in job.spark.items() if k not in chosen | _TOUCHED} == {
        k: v for k, v in neutral.spark.items() if k not in chosen | _TOUCHED
    }, "master, namespace, accounts, JVM options, jars, pod templates"
    assert (job.progress_host, job.progress_port) == (neutral.progress_host, neutral.progress_port)
    mine, theirs = pod(by_kind), pod(plain)
    for name in set(theirs) - {"containers", "volumes"}:
        assert mine[name] == theirs[name], name
    for name in set(theirs["containers"][0]) - {"image", "resources", "volumeMounts"}:
        assert mine["containers"][0][name] == theirs["containers"][0][name], name
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        assert by_kind[kind] == plain[kind]
    secrets = {n for n in (_secret(spec, "auth", "credentialsSecret"), _secret(spec, "tls", "caSecret")) if n}
    claims = {"p-checkpoint"} if "volume" in spec.get("checkpoint", {}) else set()
    for volume in (*mine["volumes"], *executor(by_kind)["spec"]["volumes"]):
        assert volume.get("secret", {}).get("secretName") in {None, *secrets}
        assert volume.get("configMap", {}).get("name") in {None, by_kind["job"]["metadata"]["name"]}
        assert volume.get("persistentVolumeClaim", {}).get("claimName") in {None, *claims}
    assert {o["metadata"]["namespace"] for o in by_kind.values()} == {"ops"}
    assert {o["kind"] for o in by_kind.values()} <= {o["kind"] for o in plain.values()} | {"PersistentVolumeClaim"}


def _secret(spec: dict[str, Any], *path: str) -> str | None:
    value: Any = spec["kafka"]
    for name in path:
        value = value.get(name, {})
    return value.get("name")  # type: ignore[no-any-return]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.metadata.name)
def test_credentials_are_mounted_and_never_rendered(example: Any) -> None:
    by_kind = rendered(example)
    text = json.dumps(by_kind)
    assert "Secret" not in by_kind
    assert "secretKeyRef" not in text
    for login in re.findall(r'(?:username|password)=\\*"(.*?)"', text):
        assert login.startswith("${directory:" + SECRETS), login
    for spec in (pod(by_kind), executor(by_kind)["spec"]):
        mounts = {m["name"]: m for m in spec["containers"][0]["volumeMounts"]}
        for volume in spec["volumes"]:
            if "secret" in volume:
                assert volume["secret"]["defaultMode"] == 0o440
                assert mounts[volume["name"]]["readOnly"]
                assert mounts[volume["name"]]["mountPath"] == f"{SECRETS}/{volume['secret']['secretName']}"


@pytest.mark.parametrize("trigger", [{"interval": "1s"}, {"availableNow": True}])
def test_pull_secrets_are_set_for_driver_and_executors_and_absent_without_the_setting(trigger: Any) -> None:
    pipeline = declared(MINIMAL, trigger=trigger)
    by_kind, plain = rendered(pipeline, OperatorSettings(image_pull_secrets=("b", "a"))), rendered(pipeline)
    assert (
        pod(by_kind)["imagePullSecrets"]
        == executor(by_kind)["spec"]["imagePullSecrets"]
        == [{"name": "b"}, {"name": "a"}]
    )
    assert "imagePullSecrets" not in json.dumps(plain), "any addition to the pod template restarts the driver"
    kinds = [kind for kind in by_kind if by_kind[kind] != plain[kind]]
    assert kinds == ["job", driver(by_kind)["kind"]], "the Role, for example, gets no permission to read them"


# -- references between objects --------------------------------------------------------------------------------


@some
@given(pipelines)
def test_every_reference_between_objects_resolves(pipeline: Any) -> None:
    by_kind, name = rendered(pipeline), pipeline.metadata.name
    labels = driver(by_kind)["spec"]["template"]["metadata"]["labels"]
    if "StatefulSet" in by_kind:
        assert by_kind["StatefulSet"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    budget = by_kind["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"].items() <= executor(by_kind)["metadata"]["labels"].items()
    assert not budget["selector"]["matchLabels"].items() <= labels.items(), (
        "the budget does not cover the driver, which may be evicted"
    )
    assert budget["minAvailable"] == pipeline.spec.spark.executor.instances - 1
    account = by_kind["ServiceAccount"]["metadata"]["name"]
    assert pod(by_kind)["serviceAccountName"] == account == by_kind["RoleBinding"]["subjects"][0]["name"]
    assert by_kind["RoleBinding"]["roleRef"]["name"] == by_kind["Role"]["metadata"]["name"]
    container = pod(by_kind)["containers"][0]
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert set(mounts) == {v["name"] for v in pod(by_kind)["volumes"]}
    assert f"{mounts['job']}/job.json" in container["args"]
    job = from_json(by_kind["job"]["data"]["job.json"])
    assert job.spark["spark.kubernetes.executor.podTemplateFile"] == f"{mounts['job']}/executor.yaml"
    assert container["ports"][0]["containerPort"] == job.progress_port
    assert {container[p]["httpGet"]["port"] for p in ("readinessProbe", "livenessProbe")} == {
        container["ports"][0]["name"]
    }
    if "checkpoint" in mounts:
        assert mounts["checkpoint"] == job.checkpoint
    assert (job.name, job.namespace) == (name, pipeline.metadata.namespace)
    for o in by_kind.values():
        (owner,) = o["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["name"], owner["controller"]) == (UID, name, True)
        assert FINALIZER not in json.dumps(o)


def test_a_bounded_run_is_a_job_and_a_continuous_one_a_stateful_set() -> None:
    bounded, endless = rendered(declared(MINIMAL, trigger={"availableNow": True})), rendered(declared(MINIMAL))
    assert "StatefulSet" not in bounded
    assert "Job" not in endless
    assert (bounded["Job"]["spec"]["podReplacementPolicy"], pod(bounded)["restartPolicy"]) == ("Failed", "OnFailure")
    assert pod(bounded)["containers"][0]["args"][-2:] == ["--drained-exit-code", "143"], (
        "a drained driver is not complete"
    )
    assert "--drained-exit-code" not in pod(endless)["containers"][0]["args"]
    assert endless["StatefulSet"]["spec"]["replicas"] == 1


def test_a_standby_is_a_second_driver_on_another_node_that_is_neither_evicted_nor_replaced_with_the_first() -> None:
    alone, pair = rendered(declared(MINIMAL)), rendered(declared(MINIMAL, standby=True))
    assert pair["StatefulSet"]["spec"]["replicas"] == 2
    assert pair["StatefulSet"]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert rendered(declared(MINIMAL, standby=True, suspend=True))["StatefulSet"]["spec"]["replicas"] == 0
    drivers = {"matchLabels": pair["StatefulSet"]["spec"]["selector"]["matchLabels"]}
    (preferred,) = pod(pair)["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"] == {"topologyKey": "kubernetes.io/hostname", "labelSelector": drivers}
    jobs = [from_json(objects["job"]["data"]["job.json"]) for objects in (alone, pair)]
    assert [job.standby for job in jobs] == [None, StandbyTimes(silent_ms=5000, silent_max_ms=45_000)]

    assert "drivers" not in alone
    assert (pair["drivers"]["spec"]["maxUnavailable"], pair["drivers"]["spec"]["selector"]) == (1, drivers)
    assert pair["PodDisruptionBudget"] == alone["PodDisruptionBudget"]


@some
@given(specs)
def test_suspend_changes_only_replicas_or_the_suspend_field(spec: dict[str, Any]) -> None:
    on, off = (rendered(declared(spec, suspend=suspend)) for suspend in (False, True))
    for objects in (on, off):
        changed = driver(objects)
        del changed["metadata"]["annotations"][HASH_ANNOTATION]
        value = changed["spec"].pop("suspend" if changed["kind"] == "Job" else "replicas")
        assert value in ((False, 1) if objects is on else (True, 0))
    assert on == off


@some
@given(specs, specs, st.sampled_from(["kafka", "transform", "spark", "checkpoint", "trigger", "suspend"]))
def test_the_configmap_name_changes_if_and_only_if_the_job_changes(
    one: dict[str, Any], two: dict[str, Any], field: str
) -> None:
    edited = {k: v for k, v in one.items() if k != field} | ({field: two[field]} if field in two else {})
    a, b = (rendered(declared(spec))["job"] for spec in (one, edited))
    assert (a["metadata"]["name"] == b["metadata"]["name"]) == (a["data"] == b["data"])
    assert a["immutable"]
    assert rendered(declared(copy.deepcopy(one)))["job"] == a
    templates = [json.dumps(driver(rendered(declared(spec)))["spec"]["template"]) for spec in (one, edited)]
    assert (a["data"] == b["data"]) or templates[0] != templates[1], (
        "a driver of the old configuration would keep running"
    )


@some
@given(pipelines)
def test_each_object_carries_the_hash_of_its_content(pipeline: Any) -> None:
    for o in rendered(pipeline).values():
        annotations = o["metadata"].pop("annotations")
        assert annotations.keys() == {HASH_ANNOTATION, *([RUN_ANNOTATION] if o["kind"] == "Job" else [])}
        assert annotations[HASH_ANNOTATION] == digest(o)
        reordered = json.loads(json.dumps(o, sort_keys=True))
        assert digest(reordered) == digest(o)


@some
@given(pipelines)
def test_client_settings_are_valid_properties_without_credentials(pipeline: Any) -> None:
    for text in rendered(pipeline)["clients"]["data"].values():
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        settings_ = dict(line.split("=", 1) for line in lines)
        assert len(settings_) == len(lines)
        servers = settings_["bootstrap.servers"]
        assert servers.split(",") == pipeline.spec.kafka.bootstrap_servers.replace(",", " ").split()
        assert servers == from_json(rendered(pipeline)["job"]["data"]["job.json"]).cluster.bootstrap_servers
        assert not [n for n in settings_ if "password" in n or "jaas" in n or "location" in n]


# -- names and quantities --------------------------------------------------------------------------------------

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"(?=.{0,63}\Z)([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")


@some
@given(pipelines)
def test_names_and_labels_are_valid_in_kubernetes(pipeline: Any) -> None:
    by_kind = rendered(pipeline)
    for o in by_kind.values():
        assert _SUBDOMAIN.fullmatch(o["metadata"]["name"])
        assert all(_LABEL_VALUE.fullmatch(v) for v in o["metadata"]["labels"].values())
    driver_name = driver(by_kind)["metadata"]["name"]
    assert len(f"{driver_name}-0123456789") <= 63, "the label with a StatefulSet's revision, and a Job's pods"
    for spec in (pod(by_kind), executor(by_kind)["spec"]):
        assert all(_LABEL.fullmatch(v["name"]) for v in (*spec["volumes"], *spec["containers"]))
        assert len({v["name"] for v in spec["volumes"]}) == len(spec["volumes"])
    assert len(pod(by_kind)["containers"][0]["ports"][0]["name"]) <= 15


_SUFFIXES = {"m": Fraction(1, 1000), "": Fraction(1), **{s: Fraction(1000**n) for n, s in enumerate("kMGTPE", 1)}}
_BINARY = {f"{s}i": Fraction(1024**n) for n, s in enumerate("KMGTPE", 1)}


def is_canonical(quantity: str) -> bool:
    """Whether the quantity is as the API server writes it: an integer with the largest suffix that permits one."""
    match = re.fullmatch("([0-9]+)([a-zA-Z]*)", quantity)
    assert match
    family = _BINARY if match[2] in _BINARY else _SUFFIXES
    value = int(match[1]) * family[match[2]]
    return not any(factor > family[match[2]] and value % factor == 0 for factor in family.values()) or value == 0


def quantities(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("cpu", "memory", "storage", "sizeLimit"):
                yield inner
            else:
                yield from quantities(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from quantities(inner)


@given(
    st.integers(0, 10**7), st.sampled_from(["", "m", "Ki", "Mi", "Gi", "Ti"]), st.sampled_from([1, 1000, 1024, 1024**2])
)
def test_a_canonical_quantity_has_the_same_value(number: int, unit: str, factor: int) -> None:
    if factor == 1024**2 and unit in ("", "m"):
        factor = 1000
    written = f"{number * factor}{unit}"
    result = canonical(written)
    assert parse_quantity(result) == parse_quantity(written)
    assert number == 0 or is_canonical(result)
    assert canonical(result) == result


@some
@given(pipelines)
def test_rendered_quantities_are_canonical(pipeline: Any) -> None:
    by_kind = rendered(pipeline)
    all_ = [*quantities(by_kind), *quantities(executor(by_kind))]
    assert len(all_) >= 5
    assert [q for q in all_ if not is_canonical(q)] == []
