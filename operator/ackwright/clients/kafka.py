"""Admin calls to Kafka: each with a timeout, and with errors in the user's terms.

A call that reads returns or raises. A call that writes succeeds, fails (raises), or has an unknown outcome, which the
caller finds out by reading. librdkafka reports wrong credentials and a refused certificate only through error_cb, while
the call itself times out. So these events are collected, and checked before brokers are called unreachable.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType

from ackwright.clients import permissions
from ackwright.clients.deadline import time_left
from ackwright.clients.descriptions import described, values
from ackwright.clients.fence import Writing, unfenced
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.planning.acls import Answers
from ackwright.planning.replicas import DescribedTopic, Reassignment
from ackwright_stream import kafka_errors
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.broker_requirements import OtherMembers
from ackwright_stream.credentials import Unusable, login
from ackwright_stream.group_members import other_members
from ackwright_stream.jobspec import Cluster, Reason
from ackwright_stream.reasons import REASONS

T = TypeVar("T")
ConfigKind = Literal["TOPIC", "BROKER"]

_REFUSED = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    }
)

# Bytes of one answer of a broker, which may be a hostile one: librdkafka's default is 100 MB. The largest one is about
# all topics of a cluster, with less than 100 bytes for each partition. Only consumers have to fetch less than this.
ANSWER_MAX = 16 << 20

_NOT_CONNECTED = frozenset({KafkaError._TRANSPORT, KafkaError._RESOLVE})  # refused, no such host, TLS on one side only


def client_settings(cluster: Cluster) -> dict[str, Any]:
    """librdkafka settings of a client of the cluster, with the credentials that its files hold now.

    Raises AckwrightError (AuthenticationFailed) if these cannot be read, or if Java's clients could not use them.
    """
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "log_level": 0,
        **cluster.librdkafka,
        "receive.message.max.bytes": ANSWER_MAX,
    }
    if cluster.credentials:
        try:
            settings |= login(cluster.credentials)
        except Unusable as e:
            raise AckwrightError(Reason.AUTHENTICATION_FAILED, e.cause, e.remedy) from e
    return settings


class Kafka:
    """One admin connection."""

    def __init__(self, cluster: Cluster, timeout: float = 15.0, *, writing: Writing = unfenced) -> None:
        """timeout: seconds that one call may take, connecting included. writing: the context of each write."""
        self.address = cluster.bootstrap_servers
        self._call_timeout, self._writing = timeout, writing
        self._events: deque[KafkaError] = deque(maxlen=64)
        self._has_answered = False
        self._settings = client_settings(cluster)
        try:
            self._admin = AdminClient({**self._settings, "error_cb": self._events.append})
        except KafkaException as e:  # a CA file that cannot be read, a setting that librdkafka refuses
            raise AckwrightError(
                Reason.INVALID_SPEC, f"the connection to {self.address} cannot be set up: {e.args[0].str()}"
            ) from e

    def of(self, namespace: str) -> Kafka:
        """The same connection, as a namespace uses it."""
        return self

    def close(self) -> None:
        """Ends the connection. No call may be under way or follow; exceptions of earlier ones may refer to this."""
        del self._admin

    @property
    def _timeout(self) -> float:
        """Seconds that the next call may take. Raises AckwrightError when the deadline of all calls is over."""
        return time_left(self._call_timeout, self.address)

    # -- reads -----------------------------------------------------------------------------------------------------

    def brokers(self) -> tuple[int, ...]:
        """The ids of the brokers that are up."""
        return tuple(sorted(self.racks()))

    def racks(self) -> dict[int, str | None]:
        """The rack of each broker that is up, by the broker's id; None: the broker has no rack.

        The first call of a connection: it finds out why the brokers cannot be reached.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                answer = self._admin.describe_cluster(request_timeout=min(1.0, self._timeout))
                racks = {node.id: node.rack or None for node in answer.result(self._timeout).nodes}
                self._has_answered = True
                return racks
            except TimeoutError as e:
                raise AckwrightError(
                    Reason.BROKERS_UNREACHABLE, f"{self.address} does not answer", "check that the brokers are up"
                ) from e
            except KafkaException as e:
                error = self.translate(e.args[0], f"connecting to {self.address}")
                if error.reason is not Reason.BROKERS_UNREACHABLE or time.monotonic() >= deadline:
                    raise error from e
                self._find_controller()

    def _find_controller(self) -> None:
        """Makes librdkafka learn the present controller: it would keep asking one that is down.

        Any metadata response names it.
        """
        with suppress(KafkaException):
            self._admin.list_topics(timeout=1.0)

    def topics(self, names: Sequence[str]) -> dict[str, DescribedTopic]:
        """Descriptions of those topics that exist.

        It never creates a topic, unlike a producer's metadata request on brokers with auto.create.topics.enable.
        """
        if not names:
            return {}

        def ask(seconds: float) -> dict[str, DescribedTopic]:
            answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=seconds)
            present = self._present({name: (future, f"describing topic {name}") for name, future in answers.items()})
            return {name: described(description) for name, description in present.items()}

        return self._persistently(ask)

    def topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Every setting in force, defaults included, of those topics that exist. One request for all of them."""
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]

        def ask(seconds: float) -> dict[str, dict[str, str]]:
            answers = self._admin.describe_configs(resources, request_timeout=seconds)
            present = self._present(
                {r.name: (future, f"reading the settings of topic {r.name}") for r, future in answers.items()}
            )
            return {name: values(entries) for name, entries in present.items()}

        return self._persistently(ask)

    def topics_with_configs(self, names: Sequence[str]) -> tuple[dict[str, DescribedTopic], dict[str, dict[str, str]]]:
        """What topics() and then topic_configs() return; one call of a client process."""
        topics = self.topics(names)
        return topics, self.topic_configs(tuple(topics))

    def broker_config(self, node: int) -> dict[str, str]:
        """Every setting in force of a broker."""
        resource = ConfigResource(ResourceType.BROKER, str(node))
        future = self._admin.describe_configs([resource], request_timeout=self._timeout)[resource]
        return values(self._result(future, f"reading the settings of broker {node}"))

    def other_members(self, group: str, instance_id: str) -> OtherMembers:
        """The members of a consumer group that do not have that group.instance.id."""

        def ask(seconds: float) -> OtherMembers:
            action = f"listing the members of group {group}"
            try:
                return other_members(self._admin, group, instance_id, seconds)
            except KafkaException as e:
                raise self.translate(e.args[0], action) from e
            except TimeoutError as e:
                raise self.translate(KafkaError(KafkaError._TIMED_OUT), action) from e

        return self._persistently(ask)

    def moving(self) -> dict[tuple[str, int], Reassignment]:
        """Every move of replicas in the cluster that has not ended, by topic and partition."""
        from ackwright.clients import reassignments  # the import takes half a second, and is seldom needed

        return reassignments.under_way(self._settings, self._timeout)

    def permissions(self, topics: Sequence[str], groups: Sequence[str], *, acls: bool) -> Answers:
        """What this connection's principal may do with the cluster, the topics and the groups.

        acls: whether the brokers' authoriser decides by ACLs.
        """
        return permissions.answers(
            self._admin, self._settings, self.translate, self._timeout, topics=topics, groups=groups, acls=acls
        )

    def features(self) -> dict[str, int]:
        """The finalized levels of the cluster's features (KIP-584): metadata.version, transaction.version …"""
        from ackwright.clients import features  # the import takes as long as that of reassignments

        return features.finalized(self._settings, self._timeout)

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
        """Creates a topic.

        Raises AckwrightError if the brokers refuse, so that it does not exist. validate_only: a dry run.
        """
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(config))

        def ask(seconds: float) -> Any:
            return self._admin.create_topics(
                [topic], validate_only=validate_only, operation_timeout=seconds, request_timeout=seconds
            )[name]

        accepted = {KafkaError.TOPIC_ALREADY_EXISTS: Outcome.EXISTS}
        return self._write(ask, f"creating topic {name}", accepted, permission=f"Create on topic {name}")

    def delete_topic(self, name: str) -> Outcome:
        """Deletes a topic, if it exists. Raises AckwrightError if the brokers refuse."""

        def ask(seconds: float) -> Any:
            return self._admin.delete_topics([name], operation_timeout=seconds, request_timeout=seconds)[name]

        accepted = dict.fromkeys(kafka_errors.MISSING, Outcome.DONE)
        return self._write(ask, f"deleting topic {name}", accepted, permission=f"Delete on topic {name}")

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> Outcome:
        """Increases a topic to `total` partitions.

        Raises AckwrightError if the brokers refuse, as they do if it has that many already.
        """

        def ask(seconds: float) -> Any:
            return self._admin.create_partitions(
                [NewPartitions(name, total)],
                validate_only=validate_only,
                operation_timeout=seconds,
                request_timeout=seconds,
            )[name]

        return self._write(ask, f"adding partitions to topic {name}", permission=f"Alter on topic {name}")

    def configure(
        self, kind: ConfigKind, name: str, settings: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Outcome:
        """Changes these settings of a topic or a broker and leaves all others alone (KIP-339).

        A value None removes the setting.

        Raises AckwrightError if the brokers refuse; then no setting is changed.
        """
        entries = [
            ConfigEntry(n, v, incremental_operation=AlterConfigOpType.DELETE if v is None else AlterConfigOpType.SET)
            for n, v in settings.items()
        ]
        resource = ConfigResource(ResourceType[kind], name, incremental_configs=entries)

        def ask(seconds: float) -> Any:
            return self._admin.incremental_alter_configs(
                [resource], validate_only=validate_only, request_timeout=seconds
            )[resource]

        permission = f"AlterConfigs on {f'topic {name}' if kind == 'TOPIC' else 'the cluster'}"
        action = f"setting {', '.join(settings)} of {kind.lower()} {name}"
        return self._write(ask, action, permission=permission)

    def reassign(self, name: str, moves: Mapping[int, tuple[int, ...]]) -> Outcome:
        """Starts moves of the topic's partitions to these replicas, by partition.

        Each replaces a move that is under way.

        Raises AckwrightError with the moves that the brokers refuse; the others start. Without moves it checks the
        permission only.
        """
        from ackwright.clients import reassignments

        with self._writing() as seconds:
            # Connecting takes as long as the request may, and the thread of the call ends within a margin.
            limit = min(self._timeout, max(0.5, (seconds - reassignments.MARGIN_S) / 2))
            return reassignments.begin(self._settings, limit, name, moves)

    def _write(
        self,
        ask: Callable[[float], Any],
        action: str,
        accepted: Mapping[int, Outcome] | None = None,
        *,
        permission: str,
    ) -> Outcome:
        """The outcome of a write. ask: sends it, with the seconds that it may take; accepted: error codes that
        are no failures; permission: that the write needs.
        """
        with self._writing() as limit:
            seconds = min(self._timeout, limit)
            return self._outcome(ask(seconds), seconds, action, accepted, permission=permission)

    def _outcome(
        self,
        future: Future[Any],
        seconds: float,
        action: str,
        accepted: Mapping[int, Outcome] | None,
        *,
        permission: str,
    ) -> Outcome:
        try:
            future.result(seconds + 5)
        except KafkaException as e:
            outcome = (accepted or {}).get(e.args[0].code())
            if outcome is not None:
                return outcome
            error = self.translate(e.args[0], action, permission)
            if error.reason is Reason.BROKERS_UNREACHABLE:
                return Outcome.UNKNOWN
            raise error from e
        except TimeoutError:
            return Outcome.UNKNOWN
        return Outcome.DONE

    # -- errors ----------------------------------------------------------------------------------------------------

    def translate(self, error: KafkaError, action: str, permission: str = "this permission") -> AckwrightError:
        """The error in the user's terms, with error_cb's events. permission: that the action needs."""
        self._admin.poll(0)  # passes pending events to error_cb
        code = error.code()
        if code in kafka_errors.UNREACHABLE:
            error = next((event for event in self._events if event.code() in kafka_errors.UNAUTHENTICATED), error)
            code = error.code()
        if code in kafka_errors.UNREACHABLE and not self._has_answered:
            # The call has only timed out. Events of a connection that has answered before may be outdated.
            refusals = [event for event in self._events if event.code() in _NOT_CONNECTED]
            error = min(refusals, key=_short, default=error)  # the same one each time, for conditions
        reason, remedy = _meaning(code)
        remedy = remedy.format(principal="the principal", permission=permission)
        return AckwrightError(reason, f"{action} failed: {_short(error)}", remedy)

    def _persistently(self, ask: Callable[[float], T]) -> T:
        """What `ask` returns at the first or second attempt, each with half of the time.

        librdkafka sends these requests to the controller, and for some seconds (broker.session.timeout.ms) that may be
        a broker that has just died.
        """
        try:
            return ask(self._timeout / 2)
        except AckwrightError as e:
            if e.reason is not Reason.BROKERS_UNREACHABLE:
                raise
        self._find_controller()
        return ask(self._timeout / 2)

    def _present(self, requests: Mapping[str, tuple[Future[T], str]]) -> dict[str, T]:
        """The answers about topics that exist, by name. requests: the future and the action of each."""
        present: dict[str, T] = {}
        for name, (future, action) in requests.items():
            try:
                present[name] = self._result(future, action)
            except AckwrightError as e:
                if e.reason is not Reason.TOPIC_MISSING:
                    raise
        return present

    def _result(self, future: Future[T], action: str) -> T:
        try:
            return future.result(self._timeout + 5)
        except KafkaException as e:
            raise self.translate(e.args[0], action) from e
        except TimeoutError as e:
            raise AckwrightError(
                Reason.BROKERS_UNREACHABLE, f"{action} got no answer within {self._timeout:g} s", "try again"
            ) from e


def _meaning(code: int) -> tuple[Reason, str]:
    """The reason and the remedy of an error code."""
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        return Reason.BROKERS_TOO_FEW, REASONS[Reason.BROKERS_TOO_FEW].remedy
    if code in _REFUSED:
        return Reason.INVALID_SPEC, "correct the topic under spec.topics"
    known = kafka_errors.meaning(code)
    return (known.reason, known.remedy) if known else (Reason.UNEXPECTED, "run again with -v for the stack trace")


def _short(error: KafkaError) -> str:
    """The error in one line, without librdkafka's advice on settings that a DeliveryPipeline does not expose."""
    return " ".join(error.str().split()).split(" (after ")[0].removesuffix(".")
