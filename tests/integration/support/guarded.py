"""Brokers with access rules, users with passwords, and their permissions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ackwright.api.spec import parse
from ackwright.local.kafka import EmbeddedKafka, Security
from ackwright.planning.acls import Kind, Need, Operation, Resource
from ackwright.planning.permissions import Role, needs
from ackwright.planning.plan import plan as make_plan
from ackwright_stream.admin_client import AdminClient
from integration.support.pipelines import document
from waiting import ANSWER, wait_until

BOUNDED = {"availableNow": True}
USERS = {user: f"{user}-password" for user in ("ann", "operator", "job", "audit")}
_RESOURCES = {
    Kind.CLUSTER: ResourceType.BROKER,
    Kind.TOPIC: ResourceType.TOPIC,
    Kind.GROUP: ResourceType.GROUP,
    Kind.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}


def guarded_brokers(brokers: int) -> EmbeddedKafka:
    """Brokers with passwords and ACLs. The plain listener may do everything; users need permissions."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    return EmbeddedKafka(brokers=brokers, overrides=rules, security=Security(users=USERS))


def described(brokers: EmbeddedKafka, name: str, guarantee: str, user: str, directory: Path) -> dict[str, Any]:
    """A bounded pipeline of that user, whose password is in the directory."""
    for file, text in {"username": user, "password": USERS[user]}.items():
        (directory / "secrets" / "kafka-user").mkdir(parents=True, exist_ok=True)
        (directory / "secrets" / "kafka-user" / file).write_text(text)
    auth = {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "kafka-user"}}
    kafka = {"bootstrapServers": brokers.secure_bootstrap_servers, "auth": auth}
    declared = [{"name": f"{name}-{end}", "partitions": 2} for end in ("in", "out")]
    more = {"kafka": kafka, "tolerate": {"brokerFailures": 0}, "trigger": BOUNDED, "topics": declared}
    return document("", name, guarantee, f"{name}-in", f"{name}-out", **more)


def required_permissions(pipeline: dict[str, Any], *roles: Role) -> list[Need]:
    """The permissions that these roles need for the pipeline."""
    table = needs(make_plan(parse(pipeline)))
    return [need for role in roles for need in table[role]]


def grant(brokers: EmbeddedKafka, user: str, what: Iterable[Need], *, but: tuple[str, Operation] | None = None) -> None:
    """Grants the permissions, except one operation on one resource (`but`)."""
    acls = [_acl(user, need.resource, op) for need in what for op in need.operations if (need.resource.name, op) != but]
    admin = _admin(brokers)  # kept until the answers are here
    for future in admin.create_acls(list(dict.fromkeys(acls)), request_timeout=ANSWER).values():  # roles overlap
        future.result(ANSWER)


def withdraw(brokers: EmbeddedKafka, user: str) -> None:
    """Removes every permission of the user. Returns when the broker that answers applies it."""
    anything = (
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    asked = AclBindingFilter(*anything)
    admin = _admin(brokers)  # kept until the answer is here
    admin.delete_acls([asked], request_timeout=ANSWER)[asked].result(ANSWER)
    wait_until(lambda: not admin.describe_acls(asked, request_timeout=ANSWER).result(ANSWER), f"{user} has no rights")


def _admin(brokers: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers.bootstrap_servers})


def _acl(user: str, resource: Resource, operation: Operation) -> AclBinding:
    return AclBinding(
        _RESOURCES[resource.kind],
        resource.name,
        ResourcePatternType.PREFIXED if resource.prefixed else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation.name],
        AclPermissionType.ALLOW,
    )
