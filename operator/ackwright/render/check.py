"""The pod in which an edit is checked before the running driver is drained. Pure.

It has the image, configuration, Secrets and service account of the driver that the edit would start, runs Spark with
threads instead of executors, and changes nothing: neither brokers nor positions are touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ackwright.api.spec import DeliveryPipeline
from ackwright.planning.plan import DeliveryPlan
from ackwright.render.names import Object, labels, owned
from ackwright.render.workload import ENDING, job_config, objects
from ackwright.settings import OperatorSettings

CHECK_ROLE = "check"
EDIT_LABEL = "ackwright.io/edit"  # the hash of the spec that is checked
_CONTAINER_FIELDS = (
    *("image", "imagePullPolicy", "env", "envFrom"),
    *("resources", "securityContext", "terminationMessagePolicy"),
)
_POD_FIELDS = (
    *("imagePullSecrets", "securityContext", "serviceAccountName"),
    *("nodeSelector", "tolerations", "priorityClassName", "schedulerName"),
)


def check_objects(
    pipeline: DeliveryPipeline,
    plan: DeliveryPlan,
    uid: str,
    settings: OperatorSettings,
    edit: str,
    *,
    identity: str,
    expects_positions: bool = False,
) -> tuple[Object, ...]:
    """The configuration and the pod that check an edit.

    pipeline: as edited; edit: the hash of its spec; uid, identity, expects_positions: as objects() takes them.
    """
    rendered = objects(pipeline, plan, uid, settings, identity=identity, expects_positions=expects_positions)
    driver = next(o for o in rendered if o["kind"] in ("StatefulSet", "Job"))
    config = job_config(pipeline, plan, uid, settings, identity=identity, expects_positions=expects_positions)
    pod = owned(
        pipeline,
        uid,
        api_version="v1",
        kind="Pod",
        name=check_name(pipeline.metadata.name, edit),
        role=CHECK_ROLE,
        spec=_spec(driver["spec"]["template"]["spec"], settings, in_kafka=plan.sink.in_kafka),
    )
    pod["metadata"]["labels"] = labels(pipeline.metadata.name, CHECK_ROLE) | {EDIT_LABEL: edit}
    return config, pod


def check_name(pipeline: str, edit: str) -> str:
    """The name of the pod that checks an edit."""
    return f"{pipeline}-check-{edit}"


def _spec(driver: Mapping[str, Any], settings: OperatorSettings, *, in_kafka: bool) -> Object:
    container = driver["containers"][0]
    jobspec = container["args"][container["args"].index("--jobspec") + 1]
    volumes = [v for v in driver["volumes"] if "persistentVolumeClaim" not in v]  # the running driver has the claim
    names = {v["name"] for v in volumes}
    arguments = ["driver", "--jobspec", jobspec, "--ending", ENDING]
    # Without brokers: the running driver is a member of the group, and owns the pipeline.
    arguments += ["--check-transform" if in_kafka else "--check-sink"]
    arguments += ["--conf", "spark.master=local[1]", "--conf", "spark.driver.host=127.0.0.1"]
    arguments += ["--conf", "spark.eventLog.enabled=false"]  # it may be on a claim, and nobody reads a check's log
    return {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(settings.settle),
        "automountServiceAccountToken": False,  # it does not call the Kubernetes API
        "enableServiceLinks": False,
        **{k: driver[k] for k in _POD_FIELDS if k in driver},
        "containers": [
            {
                "name": container["name"],
                "args": arguments,
                "volumeMounts": [m for m in container["volumeMounts"] if m["name"] in names],
                **{k: container[k] for k in _CONTAINER_FIELDS if k in container},
            }
        ],
        "volumes": volumes,
    }
