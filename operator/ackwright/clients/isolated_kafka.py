"""A connection to Kafka whose calls client processes make, so that brokers cannot end or fill the operator's."""

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ackwright.clients import deadline
from ackwright.clients.fence import Writing, clock, unfenced
from ackwright.clients.kafka import ConfigKind, Kafka, client_settings
from ackwright.clients.kafka_calls import Call
from ackwright.clients.kafka_processes import KafkaProcesses, NoAnswer
from ackwright.clients.outcome import Outcome
from ackwright.planning.acls import Answers
from ackwright.planning.replicas import DescribedTopic, Reassignment
from ackwright_stream.broker_requirements import OtherMembers
from ackwright_stream.jobspec import Cluster

_numbers = itertools.count(1)


class _Reference:
    """Stands for a connection, which the processes close when no IsolatedKafka refers to it."""

    def __init__(self, processes: KafkaProcesses) -> None:
        self.number = next(_numbers)
        weakref.finalize(self, processes.release, self.number).atexit = False


class IsolatedKafka(Kafka):
    """One connection, as one namespace uses it. Each call is as that of Kafka."""

    def __init__(
        self, processes: KafkaProcesses, cluster: Cluster, timeout: float = 15.0, *, writing: Writing = unfenced
    ) -> None:
        """Raises AckwrightError (AuthenticationFailed) if the files of the credentials cannot be used."""
        client_settings(cluster)
        self.address = cluster.bootstrap_servers
        self._call_timeout, self._writing = timeout, writing
        self._processes, self._cluster = processes, cluster
        self._connection, self._namespace = _Reference(processes), ""

    def of(self, namespace: str) -> IsolatedKafka:
        """The same connection, as that namespace uses it."""
        other = copy.copy(self)
        other._namespace = namespace
        return other

    def close(self) -> None:
        """Does nothing: the connection ends with its last reference."""

    # -- reads -----------------------------------------------------------------------------------------------------

    def racks(self) -> dict[int, str | None]:
        """As of Kafka."""
        racks: dict[int, str | None] = self._read("racks")
        return racks

    def topics(self, names: Sequence[str]) -> dict[str, DescribedTopic]:
        """As of Kafka."""
        topics: dict[str, DescribedTopic] = self._read("topics", tuple(names)) if names else {}
        return topics

    def topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """As of Kafka."""
        configs: dict[str, dict[str, str]] = self._read("topic_configs", tuple(names)) if names else {}
        return configs

    def topics_with_configs(self, names: Sequence[str]) -> tuple[dict[str, DescribedTopic], dict[str, dict[str, str]]]:
        """As of Kafka."""
        both: tuple[dict[str, DescribedTopic], dict[str, dict[str, str]]] = ({}, {})
        return self._read("topics_with_configs", tuple(names), requests=2) if names else both

    def broker_config(self, node: int) -> dict[str, str]:
        """As of Kafka."""
        config: dict[str, str] = self._read("broker_config", node)
        return config

    def other_members(self, group: str, instance_id: str) -> OtherMembers:
        """As of Kafka."""
        members: OtherMembers = self._read("other_members", group, instance_id)
        return members

    def moving(self) -> dict[tuple[str, int], Reassignment]:
        """As of Kafka."""
        moves: dict[tuple[str, int], Reassignment] = self._read("moving")
        return moves

    def permissions(self, topics: Sequence[str], groups: Sequence[str], *, acls: bool) -> Answers:
        """As of Kafka."""
        requests = 2 + len(topics) + len(groups)
        answers: Answers = self._read("permissions", tuple(topics), tuple(groups), requests=requests, acls=acls)
        return answers

    def features(self) -> dict[str, int]:
        """As of Kafka."""
        features: dict[str, int] = self._read("features")
        return features

    # -- writes ----------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Outcome:
        """As of Kafka."""
        arguments = name, partitions, replication_factor, dict(config)
        return self._change("create_topic", *arguments, validate_only=validate_only)

    def delete_topic(self, name: str) -> Outcome:
        """As of Kafka."""
        return self._change("delete_topic", name)

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> Outcome:
        """As of Kafka."""
        return self._change("add_partitions", name, total, validate_only=validate_only)

    def configure(
        self, kind: ConfigKind, name: str, settings: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Outcome:
        """As of Kafka."""
        return self._change("configure", kind, name, dict(settings), validate_only=validate_only)

    def reassign(self, name: str, moves: Mapping[int, tuple[int, ...]]) -> Outcome:
        """As of Kafka."""
        return self._change("reassign", name, dict(moves))

    def _read(self, method: str, *arguments: Any, requests: int = 1, **options: Any) -> Any:
        """What the method returns. requests: how many requests it sends, one after the other."""
        seconds = self._timeout * requests
        return self._processes.call(self._namespace, self._call(method, arguments, options), seconds).result()

    def _change(self, method: str, *arguments: Any, **options: Any) -> Outcome:
        """The outcome of a method that writes, which is unknown if the process has not answered."""
        with self._writing() as limit:
            seconds = min(self._timeout, limit)
            call = self._call(method, arguments, options, write_s=limit)
            try:
                outcome: Outcome = self._processes.call(self._namespace, call, seconds).result()
            except NoAnswer:
                return Outcome.UNKNOWN
            return outcome

    def _call(self, method: str, arguments: Any, options: Mapping[str, Any], write_s: float | None = None) -> Call:
        return Call(
            connection=self._connection.number,
            cluster=self._cluster,
            method=method,
            arguments=arguments,
            options=options,
            timeout=self._call_timeout,
            sent=clock(),
            deadline=deadline.limit(),
            write_s=write_s,
        )
