"""From a pipeline and its plan to Kubernetes objects: driver, configuration, access, disruption budget, checkpoint
volume. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ackwright.api import pod_values
from ackwright.api.quantities import canonical, memory_mib
from ackwright.api.spec import DeliveryPipeline, Volume
from ackwright.planning.bounded_runs import RUN_ANNOTATION, parts_of_run
from ackwright.planning.guarantees import Setting
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.state import has_executors
from ackwright.render.access import access, driver_account
from ackwright.render.executors import TEMPLATE_KEY, image, spark_settings, template
from ackwright.render.jobspec import jobspec
from ackwright.render.names import Object, digest, labels, owned, selector
from ackwright.render.pod_templates import merged
from ackwright.render.pods import (
    SECRETS,
    container_security,
    driver_overhead_mib,
    leaves_lost_nodes,
    pod_security,
    pull_policy,
    pull_secrets,
    s3a_classes,
    scratch,
    secret_volumes,
)
from ackwright.settings import OperatorSettings
from ackwright_stream.jobspec import to_json

PROGRESS_PORT = pod_values.PROGRESS_PORT
_CONFIG = "/etc/ackwright/job"
_CHECKPOINT = "/var/lib/ackwright/checkpoint"
_MASTER = "k8s://https://kubernetes.default.svc"
_JOB_KEY = "job.json"
_CREDENTIALS = "ackwright.io/credentials"
# Where the job writes how it ended, as JSON (reports.Ending); the kubelet copies the file into the container's status.
ENDING = "/dev/termination-log"


def objects(
    pipeline: DeliveryPipeline,
    plan: DeliveryPlan,
    uid: str,
    settings: OperatorSettings,
    credentials: str = "",
    *,
    identity: str,
    run: str | None = None,
    expects_positions: bool = False,
) -> tuple[Object, ...]:
    """All objects of the pipeline, in the order in which they are created.

    uid: the pipeline's. identity: as JobSpec.identity. credentials: a digest of its Secrets' versions; another one
    replaces the driver of an unbounded pipeline, because connected clients do not read their credentials again. run: of
    a Job; None: run_of(). expects_positions: as Accepted.expects_positions.
    """
    config = job_config(pipeline, plan, uid, settings, identity=identity, expects_positions=expects_positions)
    return (
        *access(pipeline, uid),
        client_config(pipeline, plan, uid),
        config,
        *_checkpoint_claim(pipeline, uid),
        _disruption_budget(pipeline, uid),
        *_driver_disruption_budget(pipeline, uid),
        _driver(pipeline, uid, settings, config["metadata"]["name"], credentials, run=run or run_of(pipeline)),
    )


def credentials_of(children: Mapping[tuple[str, str], Mapping[str, Any]], pipeline: DeliveryPipeline) -> str:
    """The digest of credentials in the present driver; empty without credentials, or without a driver."""
    driver = children.get(("StatefulSet", pipeline.metadata.name), {})
    annotations = driver.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations") or {}
    return str(annotations.get(_CREDENTIALS, ""))


def run_of(pipeline: DeliveryPipeline) -> str:
    """Identifies a bounded run without a schedule: a pipeline whose completed run has another identity runs again."""
    return digest(parts_of_run(pipeline))


def _checkpoint_volume(pipeline: DeliveryPipeline) -> Volume | None:
    return pipeline.spec.checkpoint.volume if pipeline.spec.checkpoint else None


def _checkpoint_claim(pipeline: DeliveryPipeline, uid: str) -> Iterator[Object]:
    """The claim for the checkpoint's volume, if the spec declares one."""
    if volume := _checkpoint_volume(pipeline):
        storage_class = {"storageClassName": volume.storage_class_name} if volume.storage_class_name else {}
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": canonical(volume.size)}},
            **storage_class,
        }
        name = _checkpoint_name(pipeline)
        yield owned(
            pipeline, uid, api_version="v1", kind="PersistentVolumeClaim", name=name, role="checkpoint", spec=spec
        )


def _checkpoint_name(pipeline: DeliveryPipeline) -> str:
    return f"{pipeline.metadata.name}-checkpoint"


def job_config(
    pipeline: DeliveryPipeline,
    plan: DeliveryPlan,
    uid: str,
    settings: OperatorSettings,
    *,
    identity: str,
    expects_positions: bool = False,
) -> Object:
    """The jobspec and the executors' template. Its name is a digest of its content, so a restarted driver reads the
    configuration that its pod was created with."""
    job = jobspec(
        plan,
        master=_MASTER if has_executors(pipeline) else f"local[{plan.slots}]",
        identity=identity,
        secrets=SECRETS,
        progress_host="0.0.0.0",  # noqa: S104 (the pod's own network)
        progress_port=PROGRESS_PORT,
        expects_positions=expects_positions,
        checkpoint=_CHECKPOINT if _checkpoint_volume(pipeline) else None,
        spark_extra=spark_settings(pipeline, settings, template_file=f"{_CONFIG}/{TEMPLATE_KEY}"),
    )
    data = {_JOB_KEY: to_json(job), TEMPLATE_KEY: template(pipeline, settings)}
    return owned(
        pipeline,
        uid,
        api_version="v1",
        kind="ConfigMap",
        name=f"{pipeline.metadata.name}-job-{digest(data)}",
        role="job",
        immutable=True,
        data=data,
    )


def client_config(pipeline: DeliveryPipeline, plan: DeliveryPlan, uid: str) -> Object:
    """Settings for the applications that write the source and read the sink, in either client's names; without
    credentials."""
    ends = (("producer", plan.upstream), ("consumer", plan.downstream))
    return owned(
        pipeline,
        uid,
        api_version="v1",
        kind="ConfigMap",
        name=f"{pipeline.metadata.name}-clients",
        role="clients",
        data={
            **{f"{end}.properties": _properties(clients.java) for end, clients in ends},
            **{f"{end}.librdkafka.properties": _properties(clients.librdkafka) for end, clients in ends},
        },
    )


def _properties(settings: tuple[Setting, ...]) -> str:
    return "".join(f"# {s.reason}\n{s.name}={s.value}\n" for s in settings)


def _disruption_budget(pipeline: DeliveryPipeline, uid: str) -> Object:
    """A budget by which executors are evicted one at a time. A driver without a standby has none: it drains, and a
    budget for a single replica would forbid every eviction.

    A standby's executors count too. The budget is not raised for them, or it would forbid every eviction as long as no
    node fits the standby.

    The budget has to be a number of pods: executors belong to the driver's Pod, which declares no number of replicas.
    https://kubernetes.io/docs/tasks/run-application/configure-pdb/#arbitrary-controllers-and-selectors
    """
    return owned(
        pipeline,
        uid,
        api_version="policy/v1",
        kind="PodDisruptionBudget",
        name=pipeline.metadata.name,
        role="executor",
        spec={
            "minAvailable": pipeline.spec.spark.executor.instances - 1,
            "selector": {"matchLabels": selector(pipeline.metadata.name, "executor")},
        },
    )


def _driver_disruption_budget(pipeline: DeliveryPipeline, uid: str) -> Iterator[Object]:
    """A budget by which a driver is evicted only when the other one is ready, if the spec declares a standby."""
    if pipeline.spec.standby:
        yield owned(
            pipeline,
            uid,
            api_version="policy/v1",
            kind="PodDisruptionBudget",
            name=f"{pipeline.metadata.name}-drivers",
            role="driver",
            spec={
                "maxUnavailable": 1,
                "selector": {"matchLabels": selector(pipeline.metadata.name, "driver")},
                # One that is not ready delivers nothing and protects nothing.
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        )


def _driver(
    pipeline: DeliveryPipeline, uid: str, settings: OperatorSettings, config: str, credentials: str, *, run: str
) -> Object:
    name = pipeline.metadata.name
    pod = _pod(pipeline, settings, config)
    if pipeline.spec.trigger.available_now:
        job = owned(
            pipeline,
            uid,
            api_version="batch/v1",
            kind="Job",
            name=name,
            role="driver",
            spec={
                "suspend": pipeline.spec.suspend,
                "backoffLimit": 1_000_000,  # the operator decides about restarts, not the Job's controller
                "podReplacementPolicy": "Failed",  # never a second driver while the first may be alive
                # Without the digest of credentials: a Job's pod template is immutable, and a completed Job must not run
                # again.
                "template": {**pod, "spec": {**pod["spec"], "restartPolicy": "OnFailure"}},
            },
        )
        job["metadata"]["annotations"][RUN_ANNOTATION] = run
        return job
    if credentials:
        pod["metadata"]["annotations"][_CREDENTIALS] = credentials
    return owned(
        pipeline,
        uid,
        api_version="apps/v1",
        kind="StatefulSet",
        name=name,
        role="driver",
        spec={
            "replicas": 0 if pipeline.spec.suspend else 2 if pipeline.spec.standby else 1,
            "serviceName": name,  # there is no such Service: executors connect to the driver's address
            "podManagementPolicy": "Parallel",
            # The operator replaces two drivers itself, the standby first: the controller goes by the pods' numbers.
            **({"updateStrategy": {"type": "OnDelete"}} if pipeline.spec.standby else {}),
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selector(name, "driver")},
            "template": pod,
        },
    )


def _pod(pipeline: DeliveryPipeline, settings: OperatorSettings, config: str) -> Object:
    driver = pipeline.spec.spark.driver
    volumes, mounts = secret_volumes(pipeline)
    scratch_volumes, scratch_mounts = scratch()
    if _checkpoint_volume(pipeline):
        volumes.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": _checkpoint_name(pipeline)}})
        mounts.append({"name": "checkpoint", "mountPath": _CHECKPOINT})
    memory = canonical(f"{memory_mib(driver.memory) + driver_overhead_mib(pipeline)}Mi")
    container = {
        "name": "driver",
        "image": image(pipeline, settings),
        "imagePullPolicy": pull_policy(pipeline, settings),
        "args": [
            "driver",
            *("--jobspec", f"{_CONFIG}/{_JOB_KEY}"),
            *("--ending", ENDING),
            *("--conf", "spark.driver.host=$(POD_IP)"),
            *("--conf", "spark.kubernetes.driver.pod.name=$(POD_NAME)"),
            # A Job counts a pod that ends with 0 as complete, even if the pod received SIGTERM.
            *(("--drained-exit-code", "143") if pipeline.spec.trigger.available_now else ()),
        ],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            *s3a_classes(pipeline),
        ],
        "ports": [{"name": "progress", "containerPort": PROGRESS_PORT, "protocol": "TCP"}],
        "readinessProbe": _probe("/ready", period=5, failures=3),
        "livenessProbe": _probe("/healthz", period=10, failures=12),
        "resources": {
            "requests": {"cpu": canonical(driver.cpu_request or str(driver.cores)), "memory": memory},
            "limits": {"memory": memory},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",  # for a job that is killed before it can write its ending
        "securityContext": container_security(),
        "volumeMounts": [{"name": "job", "mountPath": _CONFIG, "readOnly": True}, *scratch_mounts, *mounts],
    }
    pod: Object = {
        "metadata": {
            "labels": labels(pipeline.metadata.name, "driver"),
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(PROGRESS_PORT),
                "prometheus.io/path": "/metrics",
            },
        },
        "spec": {
            "serviceAccountName": driver_account(pipeline),
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            **pull_secrets(pipeline, settings),
            "securityContext": pod_security(),
            "terminationGracePeriodSeconds": settings.drain,
            "tolerations": leaves_lost_nodes(settings),
            **_on_two_nodes(pipeline),
            "containers": [container],
            "volumes": [{"name": "job", "configMap": {"name": config}}, *scratch_volumes, *volumes],
        },
    }
    return merged(pod, driver.pod_template, selector(pipeline.metadata.name, "driver"))


def _on_two_nodes(pipeline: DeliveryPipeline) -> Object:
    """The pod's affinity: a standby on another node, if there is one that fits. Absent without a standby."""
    if not pipeline.spec.standby:
        return {}
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": selector(pipeline.metadata.name, "driver")},
    }
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def _probe(path: str, *, period: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "progress", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
