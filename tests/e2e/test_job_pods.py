"""What pods of a pipeline have beside the job, in a cluster: placement, sidecars, Spark's page and logs, metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from e2e.pipelines import NAMESPACE, Installation, Pipeline, pipeline
from e2e.state_places import on_a_volume

FLIGHTS = 6000
_POOL = "job-pods-pool"  # the label and taint of one node
_SLEEP = "import signal; signal.signal(15, lambda *_: exit()); signal.pause()"
_READ = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"


@contextmanager
def reserved_node(installed: Installation) -> Iterator[str]:
    """A node that other pods are not scheduled on. Yields its name."""
    node = installed.cluster.nodes[-1]
    installed.cluster.kubectl("label", "node", node, f"{_POOL}=jobs")
    installed.cluster.kubectl("taint", "node", node, f"{_POOL}=jobs:NoSchedule")
    try:
        yield node
    finally:
        installed.cluster.kubectl("taint", "node", node, f"{_POOL}-")
        installed.cluster.kubectl("label", "node", node, f"{_POOL}-")


@contextmanager
def claim(installed: Installation, directory: Path) -> Iterator[str]:
    """A PersistentVolumeClaim of a directory of this machine. Yields its name."""
    with on_a_volume(installed, directory) as volume:
        name, declared = volume["volume"]["storageClassName"], volume["volume"]
        spec = {
            "storageClassName": name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": declared["size"]}},
        }
        meta = {"name": name, "namespace": NAMESPACE}
        installed.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
        try:
            yield name
        finally:
            installed.kubectl("delete", "persistentvolumeclaim", name, "--wait=false")


def read_page(p: Pipeline, pod: str, url: str) -> str:
    """What a server within the driver's pod answers."""
    argv = ("exec", pod, "--container", "driver", "--", "python3", "-c", _READ, url)
    return p.installation.kubectl(*argv)


def pod_spec(installed: Installation, claimed: str) -> dict[str, Any]:
    """spec.spark with everything that the test reads back."""
    placed = {
        "nodeSelector": {_POOL: "jobs"},
        "tolerations": [{"key": _POOL, "value": "jobs", "effect": "NoSchedule"}],
        "labels": {"cost-center": "payments"},
        "annotations": {"example.com/owner": "flights"},
        "env": [{"name": "TEAM", "value": "flights"}],
        "sidecars": [
            {"name": "sleeper", "image": installed.operator.reference, "command": ["python3", "-c", _SLEEP]},
        ],
    }
    events = {
        "volumes": [{"name": "events", "persistentVolumeClaim": {"claimName": claimed}}],
        "volumeMounts": [{"name": "events", "mountPath": "/mnt/events"}],
    }
    small = {"cpuRequest": "200m", "memory": "600m"}
    return {
        "conf": {"spark.ui.enabled": "true"},
        "eventLog": {"directory": "file:///mnt/events"},
        "driver": {**small, "podTemplate": {**placed, **events}},
        "executor": {**small, "instances": 1, "cores": 2, "podTemplate": placed},
    }


def assert_as_declared(pod: Mapping[str, Any], node: str) -> None:
    assert pod["spec"]["nodeName"] == node
    assert pod["metadata"]["labels"]["cost-center"] == "payments"
    assert pod["metadata"]["annotations"]["example.com/owner"] == "flights"
    job = next(c for c in pod["spec"]["containers"] if c["name"] in ("driver", "executor"))
    assert {"name": "TEAM", "value": "flights"} in job["env"]
    sidecar = next(c for c in pod["status"]["initContainerStatuses"] if c["name"] == "sleeper")
    assert sidecar["state"].keys() == {"running"}


def logged_events(directory: Path) -> bytes:
    """Everything in the event logs below the directory, decompressed, up to what is not flushed yet."""
    content = b""
    for file in sorted(file for file in directory.rglob("events_*") if file.is_file()):
        with pa.input_stream(str(file), compression="zstd") as log, suppress(OSError):
            while block := log.read(65_536):
                content += block
    return content


def test_pods_are_placed_and_extended_and_report_spark_and_its_memory(installed: Installation, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    with (
        reserved_node(installed) as node,
        claim(installed, events) as claimed,
        pipeline(installed, "exactly-once", create=False) as p,
    ):
        p.apply(spark=pod_spec(installed, claimed))
        p.wait_for("TopicsReady", "True")
        p.produce_flights(FLIGHTS)
        p.wait_until_delivered_and_audit(tmp_path)
        driver, executors = p.driver(), p.executors()
        assert driver is not None
        assert len(executors) == 1
        for pod in (driver, *executors):
            assert_as_declared(pod, node)
        name = driver["metadata"]["name"]
        assert "Streaming Query" in read_page(p, name, "http://localhost:4040/StreamingQuery/")
        metrics = read_page(p, name, "http://localhost:8090/metrics")
        for metric in ("ackwright_jvm_heap_bytes", "ackwright_executor_heap_peak_bytes"):
            values = [float(line.split()[-1]) for line in metrics.splitlines() if line.startswith(metric + "{")]
            assert values, metric
            assert min(values) > 0, metric
        assert p.condition("JobRunning")["reason"] == "Running", "not WithoutEventLog"
        assert b"SparkListenerTaskEnd" in logged_events(events)
