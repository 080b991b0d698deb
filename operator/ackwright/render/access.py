"""The driver's permissions in Kubernetes: to create, watch and delete its executors' pods in its namespace. Pure.

Executors get no token. https://spark.apache.org/docs/latest/running-on-kubernetes.html#rbac
"""

from __future__ import annotations

from ackwright.api.spec import DeliveryPipeline
from ackwright.render.names import Object, owned


def driver_account(pipeline: DeliveryPipeline) -> str:
    """The name of the driver's service account."""
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
                # When Spark stops it deletes objects that it may have created, and logs an error without permission.
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
