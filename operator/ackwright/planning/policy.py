"""What the platform allows in pipelines beyond what is valid: consumer groups, namespaces, clusters, fields of
pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ackwright.api.spec import DeliveryPipeline
from ackwright.errors import Violation
from ackwright.planning.pod_validation import templates
from ackwright.settings import OperatorSettings
from ackwright.sinks.registry import SinkSpec

Resource = Mapping[str, Any]

_ANY_PREFIX = "*."


@dataclass(frozen=True)
class Policy:
    """The platform's rules. The defaults allow everything."""

    any_group: bool = True  # False: a group's name begins with the pipeline's namespace and a dot
    groups: frozenset[str] = frozenset()  # namespace/group, of other groups that pipelines of a namespace may have
    own_namespace: str | None = None  # the operator's, without pipelines; None: they are allowed in every namespace
    servers: tuple[str, ...] = ()  # host:port that pipelines may name, or *.domain:port; empty: any
    pod_fields: frozenset[str] = frozenset()  # of podTemplate that pipelines may set; empty: all
    priority_classes: frozenset[str] = frozenset()  # that podTemplate may name; empty: any

    def violations(self, pipeline: DeliveryPipeline, resource: Resource) -> tuple[Violation, ...]:
        """What the platform refuses of a valid pipeline. resource: as the API server has it."""
        refused = []
        namespace = pipeline.metadata.namespace
        if namespace == self.own_namespace:
            refused.append(
                Violation(
                    "metadata.namespace",
                    namespace,
                    "is the operator's own namespace, in which pods could use the operator's account",
                    "create the pipeline in another namespace that the operator watches (watchNamespaces)",
                )
            )
        if not self.allows_group(resource):
            refused.append(
                Violation(
                    "spec.source.groupId",
                    pipeline.group,
                    f"must begin with {namespace}., the namespace and a dot, on this platform",
                    "remove groupId, choose such a name, or ask the platform's administrators (ALLOWED_GROUPS)",
                )
            )
        declared = pipeline.spec.sink.declared
        sink = declared.cluster()
        clusters = [("spec.kafka.bootstrapServers", pipeline.spec.kafka.bootstrap_servers)]
        if sink:
            kind = next(name for name, model in SinkSpec.kinds().items() if isinstance(declared, model))
            clusters.append((f"spec.sink.{kind}.bootstrapServers", sink.bootstrap_servers))
        refused += [
            Violation(
                field,
                servers,
                f"{', '.join(others)} is not among the clusters that the platform allows"
                if len(others) == 1
                else f"{', '.join(others)} are not among the clusters that the platform allows",
                "name an allowed cluster, or ask the platform's administrators (ALLOWED_SERVERS)",
            )
            for field, servers in clusters
            if (others := self.other_servers(servers))
        ]
        return (*refused, *self._of_pods(pipeline))

    def _of_pods(self, pipeline: DeliveryPipeline) -> Iterator[Violation]:
        for path, template in templates(pipeline):
            for name in template.model_dump(by_alias=True, exclude_defaults=True):
                if self.pod_fields and name not in self.pod_fields:
                    yield Violation(
                        f"{path}.{name}",
                        "set",
                        f"is not among the fields that the platform allows: {', '.join(sorted(self.pod_fields))}",
                        "remove it, or ask the platform's administrators (ALLOWED_POD_FIELDS)",
                    )
            priority = template.priority_class_name
            if priority and self.priority_classes and priority not in self.priority_classes:
                yield Violation(
                    f"{path}.priorityClassName",
                    priority,
                    f"is not among those that the platform allows: {', '.join(sorted(self.priority_classes))}",
                    "name one of them, remove it, or ask the platform's administrators (ALLOWED_PRIORITY_CLASSES)",
                )

    def allows_group(self, resource: Resource) -> bool:
        """Whether the pipeline may have its consumer group, read without validating the spec."""
        group, namespace = _group_id(resource.get("spec")), resource["metadata"]["namespace"]
        if self.any_group or group is None or str(group).startswith(f"{namespace}."):
            return True
        return f"{namespace}/{group}" in self.groups

    def other_servers(self, servers: str) -> tuple[str, ...]:
        """The addresses of bootstrapServers that the platform does not allow."""
        addresses = (address.strip().lower() for address in servers.split(","))
        return tuple(a for a in addresses if self.servers and not any(_matches(a, allowed) for allowed in self.servers))


def policy(settings: OperatorSettings) -> Policy:
    """The policy of an operator."""
    return Policy(
        any_group=settings.allow_any_group,
        groups=frozenset(settings.allowed_groups),
        own_namespace=None if settings.allow_own_namespace else settings.own_namespace,
        servers=settings.allowed_servers,
        pod_fields=frozenset(settings.allowed_pod_fields),
        priority_classes=frozenset(settings.allowed_priority_classes),
    )


def combined(violations: Iterable[Violation]) -> str | None:
    """The text of all violations; None without any."""
    return "; ".join(str(v) for v in violations) or None


def _group_id(spec: object) -> object:
    source = spec.get("source") if isinstance(spec, Mapping) else None
    return source.get("groupId") if isinstance(source, Mapping) else None


def _matches(address: str, allowed: str) -> bool:
    allowed = allowed.lower()
    return address.endswith(allowed[1:]) if allowed.startswith(_ANY_PREFIX) else address == allowed
