"""The common parts of driver and executor pods: user, writable directories, Secrets, pull Secrets, tolerations. Pure.

Both kinds of pods comply with the Pod Security Standard "restricted".
https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

import re

from ackwright.api.quantities import memory_mib
from ackwright.api.spec import DeliveryPipeline
from ackwright.planning.state import ROCKSDB_MIB, has_executors, state_secret, state_uri
from ackwright.render.names import Object
from ackwright.settings import OperatorSettings

SECRETS = "/etc/ackwright/secrets"
_S3A_CLASSES = "/opt/ackwright/s3/*"  # in the image
_USER = 10001  # the image's user
# Of the heap, for Python workers and the JVM's memory outside of the heap. Spark's default for PySpark on Kubernetes.
_OVERHEAD = 0.4
_OVERHEAD_MIN_MIB = 384


def pod_security() -> Object:
    """The security context of every pod."""
    return {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        "fsGroup": _USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Object:
    """The security context of every container."""
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def _overhead_mib(memory: str, *, has_state: bool) -> int:
    """Memory outside of the heap, in MiB. https://spark.apache.org/docs/latest/running-on-kubernetes.html
    (memoryOverheadFactor)"""
    return max(_OVERHEAD_MIN_MIB, int(memory_mib(memory) * _OVERHEAD)) + (ROCKSDB_MIB if has_state else 0)


def executor_overhead_mib(pipeline: DeliveryPipeline) -> int:
    """Memory of an executor's pod outside of the heap, in MiB, unless spec.spark.conf sets it."""
    has_state = pipeline.spec.state is not None and has_executors(pipeline)
    return _overhead_mib(pipeline.spec.spark.executor.memory, has_state=has_state)


def driver_overhead_mib(pipeline: DeliveryPipeline) -> int:
    """Memory of the driver's pod outside of the heap, in MiB, also if spec.spark.conf sets it."""
    overhead = pipeline.spec.spark.conf.get("spark.driver.memoryOverhead", "").strip().lower()
    if overhead.isdigit():
        return int(overhead)  # Spark's unit here is MiB
    number = re.fullmatch("([0-9]{1,7})(m|mb|g|gb)", overhead)
    if number is None:
        return _overhead_mib(pipeline.spec.spark.driver.memory, has_state=not has_executors(pipeline))
    return int(number[1]) * (1024 if number[2].startswith("g") else 1)


def secret_names(pipeline: DeliveryPipeline) -> tuple[str, ...]:
    """The Secrets that source, registry, sink and state need, in the pipeline's namespace."""
    names, sink = list(pipeline.spec.kafka.secrets), pipeline.spec.sink.declared
    if registry := pipeline.spec.schema_registry:
        names += registry.secrets
    cluster = sink.cluster()
    names += [*(cluster.secrets if cluster else ()), *(secret.name for secret in sink.secrets())]
    of_state = state_secret(pipeline)
    return tuple(dict.fromkeys([*names, of_state] if of_state else names))


def secret_volumes(pipeline: DeliveryPipeline) -> tuple[list[Object], list[Object]]:
    """Volumes and mounts of the Secrets: each is a directory of files that only the job's group can read."""
    names = secret_names(pipeline)
    volumes = [{"name": f"secret-{i}", "secret": {"secretName": n, "defaultMode": 0o440}} for i, n in enumerate(names)]
    mounts = [{"name": f"secret-{i}", "mountPath": f"{SECRETS}/{n}", "readOnly": True} for i, n in enumerate(names)]
    return volumes, mounts


def s3a_classes(pipeline: DeliveryPipeline) -> list[Object]:
    """Variables with the classes by which Spark reads and writes state in a bucket; none without such state.

    They are behind Spark's own, so that the class archive fits.
    """
    return [{"name": "SPARK_DIST_CLASSPATH", "value": _S3A_CLASSES}] if state_uri(pipeline) else []


def scratch() -> tuple[list[Object], list[Object]]:
    """Volumes and mounts of the only directories that a container can write to."""
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}]
    return volumes, [{"name": "tmp", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108


def pull_secrets(pipeline: DeliveryPipeline, settings: OperatorSettings) -> Object:
    """The pod's field imagePullSecrets. It is absent without any, because any change of the pod restarts the driver."""
    own = (secret.name for secret in pipeline.spec.spark.image_pull_secrets)
    # Server-side apply refuses a pod that names one twice.
    names = dict.fromkeys((*settings.image_pull_secrets, *own))
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def pull_policy(pipeline: DeliveryPipeline, settings: OperatorSettings) -> str:
    """When the image of driver and executors is pulled."""
    return pipeline.spec.spark.image_pull_policy or settings.image_pull_policy


def leaves_lost_nodes(settings: OperatorSettings) -> list[Object]:
    """Tolerations by which a pod leaves a lost node after node_lost seconds; Kubernetes' default is five minutes.

    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
    """
    return [
        {
            "key": f"node.kubernetes.io/{taint}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": settings.node_lost,
        }
        for taint in ("not-ready", "unreachable")
    ]
