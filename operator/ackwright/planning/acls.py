"""Permissions in Kafka: on which resource a principal needs which operations. In the words of kafka-acls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Operation(StrEnum):
    """What a principal may do with a resource."""

    ALL = "All"
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class Kind(StrEnum):
    """The kind of a resource; the values are options of kafka-acls."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


@dataclass(frozen=True)
class Resource:
    """A resource of the brokers, or all whose names begin alike."""

    kind: Kind
    name: str
    # Stands for every resource of the kind whose name begins with `name`.
    prefixed: bool = False


@dataclass(frozen=True)
class Need:
    """Operations on one resource that are needed for one purpose."""

    resource: Resource
    operations: tuple[Operation, ...]
    # Completes the sentence "the principal …".
    why: str


CLUSTER = Resource(Kind.CLUSTER, "kafka-cluster")


@dataclass(frozen=True)
class Binding:
    """One ACL."""

    principal: str  # User:ann, or User:* for every principal
    host: str
    resource: Resource  # the literal name * matches every resource of its kind
    operation: Operation
    allow: bool


@dataclass(frozen=True)
class Answers:
    """What the brokers answer about a principal's permissions."""

    principal: str
    authorized: Mapping[Resource, frozenset[Operation]] = field(default_factory=dict)  # all operations that are allowed
    refused: frozenset[Resource] = frozenset()  # resources that the principal may not describe
    # Every ACL; None: they cannot be listed, or the authoriser does not use them.
    bindings: tuple[Binding, ...] | None = None
