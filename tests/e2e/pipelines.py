"""Pipelines on a real cluster: applied, fed with real flights, watched and judged, as their user would."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
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
from lab.cluster import Cluster
from lab.images import Image

T = TypeVar("T")

RELEASE, CHART = "ackwright", Path(__file__).resolve().parents[2] / "charts" / "ackwright"
SYSTEM, NAMESPACE = "ackwright-system", "ops"
_WAIT_S = 400.0  # on two processors with brokers and a cluster, a driver that starts takes one minute, or two
# Short, that the tests need not wait for what is meant for days; what is measured is said where it is measured.
SETTINGS = {
    "PROGRESS_EVERY": "2",
    "RESYNC": "15",
    "NODE_LOST": "5",
    "DRAIN": "60",
    "CRASH_DELAY_MAX": "20",
    "STUCK": "60",
}


class Installation:
    """The operator in a cluster."""

    def __init__(self, cluster: Cluster, operator: Image, spark: Image) -> None:
        self.cluster, self.operator, self.spark = cluster, operator, spark

    def namespace(self, name: str) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def install(self, **more: Any) -> None:
        """Installs or upgrades. more: values beside those that every test needs."""
        # A definition that is there already, of a cluster that was given, becomes the release's.
        self.helm("upgrade", "--install", "--take-ownership", **more)

    def helm(self, *command: str, **more: Any) -> None:
        """helm install or upgrade, with the values of these tests. Returns when the operator is ready."""
        chosen = {
            "watchNamespaces": [NAMESPACE],
            "image": {"operator": self.operator.reference, "spark": self.spark.reference},
            "settings": SETTINGS,
            **more,
        }
        values = self.cluster.kubeconfig.parent / "values.yaml"
        values.write_text(yaml.safe_dump(chosen))
        self.cluster.helm(
            *command, RELEASE, CHART, "--namespace", SYSTEM, "--values", values, "--wait", "--timeout", "2m"
        )

    def uninstall(self) -> None:
        self.cluster.kubectl(
            "delete", "deliverypipelines", "--all", "--namespace", NAMESPACE, "--timeout=120s", timeout=130
        )
        self.cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")

    def apply(self, *objects: Mapping[str, Any]) -> None:
        self.cluster.kubectl("apply", "--filename", "-", text=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str = "", *, namespace: str = NAMESPACE, labels: str = "") -> Any:
        """An object, or with labels or without a name the objects."""
        chosen = ["--selector", labels] if labels else []
        found = json.loads(
            self.cluster.kubectl(
                "--namespace", namespace, "get", kind, *([name] if name else []), *chosen, "--output", "json"
            )
        )
        return found if name else found["items"]

    def kubectl(self, *arguments: str, timeout: float = 120) -> str:
        return self.cluster.kubectl("--namespace", NAMESPACE, *arguments, timeout=timeout)

    @property
    def kafka(self) -> str:
        """The brokers, as this machine reaches them."""
        return self.cluster.brokers.bootstrap_servers

    def operator_pod(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.get("pods", namespace=SYSTEM, labels="app.kubernetes.io/name=ackwright")[0]
        return found


@dataclass
class Pipeline:
    """One DeliveryPipeline with topics of its own."""

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
        """Applies it, with parts of the spec replaced."""
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
        found: Mapping[str, Any] = self.installation.get("deliverypipeline", self.name).get("status", {})
        return found

    def condition(self, kind: str) -> Mapping[str, Any]:
        """The condition; empty if there is none, or if it speaks of an earlier spec."""
        resource = self.installation.get("deliverypipeline", self.name)
        conditions = resource.get("status", {}).get("conditions", ())
        found = next((c for c in conditions if c["type"] == kind), {})
        return found if found.get("observedGeneration") == resource["metadata"]["generation"] else {}

    def wait_for(
        self, kind: str, status: str, reason: str | None = None, timeout: float = _WAIT_S
    ) -> Mapping[str, Any]:
        """Waits until a condition has this status, and this reason if one is given (seconds)."""

        def look() -> Mapping[str, Any] | None:
            found = self.condition(kind)
            return found if found.get("status") == status and (reason is None or found["reason"] == reason) else None

        try:
            return wait_until(look, f"{self.name}: {kind} is {status} {reason or ''}", timeout)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.told()}") from None

    def told(self) -> str:
        """What a person would look at."""
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
        """The driver's pod."""
        found = self.installation.get("pods", labels=f"ackwright.io/pipeline={self.name},ackwright.io/role=driver")
        return next(iter(found), None)

    def executors(self) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self.installation.get(
            "pods", labels=f"ackwright.io/pipeline={self.name},ackwright.io/role=executor"
        )
        return found

    def feed(self, count: int, skip: int = 0) -> None:
        """Writes flights to the source."""
        chosen = itertools.islice(flights.records(flights.archive(), skip + count), skip, None)
        settings = {
            "bootstrap.servers": self.installation.kafka,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        }
        flights.feed(settings, self.source, chosen, lambda _: None)

    def lag(self) -> int:
        """Records between the positions and the ends of the source; -1 while a partition has no position."""
        return behind(self.installation.kafka, f"{NAMESPACE}.{self.name}", self.source)

    def wait_until_delivered(self, timeout: float = _WAIT_S) -> None:
        """Until the positions are at the ends of the source (seconds)."""

        try:
            wait_until(lambda: self.lag() == 0, f"{self.name} has delivered everything", timeout)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.told()}") from None

    def audit(self, directory: Path) -> Mapping[str, Any]:
        """The verdict of `ackwright audit`, from outside of the cluster."""
        file = directory / f"{self.name}.yaml"
        document = json.loads(json.dumps(self.document))
        document["spec"]["kafka"] = {"bootstrapServers": self.installation.kafka}
        file.write_text(yaml.safe_dump(document))
        argv = [
            sys.executable,
            "-c",
            "from ackwright.cli.main import main; main()",
            "audit",
            "-f",
            str(file),
            "-o",
            "json",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, env={**os.environ})
        assert done.stdout, done.stderr
        found: Mapping[str, Any] = json.loads(done.stdout)
        return {**found, "exitCode": done.returncode}


@contextmanager
def pipeline(installation: Installation, guarantee: str, *, create: bool = True, **spec: Any) -> Iterator[Pipeline]:
    """A pipeline of delayed flights, applied (or not), and gone at the end with its topics."""
    name = f"{guarantee.split('-')[1]}-{uuid.uuid4().hex[:6]}"
    document = {
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
    found = Pipeline(installation, document)
    if create:
        found.apply()
    try:
        yield found
    finally:
        found.delete()
        delete_topics(installation.kafka, [t["name"] for t in document["spec"]["topics"]])  # type: ignore[index]


def behind(bootstrap: str, group: str, topic: str) -> int:
    """Records between the positions and the ends; -1 while a partition has no position, or the brokers do not say."""
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
        for found in consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=10):
            if found.offset < 0:
                return -1
            lag += consumer.get_watermark_offsets(TopicPartition(topic, found.partition), timeout=10)[1] - found.offset
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
    present = admin.list_topics(timeout=10).topics
    gone = [n for n in names if n in present]
    for future in (admin.delete_topics(gone, operation_timeout=30) if gone else {}).values():
        future.result(30)


def wait_until(condition: Callable[[], T | None], what: str, timeout: float = _WAIT_S) -> T:
    """Polls until it is true; returns what it returned. Not too often, for most questions start a process."""
    return waiting.wait_until(condition, what, timeout, pause=0.5)


def _logs(installation: Installation, pod: str) -> str:
    try:
        return f"--- {pod}\n" + installation.kubectl("logs", pod, "--tail=60")
    except Exception as e:
        return f"--- {pod}: {e}"
