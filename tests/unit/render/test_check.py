"""The pod that checks an edit has the driver's image and configuration, and touches neither brokers nor volumes."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.planning.plan import plan
from ackwright.render.check import check_objects
from ackwright.render.names import MANAGED_BY, Object
from ackwright.settings import OperatorSettings
from unit.render.pipelines import MINIMAL, declared, driver, rendered
from unit.render.pod_security import violations

SETTINGS = OperatorSettings(image_pull_secrets=("pull",))


def check(**spec: Any) -> tuple[Object, Object, Any]:
    """The configuration, the pod, and the driver that the edit would start."""
    pipeline = declared(MINIMAL, **spec)
    config, pod = check_objects(pipeline, plan(pipeline), "uid", SETTINGS, "0123456789", identity="uid")
    return config, pod, driver(rendered(pipeline, SETTINGS))


@pytest.mark.parametrize("checkpoint", [None, {"volume": {"size": "1Gi"}}])
def test_it_mounts_the_configuration_of_the_edit_and_no_claim(checkpoint: Any) -> None:
    config, pod, _ = check(**({"checkpoint": checkpoint} if checkpoint else {}))
    mounted = {m["name"] for m in pod["spec"]["containers"][0]["volumeMounts"]}
    assert {v["name"] for v in pod["spec"]["volumes"]} == mounted
    [name] = [v["configMap"]["name"] for v in pod["spec"]["volumes"] if "configMap" in v]
    assert name == config["metadata"]["name"]


@pytest.mark.parametrize("trigger", [{"interval": "1s"}, {"availableNow": True}])
def test_it_runs_the_drivers_image_with_its_identity_and_without_a_token(trigger: Any) -> None:
    _, pod, workload = check(trigger=trigger)
    template = workload["spec"]["template"]["spec"]
    assert pod["spec"]["containers"][0]["image"] == template["containers"][0]["image"]
    assert pod["spec"]["serviceAccountName"] == template["serviceAccountName"]
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert violations(pod["spec"]) == []


def test_the_operator_watches_it_and_does_not_take_it_for_a_driver() -> None:
    _, pod, _ = check()
    labels = pod["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == MANAGED_BY
    assert (labels["ackwright.io/role"], labels["ackwright.io/edit"]) == ("check", "0123456789")
    assert pod["metadata"]["name"].endswith("-check-0123456789")


@pytest.mark.parametrize(
    ("sink", "option"),
    [
        ({"kafka": {"topic": "out"}}, "--check-transform"),
        ({"files": {"path": "s3://lake/t", "s3": {"region": "eu-central-1"}}}, "--check-sink"),
    ],
)
def test_a_sink_outside_kafka_is_asked_whether_it_takes_the_output(sink: Any, option: str) -> None:
    _, pod, _ = check(sink=sink)
    arguments = pod["spec"]["containers"][0]["args"]
    assert [a for a in arguments if a.startswith("--check")] == [option]
    assert "spark.master=local[1]" in arguments
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["activeDeadlineSeconds"] == SETTINGS.settle


def test_it_writes_no_event_log() -> None:
    _, pod, _ = check(spark={"eventLog": {"directory": "s3a://logs/spark"}})
    arguments = pod["spec"]["containers"][0]["args"]
    assert arguments[arguments.index("spark.eventLog.enabled=false") - 1] == "--conf"
