"""Pipelines on a real cluster: applies them, produces flights, waits for conditions, and audits the delivery."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

import waiting
from ackwright.local.demo import flights
from ackwright_stream.admin_client import AdminClient
from command import ACKWRIGHT
from lab import images
from lab.cluster import Cluster, print_progress
from lab.images import Image

T = TypeVar("T")

RELEASE, CHART = "ackwright", Path(__file__).resolve().parents[2] / "charts" / "ackwright"
SYSTEM, NAMESPACE = "ackwright-system", "ops"
_WAIT = 400.0  # seconds; on two processors that also run brokers and cluster, a driver starts in one or two minutes
_PAUSE = 0.5  # seconds between two reads of a condition, most of which start a process
# Shorter intervals than the defaults, so that tests need not wait for them.
SETTINGS = {
    "PROGRESS_EVERY": "2",
    "RESYNC": "15",
    "NODE_LOST": "5",
    "DRAIN": "60",
    "CRASH_DELAY_MAX": "20",
}


class Installation:
    """A release of the operator in a cluster."""

    def __init__(self, cluster: Cluster, operator: Image, spark: Image) -> None:
        self.cluster, self.operator, self.spark = cluster, operator, spark

    def create_secret(self, name: str, **data: str) -> str:
        """Creates or replaces a Secret; returns its name."""
        meta = {"name": name, "namespace": NAMESPACE}
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data})
        return name

    def create_namespace(self, name: str) -> None:
        """Creates a namespace that enforces Pod Security."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def install(self, chart: Path = CHART, **more: Any) -> None:
        """Installs or upgrades the release. more: further values."""
        # --take-ownership, because an external cluster may already have the CRD.
        self.helm("upgrade", "--install", "--take-ownership", chart=chart, **more)

    def helm(self, *command: str, chart: Path = CHART, **more: Any) -> None:
        """Runs helm install or upgrade with the tests' values; returns when the operator is ready."""
        settings = {
            "watchNamespaces": [NAMESPACE],
            "image": {"operator": self.operator.reference, "spark": self.spark.reference},
            "settings": SETTINGS,
            **more,
        }
        values = self.cluster.kubeconfig.parent / "values.yaml"
        values.write_text(yaml.safe_dump(settings))
        self.cluster.helm(
            *command, RELEASE, chart, "--namespace", SYSTEM, "--values", values, "--wait", "--timeout", "2m"
        )

    def uninstall(self) -> None:
        """Deletes all pipelines and uninstalls the release."""
        self.cluster.kubectl(
            "delete", "deliverypipelines", "--all", "--namespace", NAMESPACE, "--timeout=120s", timeout=130
        )
        self.cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")

    def apply(self, *objects: Mapping[str, Any]) -> None:
        self.cluster.kubectl("apply", "--filename", "-", text=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str = "", *, namespace: str = NAMESPACE, labels: str = "") -> Any:
        """The named object; without a name the list of objects, with these labels if any."""
        selector = ["--selector", labels] if labels else []
        answer = json.loads(
            self.cluster.kubectl(
                "--namespace", namespace, "get", kind, *([name] if name else []), *selector, "--output", "json"
            )
        )
        return answer if name else answer["items"]

    def kubectl(self, *arguments: str, timeout: float = 120) -> str:
        return self.cluster.kubectl("--namespace", NAMESPACE, *arguments, timeout=timeout)

    @property
    def kafka(self) -> str:
        """The addresses of the brokers for this machine."""
        return self.cluster.brokers.bootstrap_servers

    def operator_pod(self) -> Mapping[str, Any]:
        """The newest pod of the operator that is not ending."""
        pods = self.get("pods", namespace=SYSTEM, labels="app.kubernetes.io/name=ackwright")
        present = [p for p in pods if not p["metadata"].get("deletionTimestamp")]
        pod: Mapping[str, Any] = max(present, key=lambda p: p["metadata"]["creationTimestamp"])
        return pod


@contextmanager
def installation(cluster: Cluster) -> Iterator[Installation]:
    """A new release of the operator with images of this checkout; uninstalled at the end if the cluster stays."""
    built = {target: images.build(target, print_progress) for target in ("operator", "spark")}
    for image in built.values():
        cluster.load_image(image)
    release = Installation(cluster, built["operator"], built["spark"])
    release.create_namespace(SYSTEM)
    release.create_namespace(NAMESPACE)
    release.install()
    yield release
    if not cluster.created:
        release.uninstall()


@dataclass
class Pipeline:
    """One DeliveryPipeline with its own topics."""

    installation: Installation
    document: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def source(self) -> str:
        return str(self.document["spec"]["source"]["topics"][0])

    @property
    def sink(self) -> str:
        return str(self.document["spec"]["sink"]["kafka"]["topic"])

    def apply(self, **spec: Any) -> None:
        """Applies the pipeline, with parts of the spec replaced."""
        self.document["spec"] |= spec
        self.installation.apply(self.document)

    def delete(self, *, wait: bool = True) -> None:
        argv = [
            "delete",
            "deliverypipeline",
            self.name,
            "--ignore-not-found",
            f"--wait={str(wait).lower()}",
            "--timeout=120s",
        ]
        self.installation.kubectl(*argv, timeout=130)

    def status(self) -> Mapping[str, Any]:
        status: Mapping[str, Any] = self.installation.get("deliverypipeline", self.name).get("status", {})
        return status

    def condition(self, kind: str) -> Mapping[str, Any]:
        """The condition; empty if it does not exist or is about an earlier generation."""
        resource = self.installation.get("deliverypipeline", self.name)
        conditions = resource.get("status", {}).get("conditions", ())
        condition: Mapping[str, Any] = next((c for c in conditions if c["type"] == kind), {})
        return condition if condition.get("observedGeneration") == resource["metadata"]["generation"] else {}

    def wait_for(self, kind: str, status: str, reason: str | None = None, timeout: float = _WAIT) -> Mapping[str, Any]:
        """Waits until a condition has this status and, unless None, this reason; returns it. timeout: seconds."""

        def matching() -> Mapping[str, Any] | None:
            current = self.condition(kind)
            matches = current.get("status") == status and (reason is None or current["reason"] == reason)
            return current if matches else None

        return self.wait_until(matching, f"{kind} is {status} {reason or ''}", timeout)

    def wait_until(
        self, condition: Callable[[], T | None], what: str, timeout: float = _WAIT, pause: float = _PAUSE
    ) -> T:
        """Polls until the condition is true; returns its value. A failure describes the pipeline. Times in seconds."""
        try:
            return waiting.wait_until(condition, f"{self.name}: {what}", timeout, pause)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.describe()}") from None

    def describe(self) -> str:
        """The resource, its pods and all logs, for the message of a failed test."""
        parts = [
            self.installation.kubectl("get", "deliverypipeline", self.name, "--output", "yaml"),
            self.installation.kubectl("get", "pods", "--output", "wide"),
            self.installation.cluster.kubectl(
                "--namespace", SYSTEM, "logs", "deployment/ackwright-operator", "--tail=40"
            ),
        ]
        for pod in self.installation.get("pods", labels=f"ackwright.io/pipeline={self.name}"):
            parts.append(_logs(self.installation, pod["metadata"]["name"]))
        return "\n".join(parts)

    def driver(self) -> Mapping[str, Any] | None:
        """The driver's pod, if there is one."""
        pods = self.installation.get("pods", labels=f"ackwright.io/pipeline={self.name},ackwright.io/role=driver")
        return next(iter(pods), None)

    def executors(self) -> list[Mapping[str, Any]]:
        pods: list[Mapping[str, Any]] = self.installation.get(
            "pods", labels=f"ackwright.io/pipeline={self.name},ackwright.io/role=executor"
        )
        return pods

    def produce_flights(self, count: int, skip: int = 0) -> None:
        """Produces `count` flights to the source, after the first `skip`."""
        records = itertools.islice(flights.records(flights.archive(), skip + count), skip, None)
        settings = {
            "bootstrap.servers": self.installation.kafka,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        }
        flights.produce(settings, self.source, records, lambda _: None)

    def lag(self) -> int:
        """Offsets between the positions and the ends of the source; -1 while a partition has no position."""
        return group_lag(self.installation.kafka, f"{NAMESPACE}.{self.name}", self.source)

    def wait_until_delivered(self, timeout: float = _WAIT) -> None:
        """Waits until the positions are at the ends of the source. timeout: seconds."""
        self.wait_until(lambda: self.lag() == 0, "it has delivered everything", timeout)

    def wait_until_delivered_and_audit(self, directory: Path) -> None:
        """Waits until everything is delivered; fails unless the audit confirms the guarantee."""
        self.wait_until_delivered()
        report = self.audit(directory)
        assert report["exitCode"] == 0, report

    def audit(self, directory: Path) -> Mapping[str, Any]:
        """The report of `ackwright audit`, run outside the cluster, and its exit code as `exitCode`."""
        file = directory / f"{self.name}.yaml"
        document = json.loads(json.dumps(self.document))
        document["spec"]["kafka"] = {"bootstrapServers": self.installation.kafka}
        file.write_text(yaml.safe_dump(document))
        argv = [*ACKWRIGHT, "audit", "-f", str(file), "-o", "json"]
        completed = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, env={**os.environ})
        assert completed.stdout, completed.stderr
        report: Mapping[str, Any] = json.loads(completed.stdout)
        return {**report, "exitCode": completed.returncode}


@contextmanager
def pipeline(installation: Installation, guarantee: str, *, create: bool = True, **spec: Any) -> Iterator[Pipeline]:
    """A pipeline of delayed flights, applied if create is True; deleted at the end together with its topics."""
    name = f"{guarantee.split('-')[1]}-{uuid.uuid4().hex[:6]}"
    document: dict[str, Any] = {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "guarantee": guarantee,
            "kafka": {"bootstrapServers": "kafka:9092"},
            "source": {
                "topics": [f"{name}-flights"],
                "format": "json",
                "schema": "tailnum STRING, origin STRING, dest STRING, dep_delay INT",
                "maxOffsetsPerTrigger": 2000,
            },
            "transform": {"sql": "SELECT tailnum AS key, origin, dest, dep_delay FROM source WHERE dep_delay > 15"},
            "sink": {"kafka": {"topic": f"{name}-delayed", "format": "json"}},
            "topics": [{"name": f"{name}-flights", "partitions": 3}, {"name": f"{name}-delayed", "partitions": 3}],
            "trigger": {"interval": "500ms"},
            "spark": {
                "driver": {"cpuRequest": "200m", "memory": "600m"},
                "executor": {"instances": 1, "cores": 2, "cpuRequest": "200m", "memory": "600m"},
            },
            **spec,
        },
    }
    p = Pipeline(installation, document)
    if create:
        p.apply()
    try:
        yield p
    finally:
        p.delete()
        delete_topics(installation.kafka, [topic["name"] for topic in document["spec"]["topics"]])


def group_lag(bootstrap: str, group: str, topic: str) -> int:
    """Offsets between the group's positions and the topic's ends.

    -1 while a partition has no position, or the brokers do not answer.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        lag = 0
        for position in consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=10):
            if position.offset < 0:
                return -1
            end = consumer.get_watermark_offsets(TopicPartition(topic, position.partition), timeout=10)[1]
            lag += end - position.offset
        return lag
    except KafkaException:
        return -1
    finally:
        consumer.close()


def create_topics(bootstrap: str, *names: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(n, partitions, 3) for n in names], operation_timeout=30).values():
        future.result(30)


def delete_topics(bootstrap: str, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    existing = admin.list_topics(timeout=10).topics
    present = [n for n in names if n in existing]
    for future in (admin.delete_topics(present, operation_timeout=30) if present else {}).values():
        future.result(30)


def wait_until(condition: Callable[[], T | None], what: str, timeout: float = _WAIT) -> T:
    """Polls until the condition is true; returns its value. timeout: seconds."""
    return waiting.wait_until(condition, what, timeout, _PAUSE)


def _logs(installation: Installation, pod: str) -> str:
    try:
        return f"--- {pod}\n" + installation.kubectl("logs", pod, "--tail=60")
    except Exception as e:
        return f"--- {pod}: {e}"
