"""The audit Job runs the image of the driver, without its volume and without the operator's labels."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.render.audit import audit_job
from ackwright.render.names import MANAGED_BY
from ackwright.settings import OperatorSettings
from unit.render.pipelines import MINIMAL, declared, driver, rendered


@pytest.mark.parametrize("checkpoint", [None, {"volume": {"size": "1Gi"}}])
@pytest.mark.parametrize("trigger", [{"interval": "1s"}, {"availableNow": True}])
def test_every_mount_has_its_volume_and_none_is_a_claim(checkpoint: Any, trigger: Any) -> None:
    pipeline = declared(MINIMAL, trigger=trigger, **({"checkpoint": checkpoint} if checkpoint else {}))
    job = audit_job(driver(rendered(pipeline)), "flights-audit-1")
    pod = job["spec"]["template"]["spec"]
    mounted = {m["name"] for m in pod["containers"][0]["volumeMounts"]}
    assert {v["name"] for v in pod["volumes"]} == mounted  # the API server refuses a mount without a volume
    assert "job" in mounted
    assert not any("persistentVolumeClaim" in v for v in pod["volumes"]), "only the driver mounts the claim"


def test_the_audit_job_gets_the_topics_to_which_records_may_be_routed() -> None:
    job = audit_job(driver(rendered(declared(MINIMAL))), "flights-audit-1", ["left", "right"])
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][-2:] == ["--route=left", "--route=right"]


def test_the_audit_job_is_not_labelled_as_managed_by_the_operator() -> None:
    job = audit_job(driver(rendered(declared(MINIMAL))), "flights-audit-1")
    for labels in (job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]):
        assert MANAGED_BY not in labels.values()
        assert labels["ackwright.io/role"] == "audit"


@pytest.mark.parametrize("trigger", [{"interval": "1s"}, {"availableNow": True}])
def test_the_audit_job_has_the_pull_secrets_of_the_driver(trigger: object) -> None:
    pipeline = declared(MINIMAL, trigger=trigger)
    workload = driver(rendered(pipeline, OperatorSettings(image_pull_secrets=("b", "a"))))
    assert audit_job(workload, "flights-audit-1")["spec"]["template"]["spec"]["imagePullSecrets"] == [
        {"name": "b"},
        {"name": "a"},
    ]
    assert (
        "imagePullSecrets" not in audit_job(driver(rendered(pipeline)), "flights-audit-1")["spec"]["template"]["spec"]
    )


@pytest.mark.parametrize("trigger", [{"interval": "1s"}, {"availableNow": True}])
def test_the_audit_job_has_the_identity_of_the_driver_and_no_token(trigger: object) -> None:
    """Without a Secret the sinks in S3 use the identity of the service account, and the audit reads what they wrote."""
    workload = driver(rendered(declared(MINIMAL, trigger=trigger)))
    pod = audit_job(workload, "flights-audit-1")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == f"{workload['metadata']['name']}-driver"
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("trigger", [{"interval": "1s"}, {"availableNow": True}])
def test_driver_and_audit_write_their_ending_where_the_kubelet_reads_it(trigger: object) -> None:
    workload = driver(rendered(declared(MINIMAL, trigger=trigger)))
    for job in (workload, audit_job(workload, "flights-audit-1")):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        arguments = container["args"]
        assert (
            arguments[arguments.index("--ending") + 1] == "/dev/termination-log"
        )  # Kubernetes' terminationMessagePath
        assert "terminationMessagePath" not in container


def test_an_audit_writes_no_event_log() -> None:
    pipeline = declared(MINIMAL, spark={"eventLog": {"directory": "s3a://logs/spark"}})
    job = audit_job(driver(rendered(pipeline)), "flights-audit-1")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][container["args"].index("spark.eventLog.enabled=false") - 1] == "--conf"
