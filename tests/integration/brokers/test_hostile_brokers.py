"""Brokers that end their client: the operator's connections to real brokers continue beside them."""

from __future__ import annotations

import threading
import time
import uuid
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
from waiting import wait_until

TEAMS = [f"team-{i}" for i in range(4)]


def pipeline(namespace: str, servers: str) -> DeliveryPipeline:
    meta = {"name": "p", "namespace": namespace}
    spec = {
        "kafka": {"bootstrapServers": servers},
        "source": {"topics": ["in"], "groupId": f"{namespace}.p"},
        "transform": {"sql": "SELECT * FROM source"},
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
    """Each team reads until the other namespace has been refused, and then once more."""
    refused = threading.Event()
    answers: dict[str, list[Any]] = {team: [] for team in TEAMS}

    def read(team: str) -> None:
        again = True
        while again:
            again = not refused.is_set()
            answers[team].append(operator.racks(pipeline(team, kafka.bootstrap_servers)))

    with broker_that_ends_its_client() as address, ThreadPoolExecutor(len(TEAMS)) as threads:
        reads = [threads.submit(read, team) for team in TEAMS]
        try:
            wait_until(lambda: all(answers.values()), "every team reads")
            errors = [operator.racks(pipeline("hostile", address))]
            while "no request of the namespace" not in str(errors[-1]) and len(errors) < 20:
                errors.append(operator.racks(pipeline("hostile", address)))
        finally:
            refused.set()
        for r in reads:
            r.result()
    assert operator.ends >= 2, "in the common process, and in a separate one"
    assert {e.reason for e in errors} == {Reason.BROKERS_UNREACHABLE}
    assert f"was ended by SIGABRT during a request to {address}; no request of the namespace" in errors[-1].message
    assert [set(a[-1]) for a in answers.values()] == [{1, 2, 3}] * len(TEAMS)
    assert "no request of the namespace" not in str(answers)


def test_an_endless_answer_ends_no_other_read(kafka: EmbeddedKafka, operator: Operator) -> None:
    broker = EndlessBroker(None)
    with ThreadPoolExecutor(1) as threads:
        _, client = operator.connections.kafka(pipeline("hostile", broker.address))
        moves = threads.submit(client.moving)
        with pytest.raises(AckwrightError):
            moves.result(60)
        assert set(operator.racks(pipeline("ops", kafka.bootstrap_servers))) == {1, 2, 3}
    broker.close()


def test_calls_have_the_same_results_as_without_client_processes(kafka: EmbeddedKafka, operator: Operator) -> None:
    _, isolated = operator.connections.kafka(pipeline("ops", kafka.bootstrap_servers))
    plain, name = Kafka(Cluster(kafka.bootstrap_servers)), f"t-{uuid.uuid4().hex[:8]}"
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
