"""The pods of pipelines into each sink have what its client needs: the files of Secrets, and where to write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ackwright.api.spec import examine
from ackwright.planning import validation
from ackwright.render.audit import audit_job
from ackwright.render.pods import SECRETS
from e2e import sink_specs
from unit.render.pipelines import declared, driver, rendered

SPECS = {
    name: {"guarantee": "exactly-once", "kafka": {"bootstrapServers": "kafka:9092"}, **spec}
    for name, spec in sink_specs.each("p").items()
}
SECRETS_OF = {
    "delta": {"lake-login"},
    "iceberg": {"lake-login"},
    "files": {"lake-login"},
    "postgres": {"db-login", "db-ca"},
    "avro": set(),
    "another-cluster": {"second-login", "second-ca"},
}


def texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


@pytest.mark.parametrize("name", SPECS)
def test_the_specs_of_the_tests_on_a_cluster_are_valid(name: str) -> None:
    document = {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "p", "namespace": "ops"},
        "spec": SPECS[name],
    }
    pipeline, violations = examine(document)
    assert pipeline is not None, violations
    assert [str(v) for v in (*violations, *validation.check(pipeline, violations))] == []


@pytest.mark.parametrize("name", SPECS)
def test_each_pod_mounts_the_secrets_where_the_job_reads_them(name: str) -> None:
    objects = rendered(declared(SPECS[name]))
    data = objects["job"]["data"]
    workload = driver(objects)
    pods = [
        workload["spec"]["template"]["spec"],
        json.loads(data["executor.yaml"])["spec"],
        audit_job(workload, "p-audit")["spec"]["template"]["spec"],
    ]
    paths = {text for text in texts(json.loads(data["job.json"])) if text.startswith(f"{SECRETS}/")}
    assert {path.removeprefix(f"{SECRETS}/").partition("/")[0] for path in paths} == SECRETS_OF[name]
    for pod in pods:
        (container,) = pod["containers"]
        secrets = {v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
        mounts = {secrets[m["name"]]: m["mountPath"] for m in container["volumeMounts"] if m["name"] in secrets}
        assert mounts == {secret: f"{SECRETS}/{secret}" for secret in SECRETS_OF[name]}
        assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"], "it may read them"


@pytest.mark.parametrize("name", SPECS)
def test_each_pod_can_write_temporary_files_although_its_root_file_system_is_read_only(name: str) -> None:
    """Dead letters on their way, Spark's shuffle files, and the files that an audit copies are below /tmp."""
    objects = rendered(declared(SPECS[name]))
    workload = driver(objects)
    for pod in (
        workload["spec"]["template"]["spec"],
        json.loads(objects["job"]["data"]["executor.yaml"])["spec"],
        audit_job(workload, "p-audit")["spec"]["template"]["spec"],
    ):
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        writable = {v["name"] for v in pod["volumes"] if "emptyDir" in v}
        places = {m["mountPath"] for m in container["volumeMounts"] if m["name"] in writable}
        assert places == {"/tmp", "/dev/shm"}  # noqa: S108 (paths in a container)
