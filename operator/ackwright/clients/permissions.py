"""What the brokers tell about the rights of a connection's own principal. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ackwright.errors import AckwrightError
from ackwright.planning.acls import Kind, Operation, Resource
from ackwright.planning.permissions import CLUSTER, Answers, Binding
from ackwright_stream.admin_client import AdminClient

Translate = Callable[[KafkaError, str], AckwrightError]

_KINDS = {
    ResourceType.BROKER: Kind.CLUSTER,  # librdkafka's name for it
    ResourceType.TOPIC: Kind.TOPIC,
    ResourceType.GROUP: Kind.GROUP,
    ResourceType.TRANSACTIONAL_ID: Kind.TRANSACTIONAL_ID,
}
_REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED})
_ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND})
_EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def answers(
    admin: AdminClient,
    translate: Translate,
    timeout: float,
    principal: str,
    *,
    topics: Iterable[str],
    groups: Iterable[str],
    acls: bool,
) -> Answers:
    """What the principal may do with the cluster, the topics and the groups; of those that do not exist brokers may tell nothing.

    acls: whether ACLs are what the brokers go by; they are then listed, if that is allowed. timeout: seconds, of each call. Raises
    AckwrightError.
    """
    told: dict[Resource, frozenset[Operation]] = {}
    refused: set[Resource] = set()

    def take(resource: Resource, future: Future[Any]) -> None:
        what = f"asking what may be done with {resource.kind} {resource.name}"
        try:
            operations = future.result(timeout + 5).authorized_operations
        except KafkaException as e:
            if e.args[0].code() in _REFUSED:
                refused.add(resource)
            elif e.args[0].code() not in _ABSENT:
                raise translate(e.args[0], what) from e
            return
        except TimeoutError as e:
            raise translate(KafkaError(KafkaError._TIMED_OUT), what) from e
        if operations is None:  # of the cluster, to somebody who may not describe it
            refused.add(resource)
        else:
            told[resource] = frozenset(Operation[o.name] for o in operations if o.name in Operation.__members__)

    asked: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": timeout}
    take(CLUSTER, admin.describe_cluster(**asked))
    for name in dict.fromkeys(topics):  # one by one: brokers that refuse one name could refuse the request
        take(Resource(Kind.TOPIC, name), admin.describe_topics(TopicCollection([name]), **asked)[name])
    for name in dict.fromkeys(groups):
        take(Resource(Kind.GROUP, name), admin.describe_consumer_groups([name], **asked)[name])
    # To somebody who may not list ACLs librdkafka shows none, and no error (2.16).
    listed = acls and Operation.DESCRIBE in told.get(CLUSTER, ())
    return Answers(principal, told, frozenset(refused), _bindings(admin, translate, timeout) if listed else None)


def _bindings(admin: AdminClient, translate: Translate, timeout: float) -> tuple[Binding, ...]:
    try:
        found = admin.describe_acls(_EVERY_ACL, request_timeout=timeout).result(timeout + 5)
    except (KafkaException, TimeoutError) as e:
        error = e.args[0] if isinstance(e, KafkaException) else KafkaError(KafkaError._TIMED_OUT)
        raise translate(error, "listing ACLs") from e
    return tuple(
        _binding(acl) for acl in found if acl.restype in _KINDS and acl.operation.name in Operation.__members__
    )


def _binding(acl: Any) -> Binding:
    prefixed = acl.resource_pattern_type is ResourcePatternType.PREFIXED
    return Binding(
        principal=acl.principal,
        host=acl.host,
        resource=Resource(_KINDS[acl.restype], acl.name, prefixed),
        operation=Operation[acl.operation.name],
        allow=acl.permission_type is AclPermissionType.ALLOW,
    )


def principal_of(settings: Mapping[str, Any]) -> str:
    """The principal of a connection with these settings of librdkafka, as brokers name it unless they are told otherwise."""
    return f"User:{settings.get('sasl.username', 'ANONYMOUS')}"
