"""The audit of a pipeline as a Job in its namespace, with the very configuration that its driver has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ackwright.render.names import Object

CONTAINER = "audit"
_OWN_ROLE = {"ackwright.io/role": "audit"}
_KEPT_S = 3600  # a finished Job is there for an hour, for whoever wants to look


def audit_job(driver: Mapping[str, Any], name: str) -> Object:
    """A Job that audits. driver: the pipeline's StatefulSet or Job, whose pod has the right image, configuration and Secrets.

    The audit runs with threads in place of executors, and without a token: it asks nothing of Kubernetes."""
    meta, template = driver["metadata"], driver["spec"]["template"]["spec"]
    container = template["containers"][0]
    jobspec = container["args"][container["args"].index("--jobspec") + 1]
    kept = ("image", "imagePullPolicy", "resources", "securityContext", "volumeMounts")
    labels = {**meta["labels"], **_OWN_ROLE}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": meta["namespace"], "labels": {k: v for k, v in labels.items() if "managed-by" not in k}},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _KEPT_S,
            "template": {
                "metadata": {"labels": {k: v for k, v in labels.items() if "managed-by" not in k}},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "securityContext": template["securityContext"],
                    "containers": [
                        {
                            "name": CONTAINER,
                            "args": ["audit", "--jobspec", jobspec, "-o", "json", "--conf", "spark.master=local[*]"],
                            **{k: container[k] for k in kept if k in container},
                        }
                    ],
                    "volumes": [v for v in template["volumes"] if "persistentVolumeClaim" not in v],
                },
            },
        },
    }
