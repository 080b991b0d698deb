"""What the driver's pod and its executors' have in common: who they run as, what they may write, which Secrets they see, how their
image is pulled. Pure.

Everything here keeps the Pod Security Standard "restricted". https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

import re

from ackwright.api.quantities import memory_mib
from ackwright.api.spec import DeliveryPipeline
from ackwright.render.names import Object
from ackwright.settings import OperatorSettings

SECRETS = "/etc/ackwright/secrets"
_USER = 10001  # the image's user
_OVERHEAD = 0.4  # of the heap, for Python workers and what the JVM keeps beside it: Spark's own factor for PySpark on Kubernetes
_OVERHEAD_MIN_MIB = 384


def pod_security() -> Object:
    return {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        "fsGroup": _USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Object:
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def overhead_mib(memory: str) -> int:
    """Memory beside the heap, in MiB. https://spark.apache.org/docs/latest/running-on-kubernetes.html (memoryOverheadFactor)"""
    return max(_OVERHEAD_MIN_MIB, int(memory_mib(memory) * _OVERHEAD))


def driver_overhead_mib(pipeline: DeliveryPipeline) -> int:
    """Memory of the driver's pod beside the heap, in MiB: as chosen, else as above."""
    chosen = pipeline.spec.spark.conf.get("spark.driver.memoryOverhead", "").strip().lower()
    if chosen.isdigit():
        return int(chosen)  # Spark's unit here is MiB
    found = re.fullmatch("([0-9]{1,7})(m|mb|g|gb)", chosen)
    if found is None:
        return overhead_mib(pipeline.spec.spark.driver.memory)
    return int(found[1]) * (1024 if found[2].startswith("g") else 1)


def secret_names(pipeline: DeliveryPipeline) -> tuple[str, ...]:
    """The Secrets that the connection needs, of the pipeline's own namespace."""
    kafka = pipeline.spec.kafka
    named = [kafka.auth.credentials_secret.name] if kafka.auth else []
    named += [kafka.tls.ca_secret.name] if kafka.tls and kafka.tls.ca_secret else []
    return tuple(dict.fromkeys(named))


def secret_volumes(pipeline: DeliveryPipeline) -> tuple[list[Object], list[Object]]:
    """Volumes and mounts: each Secret as a directory of files, readable by the job's group alone."""
    names = secret_names(pipeline)
    volumes = [{"name": f"secret-{i}", "secret": {"secretName": n, "defaultMode": 0o440}} for i, n in enumerate(names)]
    mounts = [{"name": f"secret-{i}", "mountPath": f"{SECRETS}/{n}", "readOnly": True} for i, n in enumerate(names)]
    return volumes, mounts


def scratch() -> tuple[list[Object], list[Object]]:
    """The only places that a container may write to."""
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}]
    return volumes, [{"name": "tmp", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108


def pull_secrets(settings: OperatorSettings) -> Object:
    """The pod's field for them. Not there without any, so that drivers are not restarted by an operator that knows the setting."""
    return (
        {"imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets]}
        if settings.image_pull_secrets
        else {}
    )


def leaves_lost_nodes(settings: OperatorSettings) -> list[Object]:
    """A pod on a node that does not answer is given up after node_lost seconds, not after five minutes.

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
