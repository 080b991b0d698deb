"""The audit of a pipeline as a Job in its namespace, with the same configuration as its driver. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ackwright.render.names import ROLE_LABEL, Object
from ackwright.render.workload import ENDING

CONTAINER = "audit"
_TTL_S = 3600  # Kubernetes deletes a finished Job after an hour; until then its log can be read


def audit_job(driver: Mapping[str, Any], name: str, routes: Iterable[str] = ()) -> Object:
    """A Job that audits the pipeline of this driver.

    routes: topics to which a transform that names topics may route records.
    driver: the pipeline's StatefulSet or Job; the audit's pod gets the same image, configuration, Secrets and service
    account, whose identity the sink may need (IAM roles for service accounts). It runs Spark with threads instead of
    executors, and gets no token because it does not call the Kubernetes API.
    """
    meta, template = driver["metadata"], driver["spec"]["template"]["spec"]
    container = template["containers"][0]
    jobspec = container["args"][container["args"].index("--jobspec") + 1]
    container_fields = ("image", "imagePullPolicy", "env", "envFrom", "resources", "securityContext")
    pod_fields = (
        *("imagePullSecrets", "securityContext", "serviceAccountName"),
        *("nodeSelector", "tolerations", "priorityClassName", "schedulerName"),
    )
    # Without managed-by, so that the operator's caches ignore the Job.
    labels = {k: v for k, v in meta["labels"].items() if "managed-by" not in k} | {ROLE_LABEL: "audit"}
    volumes = [v for v in template["volumes"] if "persistentVolumeClaim" not in v]  # the driver uses the claim
    names = {v["name"] for v in volumes}
    options = ["--jobspec", jobspec, "--ending", ENDING, "-o", "json", "--conf", "spark.master=local[*]"]
    options += ["--conf", "spark.eventLog.enabled=false"]  # it may be on a claim
    options += [f"--route={topic}" for topic in routes]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": meta["namespace"], "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _TTL_S,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    **{k: template[k] for k in pod_fields if k in template},
                    "containers": [
                        {
                            "name": CONTAINER,
                            "args": ["audit", *options],
                            "volumeMounts": [m for m in container["volumeMounts"] if m["name"] in names],
                            **{k: container[k] for k in container_fields if k in container},
                        }
                    ],
                    "volumes": volumes,
                },
            },
        },
    }
