"""Admin calls to Kafka: each with a timeout, and with errors in the user's terms.

A call that reads returns or raises. A call that writes is done, failed (raises), or unknown: then nobody can say whether it happened,
and the caller has to look. librdkafka tells wrong credentials and a refused certificate only on the side, through error_cb; the call
itself just times out. So those events are collected, and looked at before brokers are called unreachable.
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
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.planning.permissions import Answers
from ackwright.planning.replicas import Reassignment
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.credentials import Unusable, login
from ackwright_stream.jobspec import Cluster, Reason

T = TypeVar("T")
ConfigKind = Literal["TOPIC", "BROKER"]

_UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NETWORK_EXCEPTION,
    }
)
_UNAUTHENTICATED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)
_UNAUTHORIZED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_REFUSED = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    }
)


def client_settings(cluster: Cluster) -> dict[str, Any]:
    """librdkafka settings of a client of the cluster. The credentials are read from their files at this moment.

    Raises AckwrightError (AuthenticationFailed) if they cannot be read, or not be used by Java's clients.
    """
    settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **cluster.librdkafka}
    if cluster.credentials:
        try:
            settings |= login(cluster.credentials)
        except Unusable as e:
            raise AckwrightError(Reason.AUTHENTICATION_FAILED, str(e)) from e
    return settings


class Kafka:
    """One admin connection. timeout: seconds that one call may take, connecting included."""

    def __init__(self, cluster: Cluster, timeout: float = 15.0) -> None:
        self.address = cluster.bootstrap_servers
        self._timeout = timeout
        self._timeouts = {"operation_timeout": timeout, "request_timeout": timeout}
        self._events: deque[KafkaError] = deque(maxlen=64)
        self._settings = client_settings(cluster)
        try:
            self._admin = AdminClient({**self._settings, "error_cb": self._events.append})
        except KafkaException as e:  # a CA file that cannot be read, a setting that librdkafka refuses
            raise AckwrightError(
                Reason.INVALID_SPEC, f"the connection to {self.address} cannot be set up: {e.args[0].str()}"
            ) from e

    # -- reads -----------------------------------------------------------------------------------------------------------------

    def brokers(self) -> tuple[int, ...]:
        """The ids of the brokers that are up."""
        return tuple(sorted(self.racks()))

    def racks(self) -> dict[int, str | None]:
        """The brokers that are up, by their ids, and the rack of each that names one. The first call of a connection: it finds out why
        the brokers cannot be reached."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                asked = self._admin.describe_cluster(request_timeout=min(1.0, self._timeout))
                return {node.id: node.rack or None for node in asked.result(self._timeout).nodes}
            except TimeoutError as e:
                raise AckwrightError(
                    Reason.BROKERS_UNREACHABLE, f"{self.address} gives no answer; see that the brokers are up"
                ) from e
            except KafkaException as e:
                error = self.translate(e.args[0], f"connecting to {self.address}")
                if error.reason is not Reason.BROKERS_UNREACHABLE or time.monotonic() >= deadline:
                    raise error from e
                self._find_controller()

    def _find_controller(self) -> None:
        """librdkafka asks the controller that it knows, and waits for it in vain when that one is down: the answer to any request for
        metadata names another."""
        with suppress(KafkaException):
            self._admin.list_topics(timeout=1.0)

    def topics(self, names: Sequence[str]) -> dict[str, Any]:
        """Descriptions (confluent_kafka.admin.TopicDescription) of those topics that exist. Never creates one, unlike a metadata request
        of a producer on brokers that create topics by themselves."""
        if not names:
            return {}

        def ask(seconds: float) -> dict[str, Any]:
            answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=seconds)
            return self._present({name: (future, f"describing topic {name}") for name, future in answers.items()})

        return self._persistently(ask)

    def topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Every setting in force for those of the topics that exist, defaults included. One request, however many they are."""
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]

        def ask(seconds: float) -> dict[str, dict[str, str]]:
            answers = self._admin.describe_configs(resources, request_timeout=seconds)
            found = self._present(
                {r.name: (future, f"reading the settings of topic {r.name}") for r, future in answers.items()}
            )
            return {name: _values(entries) for name, entries in found.items()}

        return self._persistently(ask)

    def broker_config(self, node: int) -> dict[str, str]:
        resource = ConfigResource(ResourceType.BROKER, str(node))
        future = self._admin.describe_configs([resource], request_timeout=self._timeout)[resource]
        return _values(self._result(future, f"reading the settings of broker {node}"))

    def group(self, name: str) -> Any | None:
        """The listing of a consumer group (confluent_kafka.admin.ConsumerGroupListing); None if there is no such group."""
        answer = self._result(
            self._admin.list_consumer_groups(request_timeout=self._timeout), "listing consumer groups"
        )
        found = next((g for g in answer.valid if g.group_id == name), None)
        if found is None and answer.errors:  # the broker that failed to answer may be the one that has it
            raise self.translate(answer.errors[0].args[0], "listing consumer groups")
        return found

    def moving(self) -> dict[tuple[str, int], Reassignment]:
        """Every move of replicas that has not ended, of the whole cluster, by topic and partition."""
        from ackwright.clients import reassignments  # takes half a second, and is seldom needed

        return reassignments.under_way(self._settings, self._timeout)

    def permissions(self, topics: Sequence[str], groups: Sequence[str], *, acls: bool) -> Answers:
        """What this connection's principal may do with the cluster, the topics and the groups. acls: whether ACLs are what the brokers go
        by."""
        principal = permissions.principal_of(self._settings)
        return permissions.answers(
            self._admin, self.translate, self._timeout, principal, topics=topics, groups=groups, acls=acls
        )

    def features(self) -> dict[str, int]:
        """The levels of the features that the cluster has settled on (KIP-584): metadata.version, transaction.version …"""
        from ackwright.clients import features  # takes as long as reassignments

        return features.settled(self._settings, self._timeout)

    # -- writes ----------------------------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str], *, try_only: bool = False
    ) -> Outcome:
        """Asks for a topic. Raises AckwrightError if it was refused, and so surely not created. try_only: only whether it would be."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(config))
        futures = self._admin.create_topics([topic], validate_only=try_only, **self._timeouts)
        fine = {KafkaError.TOPIC_ALREADY_EXISTS: Outcome.EXISTS}
        return self._written(futures[name], f"creating topic {name}", fine, takes=f"Create on topic {name}")

    def delete_topic(self, name: str) -> Outcome:
        """Asks for a topic to go; one that is gone already is fine. Raises AckwrightError if it was refused."""
        future = self._admin.delete_topics([name], **self._timeouts)[name]
        return self._written(
            future, f"deleting topic {name}", dict.fromkeys(_MISSING, Outcome.DONE), takes=f"Delete on topic {name}"
        )

    def add_partitions(self, name: str, total: int, *, try_only: bool = False) -> Outcome:
        """Asks for so many partitions in all. Raises AckwrightError if it was refused; a topic that has so many already refuses it."""
        future = self._admin.create_partitions([NewPartitions(name, total)], validate_only=try_only, **self._timeouts)[
            name
        ]
        return self._written(future, f"adding partitions to topic {name}", takes=f"Alter on topic {name}")

    def configure(
        self, kind: ConfigKind, name: str, settings: Mapping[str, str | None], *, try_only: bool = False
    ) -> Outcome:
        """Sets these settings of a topic or a broker and leaves all others alone; None: back to what the cluster has (KIP-339).

        Raises AckwrightError if it was refused; then none of them is set."""
        entries = [
            ConfigEntry(n, v, incremental_operation=AlterConfigOpType.DELETE if v is None else AlterConfigOpType.SET)
            for n, v in settings.items()
        ]
        resource = ConfigResource(ResourceType[kind], name, incremental_configs=entries)
        futures = self._admin.incremental_alter_configs(
            [resource], validate_only=try_only, request_timeout=self._timeout
        )
        takes = f"AlterConfigs on {f'topic {name}' if kind == 'TOPIC' else 'the cluster'}"
        return self._written(futures[resource], f"setting {', '.join(settings)} of {kind.lower()} {name}", takes=takes)

    def reassign(self, name: str, moves: Mapping[int, tuple[int, ...]]) -> Outcome:
        """Asks for these replicas of the topic's partitions, by their numbers; takes the place of a move that is under way. Raises
        AckwrightError with what was refused; the other partitions move all the same. No moves: only whether the principal may."""
        from ackwright.clients import reassignments

        return reassignments.begin(self._settings, self._timeout, name, moves)

    def _written(
        self, future: Future[Any], what: str, fine: Mapping[int, Outcome] | None = None, *, takes: str
    ) -> Outcome:
        """fine: what errors mean that are none; takes: the permission that it takes."""
        try:
            future.result(self._timeout + 5)
        except KafkaException as e:
            outcome = (fine or {}).get(e.args[0].code())
            if outcome is not None:
                return outcome
            error = self.translate(e.args[0], what, takes)
            if error.reason is Reason.BROKERS_UNREACHABLE:
                return Outcome.UNKNOWN
            raise error from e
        except TimeoutError:
            return Outcome.UNKNOWN
        return Outcome.DONE

    # -- errors ----------------------------------------------------------------------------------------------------------------

    def translate(self, error: KafkaError, what: str, takes: str = "this permission") -> AckwrightError:
        """The cause of an error in the user's terms, with what librdkafka told on the side. takes: the permission that it takes."""
        self._admin.poll(0)  # hands the pending events to error_cb
        code = error.code()
        if code in _UNREACHABLE:
            error = next((event for event in self._events if event.code() in _UNAUTHENTICATED), error)
            code = error.code()
        reason, remedy = _meaning(code)
        return AckwrightError(reason, f"{what} failed: {_short(error)}; {remedy.format(takes=takes)}")

    def _persistently(self, ask: Callable[[float], T]) -> T:
        """What `ask` returns, in the first or the second half of the time: librdkafka sends such questions to the controller, and a broker
        that has just died is named as that for some seconds (broker.session.timeout.ms)."""
        try:
            return ask(self._timeout / 2)
        except AckwrightError as e:
            if e.reason is not Reason.BROKERS_UNREACHABLE:
                raise
        self._find_controller()
        return ask(self._timeout / 2)

    def _present(self, asked: Mapping[str, tuple[Future[T], str]]) -> dict[str, T]:
        """The answers about what exists, by name."""
        found: dict[str, T] = {}
        for name, (future, what) in asked.items():
            try:
                found[name] = self._result(future, what)
            except AckwrightError as e:
                if e.reason is not Reason.TOPIC_MISSING:
                    raise
        return found

    def _result(self, future: Future[T], what: str) -> T:
        try:
            return future.result(self._timeout + 5)
        except KafkaException as e:
            raise self.translate(e.args[0], what) from e
        except TimeoutError as e:
            raise AckwrightError(
                Reason.BROKERS_UNREACHABLE, f"{what} got no answer within {self._timeout:g} s; try again"
            ) from e


def _values(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    return {entry.name: entry.value for entry in entries.values() if entry.value is not None}


_MEANINGS = (
    (
        frozenset({KafkaError._SSL}),
        Reason.AUTHENTICATION_FAILED,
        "check spec.kafka.tls, the CA certificate, and that the brokers' certificates are of the hosts that are named",
    ),
    (_UNAUTHENTICATED, Reason.AUTHENTICATION_FAILED, "check the user name and the password"),
    (_UNAUTHORIZED, Reason.AUTHORIZATION_FAILED, "grant the principal {takes}"),
    (
        _UNREACHABLE,
        Reason.BROKERS_UNREACHABLE,
        "check the address (spec.kafka.bootstrapServers), the network, and that the brokers are up",
    ),
    (_MISSING, Reason.TOPIC_MISSING, "create the topic, or list it under spec.topics"),
    (
        frozenset({KafkaError.INVALID_REPLICATION_FACTOR}),
        Reason.BROKERS_TOO_FEW,
        "add brokers, or lower tolerate.brokerFailures",
    ),
    (_REFUSED, Reason.INVALID_SPEC, "correct the topic under spec.topics"),
)


def _meaning(code: int) -> tuple[Reason, str]:
    """The reason and the remedy of an error code; the first row that has it."""
    found = ((reason, remedy) for codes, reason, remedy in _MEANINGS if code in codes)
    return next(found, (Reason.UNEXPECTED, "run again with -v for the stack trace"))


def together(checks: Sequence[Callable[[], object]]) -> None:
    """Runs all checks and raises what failed as one error: the first one's reason, every message on a line of its own.

    Stops at brokers that cannot be reached, since each further check would only wait to say the same.
    """
    errors: list[AckwrightError] = []
    for check in checks:
        try:
            check()
        except AckwrightError as e:
            errors.append(e)
            if e.reason is Reason.BROKERS_UNREACHABLE:
                break
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise AckwrightError(errors[0].reason, "\n".join(e.message for e in errors))


def _short(error: KafkaError) -> str:
    """One line; librdkafka's advice on its own settings is of no use to somebody who writes a DeliveryPipeline."""
    return " ".join(error.str().split()).split(" (after ")[0].removesuffix(".")
