"""Brokers that end their client: the operator's connections to real brokers go on beside them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from ackwright.api.spec import DeliveryPipeline, parse
from ackwright.clients.attempts import ConnectionBusy
from ackwright.clients.connections import Connections
from ackwright.clients.kafka import Kafka
from ackwright.clients.kafka_processes import KafkaProcesses
from ackwright.clients.kubernetes import Kubernetes
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.local.kafka import EmbeddedKafka
from ackwright.observe.topics import topics
from ackwright_stream.jobspec import Cluster, Reason
from ackwright_stream.reasons import REASONS
from hostile_brokers import EndlessBroker, broker_that_ends_its_client
from integration.support.new_topics import NewTopicName

TEAMS = [f"team-{i}" for i in range(4)]


def pipeline(namespace: str, servers: str) -> DeliveryPipeline:
    meta = {"name": "p", "namespace": namespace}
    spec = {
        "kafka": {"bootstrapServers": servers},
        "source": {"topics": ["in"], "groupId": f"{namespace}.p"},
        "sink": {"kafka": {"topic": "out"}},
        "guarantee": "at-least-once",
    }
    return parse({"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": meta, "spec": spec})


class Operator:
    """The connections of an operator, and the uses of them as its reconciles make them."""

    def __init__(self, directory: Path) -> None:
        self.ends = 0
        self.processes = KafkaProcesses(on_end=self._count)
        self.connections = Connections(cast(Kubernetes, None), directory, workers=8, processes=self.processes)

    def _count(self) -> None:
        self.ends += 1

    def racks(self, declared: DeliveryPipeline) -> Any:
        """The racks, or the error. Waits while other workers wait for the cluster."""
        while True:
            try:
                key, kafka = self.connections.kafka(declared)
                with self.connections.attempt(key, kafka, declared.metadata.namespace):
                    return kafka.racks()
            except ConnectionBusy:
                time.sleep(0.01)
            except AckwrightError as e:
                if REASONS[e.reason].of_connection:
                    self.connections.failed(key, e)
                return e


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    operator = Operator(tmp_path)
    yield operator
    operator.processes.close()


def test_other_namespaces_read_real_brokers_beside_one_that_ends_its_client(
    kafka: EmbeddedKafka, operator: Operator
) -> None:
    with broker_that_ends_its_client() as address:
        hostile = pipeline("hostile", address)
        answers: dict[str, list[Any]] = {team: [] for team in TEAMS}

        def read(team: str) -> None:
            until = time.monotonic() + 8
            while time.monotonic() < until:
                answers[team].append(operator.racks(pipeline(team, kafka.bootstrap_servers)))
                time.sleep(0.02)

        with ThreadPoolExecutor(len(TEAMS)) as threads:
            reads = [threads.submit(read, team) for team in TEAMS]
            errors = []
            while not all(r.done() for r in reads):
                errors.append(operator.racks(hostile))
                time.sleep(0.1)
            for r in reads:
                r.result()
    assert operator.ends >= 2
    messages = {str(e) for e in errors}
    assert {e.reason for e in errors} == {Reason.BROKERS_UNREACHABLE}
    assert any("was ended by SIGABRT during a request to" in m and address in m for m in messages), messages
    for team in TEAMS:
        failed = [a for a in answers[team] if isinstance(a, AckwrightError)]
        assert not [e for e in failed if "no request of the namespace" in str(e)]
        assert len(answers[team]) - len(failed) > 50, f"{failed[:3]}"


def test_an_endless_answer_ends_no_other_read(kafka: EmbeddedKafka, operator: Operator) -> None:
    broker = EndlessBroker(None)
    with ThreadPoolExecutor(1) as threads:
        _, client = operator.connections.kafka(pipeline("hostile", broker.address))
        moves = threads.submit(client.moving)
        with pytest.raises(AckwrightError):
            moves.result(60)
        assert set(operator.racks(pipeline("ops", kafka.bootstrap_servers))) == {1, 2, 3}
    broker.close()


def test_calls_have_the_same_results_as_without_client_processes(
    kafka: EmbeddedKafka, operator: Operator, new_topic_name: NewTopicName
) -> None:
    _, isolated = operator.connections.kafka(pipeline("ops", kafka.bootstrap_servers))
    plain, name = Kafka(Cluster(kafka.bootstrap_servers)), new_topic_name()
    assert isolated.create_topic(name, 2, 3, {"retention.ms": "1000"}) is Outcome.DONE
    assert isolated.create_topic(name, 2, 3, {}) is Outcome.EXISTS
    assert isolated.add_partitions(name, 3) is Outcome.DONE
    assert isolated.configure("TOPIC", name, {"retention.ms": "2000"}) is Outcome.DONE
    with pytest.raises(AckwrightError) as refused:
        isolated.configure("TOPIC", name, {"retention.ms": "x"})
    with pytest.raises(AckwrightError) as refused_plainly:
        plain.configure("TOPIC", name, {"retention.ms": "x"})
    assert (refused.value.reason, refused.value.message) == (
        refused_plainly.value.reason,
        refused_plainly.value.message,
    )
    assert isolated.racks() == plain.racks()
    assert isolated.brokers() == plain.brokers()
    assert topics(isolated, [name, "absent"]) == topics(plain, [name, "absent"])
    assert isolated.topic_configs([name])[name]["retention.ms"] == "2000"
    assert isolated.broker_config(1) == plain.broker_config(1)
    assert isolated.other_members("nobody", "x") == plain.other_members("nobody", "x")
    assert isolated.moving() == plain.moving() == {}
    assert isolated.features() == plain.features()
    assert isolated.permissions([name], ["nobody"], acls=False) == plain.permissions([name], ["nobody"], acls=False)
    assert isolated.reassign(name, {0: (1, 2, 3)}) is Outcome.DONE
    assert isolated.delete_topic(name) is Outcome.DONE
