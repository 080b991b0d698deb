"""Brokers with access rules, users with passwords, and their permissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from ackwright.planning.clusters import ClusterRole, parts
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


def login(brokers: EmbeddedKafka, user: str, directory: Path) -> dict[str, Any]:
    """The connection of that user in a spec. Its password is stored below secrets/ in the directory."""
    for file, text in {"username": user, "password": USERS[user]}.items():
        (directory / "secrets" / "kafka-user").mkdir(parents=True, exist_ok=True)
        (directory / "secrets" / "kafka-user" / file).write_text(text)
    auth = {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "kafka-user"}}
    return {"bootstrapServers": brokers.secure_bootstrap_servers, "auth": auth}


def described(brokers: EmbeddedKafka, name: str, guarantee: str, user: str, directory: Path) -> dict[str, Any]:
    """A bounded pipeline of that user, whose password is in the directory."""
    kafka = login(brokers, user, directory)
    declared = [{"name": f"{name}-{end}", "partitions": 2} for end in ("in", "out")]
    more = {"kafka": kafka, "tolerate": {"brokerFailures": 0}, "trigger": BOUNDED, "topics": declared}
    return document("", name, guarantee, f"{name}-in", f"{name}-out", **more)


def required_permissions(pipeline: dict[str, Any], *roles: Role) -> list[Need]:
    """The permissions that these roles need for the pipeline."""
    table = needs(make_plan(parse(pipeline)))
    return [need for role in roles for need in table[role]]


def required_of_job(pipeline: dict[str, Any]) -> Mapping[ClusterRole, list[Need]]:
    """The permissions that the job needs on each cluster of the pipeline."""
    by_cluster = parts(make_plan(parse(pipeline)))
    return {role: list(needs(part)[Role.JOB]) for role, part in by_cluster.items()}


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
    _delete(brokers, AclBindingFilter(*anything))


def withdraw_one(brokers: EmbeddedKafka, user: str, resource: Resource, operation: Operation) -> None:
    """Removes one permission of the user. Returns when the broker that answers applies it."""
    acl = _acl(user, resource, operation)
    this = (acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation)
    _delete(brokers, AclBindingFilter(*this, acl.permission_type))


def _delete(brokers: EmbeddedKafka, acls: AclBindingFilter) -> None:
    admin = _admin(brokers)  # kept until the answer is here
    admin.delete_acls([acls], request_timeout=ANSWER)[acls].result(ANSWER)
    wait_until(lambda: not admin.describe_acls(acls, request_timeout=ANSWER).result(ANSWER), "the ACLs are gone")


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
