"""The permissions of a connection's own principal, as the brokers report them. Reads only."""

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
from ackwright.planning.acls import CLUSTER, Answers, Binding, Kind, Operation, Resource
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Reason

Translate = Callable[[KafkaError, str], AckwrightError]

_KINDS = {
    ResourceType.BROKER: Kind.CLUSTER,  # librdkafka's name for it
    ResourceType.TOPIC: Kind.TOPIC,
    ResourceType.GROUP: Kind.GROUP,
    ResourceType.TRANSACTIONAL_ID: Kind.TRANSACTIONAL_ID,
}
_EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def answers(
    admin: AdminClient,
    settings: Mapping[str, Any],
    translate: Translate,
    timeout: float,
    *,
    topics: Iterable[str],
    groups: Iterable[str],
    acls: bool,
) -> Answers:
    """What the connection's principal may do with the cluster, the topics and the groups.

    About those that do not exist brokers may report nothing.

    settings: librdkafka's, of the same connection.
    acls: whether the brokers' authoriser decides by ACLs; these are listed if the principal may list them. timeout:
    seconds, of each call. Raises AckwrightError.
    """
    permitted: dict[Resource, frozenset[Operation]] = {}
    refused: set[Resource] = set()

    def collect(resource: Resource, future: Future[Any]) -> None:
        action = f"reading the permissions on {resource.kind} {resource.name}"
        try:
            operations = future.result(timeout + 5).authorized_operations
        except KafkaException as e:
            if e.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                refused.add(resource)
            elif e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise translate(e.args[0], action) from e
            return
        except TimeoutError as e:
            raise translate(KafkaError(KafkaError._TIMED_OUT), action) from e
        if operations is None:  # the principal may not describe the cluster
            refused.add(resource)
        else:
            permitted[resource] = _known(o.name for o in operations)

    options: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": timeout}
    collect(CLUSTER, admin.describe_cluster(**options))
    for name in dict.fromkeys(topics):  # one by one, since brokers that refuse one name may refuse the whole request
        collect(Resource(Kind.TOPIC, name), admin.describe_topics(TopicCollection([name]), **options)[name])
    for name in dict.fromkeys(groups):
        resource = Resource(Kind.GROUP, name)
        try:
            operations = _of_group(settings, timeout, name)
        except AckwrightError as e:
            if e.reason is not Reason.AUTHORIZATION_FAILED:
                raise
            refused.add(resource)
        else:
            if operations is not None:
                permitted[resource] = _known(operations)
    # A principal without the permission to list ACLs gets an empty list from librdkafka 2.16, and no error.
    listable = acls and Operation.DESCRIBE in permitted.get(CLUSTER, ())
    bindings = _bindings(admin, translate, timeout) if listable else None
    return Answers(principal_of(settings), permitted, frozenset(refused), bindings)


def _of_group(settings: Mapping[str, Any], timeout: float, group: str) -> frozenset[str] | None:
    from ackwright.clients import group_permissions  # the import takes half a second, and is seldom needed

    return group_permissions.authorized_operations(settings, timeout, group)


def _known(names: Iterable[str]) -> frozenset[Operation]:
    return frozenset(Operation[name] for name in names if name in Operation.__members__)


def _bindings(admin: AdminClient, translate: Translate, timeout: float) -> tuple[Binding, ...]:
    try:
        acls = admin.describe_acls(_EVERY_ACL, request_timeout=timeout).result(timeout + 5)
    except (KafkaException, TimeoutError) as e:
        error = e.args[0] if isinstance(e, KafkaException) else KafkaError(KafkaError._TIMED_OUT)
        raise translate(error, "listing ACLs") from e
    return tuple(_binding(acl) for acl in acls if acl.restype in _KINDS and acl.operation.name in Operation.__members__)


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
    """The principal of a connection with these librdkafka settings, as brokers name it by default."""
    return f"User:{settings.get('sasl.username', 'ANONYMOUS')}"
