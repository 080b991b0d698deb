"""Brokers in memory with the interface of clients.kafka, and the operator's connections to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from ackwright.api.spec import DeliveryPipeline
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.planning.clusters import ClusterRole
from ackwright.planning.replicas import DescribedTopic, Partition, Reassignment
from ackwright_stream.broker_requirements import OtherMembers
from ackwright_stream.jobspec import Reason
from unit.fake_kubernetes import FakeKubernetes

DEFAULTS = {
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
}  # of every topic, unless it says otherwise


class FakeKafka:
    """Brokers with topics, and switches that make calls fail."""

    address = "k:9092"

    def __init__(self, brokers: int = 3) -> None:
        self.count = brokers  # brokers that are up, with ids from 0
        self.existing: dict[str, dict[str, str]] = {}  # by topic, the settings that differ from DEFAULTS
        self.layouts: dict[str, list[tuple[int, ...]]] = {}  # by topic, the replicas of each partition
        self.lagging: set[int] = set()  # brokers whose replicas are not in sync
        self.ids: dict[str, str] = {}  # of topics whose id is not the default one
        self.under_way: dict[tuple[str, int], Reassignment] = {}  # moves that have not ended
        self.brokers_settings: dict[str, dict[str, str]] = {}
        self.down: AckwrightError | None = None  # raised by every call
        self.forbidden: AckwrightError | None = None  # raised by moving()
        self.refused: AckwrightError | None = None  # raised by create_topic()
        self.denied: set[tuple[str, str]] = set()  # writes without permission, as verb and name
        self.group_members: list[tuple[str, str | None]] = []  # client.id and group.instance.id
        self.hidden: set[str] = set()  # topics that are not listed yet
        self.unfit: set[str] = set()  # values of settings that are refused
        self.asked = 0  # calls of topics()
        self.calls: Counter[str] = Counter()  # reads, by name
        self.recorder: FakeKubernetes | None = None  # numbers the writes, and kills the operator at one of them

    def _write(self, verb: str, name: str) -> AbstractContextManager[None]:
        return self.recorder.write(verb, ("Kafka", name)) if self.recorder else nullcontext()

    def _permit(self, verb: str, name: str) -> None:
        if (verb, name) in self.denied:
            raise AckwrightError(Reason.AUTHORIZATION_FAILED, f"{verb} {name} is denied")

    def brokers(self) -> tuple[int, ...]:
        return tuple(self.racks())

    def racks(self) -> dict[int, str | None]:
        self.calls["racks"] += 1
        if self.down:
            raise self.down
        return dict.fromkeys(range(self.count))

    def topics(self, names: tuple[str, ...]) -> dict[str, DescribedTopic]:
        self.asked += 1
        self.calls["topics"] += 1
        self.brokers()
        return {
            n: DescribedTopic(self.ids.get(n, f"id-{n}"), self._layout(n))
            for n in names
            if n in self.existing and n not in self.hidden
        }

    def _layout(self, name: str) -> tuple[Partition, ...]:
        return tuple(self._partition(number, replicas) for number, replicas in enumerate(self.layouts[name]))

    def _partition(self, number: int, replicas: tuple[int, ...]) -> Partition:
        in_sync = [b for b in replicas if b < self.count and b not in self.lagging]
        return Partition(number, replicas, frozenset(in_sync), next(iter(in_sync), None))

    def shape(self, name: str, partitions: int, replicas: int) -> None:
        """Gives a topic so many partitions with so many replicas."""
        self.layouts[name] = [
            tuple((n + i) % max(self.count, replicas) for i in range(replicas)) for n in range(partitions)
        ]

    def topic_configs(self, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
        self.calls["topic_configs"] += 1
        return {n: {**DEFAULTS, **self.existing[n]} for n in names if n in self.existing}

    def topics_with_configs(
        self, names: tuple[str, ...]
    ) -> tuple[dict[str, DescribedTopic], dict[str, dict[str, str]]]:
        topics = self.topics(names)
        return topics, self.topic_configs(tuple(topics))

    def broker_config(self, node: int) -> dict[str, str]:
        defaults = {
            "group.coordinator.rebalance.protocols": "classic",
            "transaction.partition.verification.enable": "true",
        }
        return {**defaults, **self.brokers_settings.get(str(node), {})}

    def moving(self) -> dict[tuple[str, int], Reassignment]:
        if self.forbidden:
            raise self.forbidden
        return dict(self.under_way)

    def other_members(self, group: str, instance_id: str) -> OtherMembers:
        others = sorted(client for client, instance in self.group_members if instance != instance_id)
        return OtherMembers(tuple(others), False)

    def join(self, client_id: str, group_instance_id: str | None = None) -> None:
        """Adds a member to the group of every pipeline."""
        self.group_members.append((client_id, group_instance_id))

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Outcome:
        self.brokers()
        self._permit("create", name)
        if self.refused:
            raise self.refused
        if name in self.existing:
            return Outcome.EXISTS
        if validate_only:
            return Outcome.DONE
        with self._write("create", name):
            self.existing[name] = dict(config)
            self.shape(name, partitions, replication_factor)
        return Outcome.DONE

    def configure(
        self, kind: str, name: str, settings: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Outcome:
        self.brokers()
        if kind == "TOPIC" and name not in self.existing:
            raise AckwrightError(Reason.TOPIC_MISSING, f"{name}: no such topic")
        self._permit("configure", name)
        if refused := self.unfit.intersection(v for v in settings.values() if v):
            raise AckwrightError(Reason.INVALID_SPEC, f"{name}: {refused} is refused")
        present = self.existing[name] if kind == "TOPIC" else self.brokers_settings.setdefault(name, {})
        if validate_only:
            return Outcome.DONE
        with self._write("configure", name):
            for setting, value in settings.items():
                present.pop(setting, None)
                present |= {} if value is None else {setting: value}
        return Outcome.DONE

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> Outcome:
        self.brokers()
        self._permit("partitions", name)
        if validate_only:
            return Outcome.DONE
        with self._write("partitions", name):
            self.layouts[name] += [self.layouts[name][0]] * (total - len(self.layouts[name]))
        return Outcome.DONE

    def reassign(self, name: str, moves: Mapping[int, tuple[int, ...]]) -> Outcome:
        """Starts moves; those that copy replicas end with arrive()."""
        self.brokers()
        self._permit("reassign", name)
        if not moves:
            return Outcome.DONE
        with self._write("reassign", name):
            for number, replicas in moves.items():
                added = tuple(b for b in replicas if b not in self.layouts[name][number])
                self.layouts[name][number] = replicas
                if added:
                    self.under_way[name, number] = Reassignment(added, ())
        return Outcome.DONE

    def arrive(self) -> None:
        """Ends every move."""
        self.under_way.clear()

    def delete_topic(self, name: str) -> Outcome:
        self.brokers()
        self._permit("delete", name)
        self.existing.pop(name, None)
        return Outcome.DONE


class FakeConnections:
    """A connection to each cluster, always the same."""

    def __init__(self, kafka: FakeKafka, sink: FakeKafka | None = None) -> None:
        """sink: the cluster of a sink with its own."""
        self._kafka = {ClusterRole.SOURCE: kafka, ClusterRole.SINK: sink}
        self.dropped: list[Reason] = []  # why the connection was dropped, each time
        self.error: AckwrightError | None = None  # raised instead of a connection
        self.secrets: str | None = ""  # the version of its credentials; None: they cannot be read

    def kafka(self, pipeline: DeliveryPipeline, role: ClusterRole = ClusterRole.SOURCE) -> tuple[str, FakeKafka]:
        if self.error:
            raise self.error
        kafka = self._kafka[role]
        assert kafka is not None
        return role, kafka

    def attempt(
        self, key: str, kafka: FakeKafka, namespace: str, *, writes: bool = False
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def credentials(self, pipeline: DeliveryPipeline) -> str | None:
        return self.secrets

    def failed(self, key: str, error: AckwrightError) -> None:
        self.dropped.append(error.reason)
