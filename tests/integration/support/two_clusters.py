"""Two Kafka clusters of one broker each: the source is on one, output and positions are on the other."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import NewTopic

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from integration.support import pipelines
from waiting import ANSWER, wait_until


@dataclass(frozen=True)
class TwoClusters:
    """The brokers of both."""

    source: EmbeddedKafka
    sink: EmbeddedKafka

    @property
    def source_id(self) -> str:
        """The id of the source's cluster, as its admin client reads it."""
        return cluster_id(self.source)

    @property
    def marker_prefix(self) -> str:
        return f"ackwright.{self.source_id}."

    def create_topics(self, source: str, sink: str, partitions: int) -> None:
        """Creates both. The source's cluster gets no topic for the records of lanes."""
        pipelines.create_topics(self.sink.bootstrap_servers, sink, partitions=partitions, replication=1)
        create_topic(self.source, source, partitions)

    def document(self, name: str, guarantee: str, source: str, sink: str, **spec: Any) -> dict[str, Any]:
        """The pipeline from one to the other; spec overrides its parts."""
        written = pipelines.document(self.source.bootstrap_servers, name, guarantee, source, sink, **spec)
        written["spec"]["sink"]["kafka"]["bootstrapServers"] = self.sink.bootstrap_servers
        written["spec"].setdefault("tolerate", {"brokerFailures": 0})
        return written


def create_topic(kafka: EmbeddedKafka, name: str, partitions: int) -> None:
    """Creates a topic and returns when the broker lists it."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(ANSWER)
    wait_until(lambda: name in admin.list_topics(timeout=ANSWER).topics, f"topic {name}")


def delete_topic(kafka: EmbeddedKafka, name: str) -> None:
    """Deletes a topic and returns when the broker does not list it any more."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name])[name].result(ANSWER)
    wait_until(lambda: name not in admin.list_topics(timeout=ANSWER).topics, f"{name} is gone")


def cluster_id(kafka: EmbeddedKafka) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return str(admin.describe_cluster(request_timeout=ANSWER).result(ANSWER).cluster_id)


def replace_cluster(kafka: EmbeddedKafka) -> None:
    """Starts another cluster, with another id and no topics, at the same addresses."""
    for broker in kafka.brokers:
        broker.kill()
    for directory in kafka.directory.glob("data-*"):
        shutil.rmtree(directory)
    (kafka.directory / "cluster.json").unlink()
    kafka._launch()
    kafka._wait_until_usable()
