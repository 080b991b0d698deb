"""The least that a driver needs of Kubernetes: to make, watch and remove its own executors' pods, in its own namespace. Pure.

Executors get no token at all. https://spark.apache.org/docs/latest/running-on-kubernetes.html#rbac
"""

from __future__ import annotations

from ackwright.api.spec import DeliveryPipeline
from ackwright.render.names import Object, owned


def driver_account(pipeline: DeliveryPipeline) -> str:
    return f"{pipeline.metadata.name}-driver"


def access(pipeline: DeliveryPipeline, uid: str) -> tuple[Object, ...]:
    """Service account, role and binding of the driver."""
    name = driver_account(pipeline)
    return (
        owned(
            pipeline,
            uid,
            api_version="v1",
            kind="ServiceAccount",
            name=name,
            role="driver",
            automountServiceAccountToken=False,
        ),
        owned(
            pipeline,
            uid,
            api_version="rbac.authorization.k8s.io/v1",
            kind="Role",
            name=name,
            role="driver",
            rules=[
                {
                    "apiGroups": [""],
                    "resources": ["pods"],
                    "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "watch"],
                },
                # Spark tidies up what it might have made when it stops, and calls it an error if it may not.
                {
                    "apiGroups": [""],
                    "resources": ["configmaps", "persistentvolumeclaims", "services"],
                    "verbs": ["deletecollection", "list"],
                },
            ],
        ),
        owned(
            pipeline,
            uid,
            api_version="rbac.authorization.k8s.io/v1",
            kind="RoleBinding",
            name=name,
            role="driver",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            subjects=[{"kind": "ServiceAccount", "name": name, "namespace": pipeline.metadata.namespace}],
        ),
    )
