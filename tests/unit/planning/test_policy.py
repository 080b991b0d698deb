"""What the platform refuses: other groups, its own namespace, other clusters."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from ackwright.api.status import Accepted, Status
from ackwright.pipeline_index import PipelineIndex
from ackwright.planning.declared import Declaration, NeverValid, declaration
from ackwright.planning.policy import Policy, policy
from ackwright.settings import OperatorSettings
from unit.world import SPEC, World

DEFAULT = policy(OperatorSettings(own_namespace="ackwright-system"))


def resource(name: str = "p", *, group: str | None = None, namespace: str = "ops", created: int = 0) -> dict[str, Any]:
    spec = copy.deepcopy(SPEC)
    spec["source"] |= {"groupId": group} if group else {}
    meta = {"name": name, "namespace": namespace, "creationTimestamp": f"2026-11-22T00:00:{created:02}Z", "uid": name}
    return {"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": meta, "spec": spec}


def refusal(of: dict[str, Any], platform: Policy = DEFAULT, status: Status | None = None) -> str | None:
    """Why the platform refuses a resource that was never accepted; None: it does not."""
    declared = declaration(of, status or Status(), platform)
    return declared.invalid


@pytest.mark.parametrize("group", [None, "ops.p", "ops.anything"])
def test_a_group_of_the_namespace_is_allowed(group: str | None) -> None:
    assert refusal(resource(group=group)) is None


@pytest.mark.parametrize("group", ["other.p", "ops", "opsx.p", "orders"])
def test_another_group_is_refused_unless_the_platform_allows_it(group: str) -> None:
    refused = refusal(resource(group=group))
    assert refused is not None
    assert refused.startswith(f"spec.source.groupId = {group!r}: must begin with ops., the namespace and a dot")
    assert refusal(resource(group=group), replace(DEFAULT, any_group=True)) is None
    assert refusal(resource(group=group), replace(DEFAULT, groups=frozenset({f"ops/{group}"}))) is None
    assert refusal(resource(group=group), replace(DEFAULT, groups=frozenset({f"other/{group}"}))) is not None


def test_a_status_that_says_that_the_group_was_accepted_allows_nothing() -> None:
    """Administrators of a namespace can write it."""
    of = resource(group="other.p")
    status = Status(accepted=Accepted(generation=1, hash="x", spec=of["spec"]))
    declared = declaration(of, status, DEFAULT)
    assert isinstance(declared, NeverValid)


def test_the_operators_namespace_has_no_pipelines_unless_the_platform_allows_it() -> None:
    of = resource(namespace="ackwright-system")
    refused = refusal(of)
    assert refused is not None
    assert "metadata.namespace = 'ackwright-system': is the operator's own namespace" in refused
    assert refusal(of, policy(OperatorSettings(own_namespace="ackwright-system", allow_own_namespace=True))) is None


@pytest.mark.parametrize(
    ("servers", "others"),
    [
        ("k:9092", ()),
        ("K:9092", ()),
        ("b-1.kafka.example.com:9093", ()),
        ("k:9093", ("k:9093",)),
        ("k:9092,evil:9092", ("evil:9092",)),
        ("kafka.example.com:9093", ("kafka.example.com:9093",)),
        ("evilkafka.example.com:9093", ("evilkafka.example.com:9093",)),
        ("b-1.kafka.example.com:9092", ("b-1.kafka.example.com:9092",)),
        ("b-1.kafka.example.com:9093.evil:9093", ("b-1.kafka.example.com:9093.evil:9093",)),
    ],
)
def test_only_allowed_clusters_can_be_named(servers: str, others: tuple[str, ...]) -> None:
    platform = Policy(servers=("k:9092", "*.kafka.example.com:9093"))
    assert platform.other_servers(servers) == others
    assert Policy().other_servers(servers) == (), "without a list any"


def test_an_edit_to_another_cluster_is_refused_and_the_last_spec_stays_if_it_is_allowed() -> None:
    platform = Policy(servers=("k:9092",))
    running = resource()
    status = Status(accepted=Accepted(generation=1, hash="x", spec=running["spec"]))
    edited = copy.deepcopy(running)
    edited["spec"]["kafka"]["bootstrapServers"] = "evil:9092"
    declared = declaration(edited, status, platform)
    assert isinstance(declared, Declaration)
    assert declared.pipeline.spec.kafka.bootstrap_servers == "k:9092"
    assert declared.invalid is not None
    assert "evil:9092 is not among the clusters that the platform allows" in declared.invalid
    assert isinstance(declaration(edited, status, Policy(servers=("other:9092",))), NeverValid)


def test_the_cluster_of_a_sink_counts_too() -> None:
    of = resource()
    of["spec"]["sink"]["kafka"] |= {"bootstrapServers": "evil:9092", "topic": "out"}
    of["spec"]["topics"] = of["spec"]["topics"][:1]
    refused = refusal(of, Policy(servers=("k:9092",)))
    assert refused is not None
    assert refused.startswith("spec.sink.kafka.bootstrapServers = 'evil:9092'")


def test_only_allowed_fields_of_pods_can_be_set() -> None:
    of = resource()
    template = {"nodeSelector": {"pool": "a"}, "sidecars": [{"name": "s", "image": "x"}]}
    of["spec"]["spark"] = {"executor": {"podTemplate": template}}
    assert refusal(of) is None, "without a list all"
    platform = policy(OperatorSettings(allowed_pod_fields=("nodeSelector", "labels")))
    refused = refusal(of, platform)
    assert refused == (
        "spec.spark.executor.podTemplate.sidecars = 'set': is not among the fields that the platform allows: labels, "
        "nodeSelector; remove it, or ask the platform's administrators (ALLOWED_POD_FIELDS)"
    )
    none = refusal(of, policy(OperatorSettings(allowed_pod_fields=("none",))))
    assert none is not None
    assert none.count("is not among the fields") == 2


def test_only_allowed_priority_classes_can_be_named() -> None:
    of = resource()
    of["spec"]["spark"] = {"driver": {"podTemplate": {"priorityClassName": "urgent"}}}
    assert refusal(of) is None
    assert refusal(of, policy(OperatorSettings(allowed_priority_classes=("urgent",)))) is None
    refused = refusal(of, policy(OperatorSettings(allowed_priority_classes=("jobs",))))
    assert refused is not None
    assert refused.startswith("spec.spark.driver.podTemplate.priorityClassName = 'urgent': is not among those")


def test_an_older_pipeline_with_a_refused_group_does_not_own_it() -> None:
    squatter = resource("squatter", group="ops.p", namespace="hostile")
    victim = resource("p", created=5)
    for platform, owner in ((DEFAULT, None), (Policy(), "of another namespace")):
        index = PipelineIndex(platform)
        index.update(("hostile", "squatter"), squatter)
        index.update(("ops", "p"), victim)
        assert index.group_owner(victim) == owner, "the control: without the rule the older one owns the group"


def test_names_of_other_namespaces_are_in_no_message() -> None:
    for namespace, expected in (("ops", "ops/other"), ("secretive", "of another namespace")):
        world = World()
        world.resource["metadata"]["creationTimestamp"] = "2026-11-22T00:00:10Z"
        other = resource("other", namespace=namespace)
        other["spec"]["topics"][0]["partitions"] = 7
        world.index.update((namespace, "other"), other)
        world.settle()
        assert world.condition("TopicsReady") == "False/TopicConflict"
        assert f"declared differently by the older pipeline {expected}" in str(world.resource["status"])
        assert "secretive" not in str(world.resource["status"])
