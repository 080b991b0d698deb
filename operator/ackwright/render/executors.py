"""The executors: a pod template, and the Spark settings with which the driver creates pods from it. Pure."""

from __future__ import annotations

import json

from ackwright.api.spec import DeliveryPipeline
from ackwright.render.access import driver_account
from ackwright.render.names import Object, labels, selector
from ackwright.render.pod_templates import merged
from ackwright.render.pods import (
    container_security,
    executor_overhead_mib,
    leaves_lost_nodes,
    pod_security,
    pull_policy,
    pull_secrets,
    s3a_classes,
    scratch,
    secret_volumes,
)
from ackwright.settings import OperatorSettings

TEMPLATE_KEY = "executor.yaml"
_CONTAINER = "executor"


def template(pipeline: DeliveryPipeline, settings: OperatorSettings) -> str:
    """The pod template, as YAML. The driver adds image, command, resources and further variables."""
    name = pipeline.metadata.name
    volumes, mounts = secret_volumes(pipeline)
    scratch_volumes, scratch_mounts = scratch()
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": labels(name, "executor")},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **pull_secrets(pipeline, settings),  # Spark adds to these and removes none
            "securityContext": pod_security(),
            "tolerations": leaves_lost_nodes(settings),
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": selector(name, "executor")},
                }
            ],
            "terminationGracePeriodSeconds": 10,
            "containers": [
                {
                    "name": _CONTAINER,
                    **({"env": variables} if (variables := s3a_classes(pipeline)) else {}),
                    "securityContext": container_security(),
                    "volumeMounts": [*scratch_mounts, *mounts],
                }
            ],
            "volumes": [*scratch_volumes, *volumes],
        },
    }
    pod = merged(pod, pipeline.spec.spark.executor.pod_template, selector(name, "executor"))
    return json.dumps(pod, sort_keys=True, indent=1) + "\n"  # JSON is YAML


def spark_settings(pipeline: DeliveryPipeline, settings: OperatorSettings, *, template_file: str) -> dict[str, str]:
    """Spark settings for Kubernetes. A user can set only those that the allow-list of spec.spark.conf contains.

    https://spark.apache.org/docs/latest/running-on-kubernetes.html
    """
    executor = pipeline.spec.spark.executor
    derived = {
        "spark.kubernetes.namespace": pipeline.metadata.namespace,
        "spark.kubernetes.container.image": image(pipeline, settings),
        "spark.kubernetes.container.image.pullPolicy": pull_policy(pipeline, settings),
        "spark.kubernetes.executor.podTemplateFile": template_file,
        "spark.kubernetes.executor.podTemplateContainerName": _CONTAINER,
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.authenticate.executor.serviceAccountName": driver_account(pipeline),
        # Driver and executors authenticate each other. Spark generates the secret at each start, and passes it to the
        # executors' pods.
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.kubernetes.executor.request.cores": executor.cpu_request or str(executor.cores),
        "spark.executor.memoryOverhead": f"{executor_overhead_mib(pipeline)}m",
        "spark.local.dir": "/tmp/spark",  # noqa: S108 (a volume of the pod's own)
        "spark.sql.warehouse.dir": "/tmp/warehouse",  # noqa: S108
        # With the default, executors on a lost node delay the batch by two minutes.
        "spark.network.timeout": "60s",
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 (the pod's own network)
    }
    declared = pipeline.spec.spark.conf
    return {name: value for name, value in derived.items() if name not in declared}


def image(pipeline: DeliveryPipeline, settings: OperatorSettings) -> str:
    """The image of driver and executors."""
    return pipeline.spec.spark.image or settings.spark_image
