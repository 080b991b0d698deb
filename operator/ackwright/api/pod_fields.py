"""The pod template of driver and executors: the fields of Kubernetes' pods that a pipeline may set.

An allow-list. Whatever is not here is refused by name: above all what would weaken the pod's security (hostPath,
privileged, host networks, another service account) or the guarantee (probes, commands, the job's own variables).
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ackwright.api.checks import Check
from ackwright.api.fields import About, Model, map_by
from ackwright.api.pod_sources import (
    ONE_VALUE,
    EnvFrom,
    EnvSource,
    EnvVar,
    PodVolume,
    SidecarMount,
    VolumeMount,
)
from ackwright.api.pod_values import (
    ANNOTATIONS_OF_KUBERNETES,
    KEYS,
    LABELS_OF_KUBERNETES,
    Argument,
    ContainerName,
    ContainerPort,
    DnsLabel,
    DnsName,
    Group,
    PriorityClass,
    Quantity,
    VariableName,
    not_own,
    resource_names,
)
from ackwright.api.quantities import Line, Switch
from ackwright.api.scheduling_fields import Affinity, Labels, Toleration, TopologySpread

PullPolicy = Literal["Always", "IfNotPresent", "Never"]
_Arguments = Annotated[tuple[Argument, ...], Field(max_length=64)]


_Amounts = Annotated[Mapping[str, Quantity], Field(max_length=16)]


class Resources(Model):
    """Resources of the job's container, besides those that follow from cores and memory."""

    limits: Annotated[
        Annotated[
            _Amounts,
            resource_names(("cpu", "ephemeral-storage"), "set the memory by spec.spark.driver or executor.memory"),
        ],
        About("At most. Default: no limit but that of the memory."),
    ] = Field(default_factory=dict)
    requests: Annotated[
        Annotated[
            _Amounts, resource_names(("ephemeral-storage",), "set CPU and memory by spec.spark.driver or executor")
        ],
        About("What Kubernetes reserves besides CPU and memory."),
    ] = Field(default_factory=dict)


_OF_SIDECARS = resource_names(("cpu", "memory", "ephemeral-storage"), "remove the others")


class SidecarResources(Model):
    """Resources of a sidecar."""

    limits: Annotated[Annotated[_Amounts, _OF_SIDECARS], About("At most.")] = Field(default_factory=dict)
    requests: Annotated[Annotated[_Amounts, _OF_SIDECARS], About("What Kubernetes reserves.")] = Field(
        default_factory=dict
    )


class Port(Model):
    """A port of a sidecar."""

    name: Annotated[DnsLabel | None, About("The name.")] = None
    container_port: Annotated[ContainerPort, About("The port.")]
    protocol: Annotated[Literal["TCP", "UDP", "SCTP"], About("The protocol.")] = "TCP"


class SidecarVariable(Model):
    """A variable of the environment of a sidecar."""

    name: Annotated[VariableName, About("The name.")]
    value: Annotated[Argument | None, About("The value. Credentials belong into a Secret.")] = None
    value_from: Annotated[EnvSource | None, About("Where the value is.")] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (ONE_VALUE,)


class SidecarSecurity(Model):
    """Which user a sidecar is, under the Pod Security Standard "restricted"."""

    run_as_user: Annotated[Group | None, About("The user, not root. Default: that of the job, 10001.")] = None
    run_as_group: Annotated[Group | None, About("The group. Default: that of the job, 10001.")] = None
    read_only_root_filesystem: Annotated[Switch, About("Whether it can write to its volumes only.")] = True


class Sidecar(Model):
    """A container that runs beside the job as long as the pod does."""

    name: Annotated[ContainerName, About("The name.")]
    image: Annotated[Line, About("The image.")]
    image_pull_policy: Annotated[PullPolicy, About("When the image is pulled.")] = "IfNotPresent"
    command: Annotated[_Arguments, About("The command. Default: that of the image.")] = ()
    args: Annotated[_Arguments, About("Its arguments. Default: those of the image.")] = ()
    env: Annotated[
        Annotated[tuple[SidecarVariable, ...], Field(max_length=32)],
        About("Variables of its environment.", schema=map_by("name")),
    ] = ()
    ports: Annotated[
        Annotated[tuple[Port, ...], Field(max_length=8)], About("Its ports. The network is that of the job.")
    ] = ()
    resources: Annotated[SidecarResources, About("What it needs.")] = SidecarResources()
    security_context: Annotated[SidecarSecurity, About("Its user.")] = SidecarSecurity()
    volume_mounts: Annotated[
        Annotated[tuple[SidecarMount, ...], Field(max_length=16)],
        About("Volumes of the template that it mounts.", schema=map_by("mountPath")),
    ] = ()


class PodSecurity(Model):
    """What of the pod's security can be chosen under the Pod Security Standard "restricted"."""

    fs_group: Annotated[Group | None, About("The group that volumes belong to. Default: 10001.")] = None
    fs_group_change_policy: Annotated[
        Literal["Always", "OnRootMismatch"] | None, About("When the group of files changes. Default: Always.")
    ] = None
    supplemental_groups: Annotated[
        Annotated[tuple[Group, ...], Field(max_length=16)], About("Further groups of the pod's processes.")
    ] = ()


class PodTemplate(Model):
    """spec.spark.driver.podTemplate and spec.spark.executor.podTemplate."""

    labels: Annotated[
        Annotated[Labels, not_own(LABELS_OF_KUBERNETES)], About("Labels of the pod. Those of the operator are refused.")
    ] = Field(default_factory=dict)
    annotations: Annotated[
        Annotated[
            Mapping[str, Argument],
            Field(max_length=32),
            KEYS,
            not_own(ANNOTATIONS_OF_KUBERNETES, ("prometheus.io/",)),
        ],
        About("Annotations of the pod. Those of the operator and of Kubernetes are refused."),
    ] = Field(default_factory=dict)
    node_selector: Annotated[Labels, About("Labels that the pod's node has.")] = Field(default_factory=dict)
    affinity: Annotated[Affinity | None, About("Nodes and pods near which the pod runs, or not.")] = None
    tolerations: Annotated[
        Annotated[tuple[Toleration, ...], Field(max_length=16)],
        About("Taints of nodes that do not keep the pod away. The operator adds those of lost nodes."),
    ] = ()
    topology_spread_constraints: Annotated[
        Annotated[tuple[TopologySpread, ...], Field(max_length=8)],
        About(
            "How evenly the pods are spread. Default of executors: over the nodes, if possible.",
            schema={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["topologyKey", "whenUnsatisfiable"],
            },
        ),
    ] = ()
    priority_class_name: Annotated[PriorityClass | None, About("The PriorityClass. Default: that of the cluster.")] = (
        None
    )
    scheduler_name: Annotated[DnsName | None, About("The scheduler. Default: that of Kubernetes.")] = None
    env: Annotated[
        Annotated[tuple[EnvVar, ...], Field(max_length=64)],
        About("Variables of the job's environment.", schema=map_by("name")),
    ] = ()
    env_from: Annotated[
        Annotated[tuple[EnvFrom, ...], Field(max_length=16)],
        About("Secrets and ConfigMaps whose keys become variables, each with a prefix."),
    ] = ()
    resources: Annotated[
        Resources, About("Limits, and resources besides CPU and memory, which follow from cores and memory.")
    ] = Resources()
    security_context: Annotated[
        PodSecurity, About("What of the pod's security can be chosen; the rest is that of restricted.")
    ] = PodSecurity()
    volumes: Annotated[
        Annotated[tuple[PodVolume, ...], Field(max_length=16)],
        About("Volumes of the pod.", schema=map_by("name")),
    ] = ()
    volume_mounts: Annotated[
        Annotated[tuple[VolumeMount, ...], Field(max_length=16)],
        About("Where the job mounts these volumes.", schema=map_by("mountPath")),
    ] = ()
    sidecars: Annotated[
        Annotated[tuple[Sidecar, ...], Field(max_length=4)],
        About(
            "Containers that run beside the job, without the identity of the driver. They start first and end last.",
            schema=map_by("name"),
        ),
    ] = ()
