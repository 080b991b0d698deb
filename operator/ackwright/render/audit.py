"""The audit of a pipeline as a Job in its namespace, with the very configuration that its driver has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ackwright.render.names import ROLE_LABEL, Object

CONTAINER = "audit"
_KEPT_S = 3600  # a finished Job is there for an hour, for whoever wants to look


def audit_job(driver: Mapping[str, Any], name: str) -> Object:
    """A Job that audits. driver: the pipeline's StatefulSet or Job, whose pod has the right image, configuration and Secrets.

    The audit runs with threads in place of executors, and without a token: it asks nothing of Kubernetes."""
    meta, template = driver["metadata"], driver["spec"]["template"]["spec"]
    container = template["containers"][0]
    jobspec = container["args"][container["args"].index("--jobspec") + 1]
    kept = ("image", "imagePullPolicy", "resources", "securityContext")
    kept_of_pod = ("imagePullSecrets", "securityContext")
    labels = {k: v for k, v in meta["labels"].items() if "managed-by" not in k} | {
        ROLE_LABEL: "audit"
    }  # the operator's caches pass it over
    volumes = [v for v in template["volumes"] if "persistentVolumeClaim" not in v]  # that is the driver's
    names = {v["name"] for v in volumes}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": meta["namespace"], "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _KEPT_S,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    **{k: template[k] for k in kept_of_pod if k in template},
                    "containers": [
                        {
                            "name": CONTAINER,
                            "args": ["audit", "--jobspec", jobspec, "-o", "json", "--conf", "spark.master=local[*]"],
                            "volumeMounts": [m for m in container["volumeMounts"] if m["name"] in names],
                            **{k: container[k] for k in kept if k in container},
                        }
                    ],
                    "volumes": volumes,
                },
            },
        },
    }
