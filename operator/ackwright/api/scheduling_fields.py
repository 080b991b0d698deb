"""The fields of a pod template that say where the scheduler places the pod: as in Kubernetes' API, by the same names.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#scheduling
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ackwright.api.checks import Check
from ackwright.api.fields import About, Model
from ackwright.api.pod_values import KEYS, LabelKey, LabelValue

Labels = Annotated[Mapping[str, LabelValue], Field(max_length=32), KEYS]
_Values = Annotated[tuple[LabelValue, ...], Field(max_length=32)]
_Weight = Annotated[int, Field(strict=True, ge=1, le=100)]
_Seconds = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
_Skew = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
_VALUES_FIT = Check[Any](
    lambda rule: (
        len(rule.values) == 1 if rule.operator in ("Gt", "Lt") else bool(rule.values) == ("In" in rule.operator)
    ),
    "needs values with In and NotIn, one value with Gt and Lt, and none with Exists and DoesNotExist",
    "add values, or remove them",
    cel=(
        "self.operator in ['Gt', 'Lt'] ? has(self.values) && size(self.values) == 1 : "
        "(has(self.values) && size(self.values) > 0) == (self.operator in ['In', 'NotIn'])"
    ),
    field="values",
)


class LabelRequirement(Model):
    """A condition on a label of pods."""

    key: Annotated[LabelKey, About("The label.")]
    operator: Annotated[Literal["In", "NotIn", "Exists", "DoesNotExist"], About("How values are compared.")]
    values: Annotated[_Values, About("The values, of In and NotIn.")] = ()

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (_VALUES_FIT,)


class LabelSelector(Model):
    """Which pods are meant."""

    match_labels: Annotated[Labels, About("Labels that pods have.")] = Field(default_factory=dict)
    match_expressions: Annotated[
        Annotated[tuple[LabelRequirement, ...], Field(max_length=8)], About("Conditions on labels of pods.")
    ] = ()


class NodeRequirement(Model):
    """A condition on a label or field of nodes."""

    key: Annotated[LabelKey, About("The label, or metadata.name in matchFields.")]
    operator: Annotated[Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"], About("How values are compared.")]
    values: Annotated[_Values, About("The values, of all but Exists and DoesNotExist.")] = ()

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (_VALUES_FIT,)


_Requirements = Annotated[tuple[NodeRequirement, ...], Field(max_length=8)]


class NodeTerm(Model):
    """Conditions on nodes that hold together."""

    match_expressions: Annotated[_Requirements, About("Conditions on labels of nodes.")] = ()
    match_fields: Annotated[_Requirements, About("Conditions on fields of nodes.")] = ()


class NodeSelector(Model):
    """Which nodes are required."""

    node_selector_terms: Annotated[
        Annotated[tuple[NodeTerm, ...], Field(min_length=1, max_length=8)], About("Of these one holds.")
    ]


class PreferredNodes(Model):
    """Which nodes are preferred."""

    weight: Annotated[_Weight, About("The weight, from 1 to 100.")]
    preference: Annotated[NodeTerm, About("The nodes.")]


class NodeAffinity(Model):
    """Which nodes pods run on."""

    required_during_scheduling_ignored_during_execution: Annotated[
        NodeSelector | None, About("The nodes on which alone pods run.")
    ] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        Annotated[tuple[PreferredNodes, ...], Field(max_length=8)], About("The nodes on which pods run if possible.")
    ] = ()


class PodTerm(Model):
    """Pods of the same namespace, and the domain in which they count as near."""

    topology_key: Annotated[LabelKey, About("The label of nodes that names the domain, for instance a zone.")]
    label_selector: Annotated[LabelSelector | None, About("The pods, in the pipeline's namespace.")] = None


class PreferredPods(Model):
    """Which pods are preferred."""

    weight: Annotated[_Weight, About("The weight, from 1 to 100.")]
    pod_affinity_term: Annotated[PodTerm, About("The pods.")]


class PodAffinity(Model):
    """Which other pods are near, or far."""

    required_during_scheduling_ignored_during_execution: Annotated[
        Annotated[tuple[PodTerm, ...], Field(max_length=8)], About("What has to hold.")
    ] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[
        Annotated[tuple[PreferredPods, ...], Field(max_length=8)], About("What holds if possible.")
    ] = ()


class Affinity(Model):
    """Nodes and pods near which pods run."""

    node_affinity: Annotated[NodeAffinity | None, About("The nodes.")] = None
    pod_affinity: Annotated[PodAffinity | None, About("Pods in whose domain the pod runs.")] = None
    pod_anti_affinity: Annotated[PodAffinity | None, About("Pods in whose domain the pod does not run.")] = None


class Toleration(Model):
    """A taint of nodes that does not keep the pod away."""

    key: Annotated[LabelKey | None, About("The taint's key. Default, with Exists: every key.")] = None
    operator: Annotated[Literal["Equal", "Exists"], About("Whether the value counts.")] = "Equal"
    value: Annotated[LabelValue | None, About("The taint's value, with Equal.")] = None
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None, About("The taint's effect. Default: every one.")
    ] = None
    toleration_seconds: Annotated[
        _Seconds | None, About("How long the pod stays on the node, with NoExecute. Default: forever.")
    ] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return _TOLERATION_CHECKS


_LOST_NODES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_CHECKS = (
    Check[Toleration](
        lambda taint: taint.key not in _LOST_NODES,
        "is a taint of nodes that are lost, which the operator tolerates for NODE_LOST seconds",
        "remove it; the platform's setting NODE_LOST says how long pods stay",
        cel=f"!has(self.key) || !(self.key in ['{_LOST_NODES[0]}', '{_LOST_NODES[1]}'])",
        field="key",
    ),
    Check[Toleration](
        lambda taint: taint.operator == "Exists" if taint.key is None else True,
        "needs a key, unless the operator is Exists",
        "add key, or write operator: Exists",
        cel="has(self.key) || self.operator == 'Exists'",
        field="key",
    ),
    Check[Toleration](
        lambda taint: taint.operator == "Equal" or taint.value is None,
        "has no effect with operator: Exists",
        "remove the value, or write operator: Equal",
        cel="self.operator == 'Equal' || !has(self.value)",
        field="value",
    ),
    Check[Toleration](
        lambda taint: taint.toleration_seconds is None or taint.effect == "NoExecute",
        "belongs to effect: NoExecute",
        "write effect: NoExecute, or remove tolerationSeconds",
        cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        field="tolerationSeconds",
    ),
)


class TopologySpread(Model):
    """How evenly pods are spread over a domain."""

    max_skew: Annotated[_Skew, About("The largest difference between two domains, in pods.")]
    topology_key: Annotated[LabelKey, About("The label of nodes that names the domain, for instance a zone.")]
    when_unsatisfiable: Annotated[
        Literal["DoNotSchedule", "ScheduleAnyway"], About("What happens to a pod that would break it.")
    ]
    label_selector: Annotated[
        LabelSelector | None, About("The pods that count. Default: those of the same role of this pipeline.")
    ] = None
    min_domains: Annotated[_Skew | None, About("The smallest number of domains, with DoNotSchedule.")] = None
    node_affinity_policy: Annotated[
        Literal["Honor", "Ignore"] | None, About("Whether nodes that the pod cannot choose count. Default: Honor.")
    ] = None
    node_taints_policy: Annotated[
        Literal["Honor", "Ignore"] | None, About("Whether taints of nodes count. Default: Ignore.")
    ] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (_MIN_DOMAINS,)


_MIN_DOMAINS = Check[TopologySpread](
    lambda spread: spread.min_domains is None or spread.when_unsatisfiable == "DoNotSchedule",
    "belongs to whenUnsatisfiable: DoNotSchedule",
    "write DoNotSchedule, or remove minDomains",
    cel="!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
    field="minDomains",
)
