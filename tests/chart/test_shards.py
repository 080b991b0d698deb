"""Several operators that divide the namespaces: one Deployment each."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.shards import LEASE_NAMES, MAX_SHARDS, THE_ONLY_ONE
from chart.rendered import CHART, objects, run

LABEL = "ackwright.io/shard"


def deployments(values: dict[str, Any]) -> dict[str, Any]:
    return {name: manifest for (kind, name), manifest in objects(values).items() if kind == "Deployment"}


def environment(deployment: Any) -> dict[str, str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {e["name"]: e["value"] for e in container["env"]}


def test_the_only_shard_is_the_operator_without_shards() -> None:
    ((name, deployment),) = deployments({}).items()
    assert name == "ackwright-operator"
    assert "ACKWRIGHT_SHARD" not in environment(deployment)
    assert LABEL not in deployment["spec"]["selector"]["matchLabels"]
    assert str(THE_ONLY_ONE) == "1/1"


@pytest.mark.parametrize("shards", [2, MAX_SHARDS])
def test_each_shard_is_a_deployment_with_its_own_pods(shards: int) -> None:
    rendered = deployments({"shards": shards})
    assert list(rendered) == [f"ackwright-operator-{n}" for n in range(1, shards + 1)]
    assert [environment(d)["ACKWRIGHT_SHARD"] for d in rendered.values()] == [
        f"{n}/{shards}" for n in range(1, shards + 1)
    ]
    selectors = [d["spec"]["selector"]["matchLabels"] for d in rendered.values()]
    assert [s[LABEL] for s in selectors] == [str(n) for n in range(1, shards + 1)]
    for deployment, selector in zip(rendered.values(), selectors, strict=True):
        template = deployment["spec"]["template"]
        assert selector.items() <= template["metadata"]["labels"].items()
        (term,) = template["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == selector


def test_what_selects_the_operator_selects_every_shard() -> None:
    values = {"shards": 2, "networkPolicy": {"enabled": True}}
    manifests = objects(values)
    pods = [d["spec"]["template"]["metadata"]["labels"].items() for d in deployments(values).values()]
    for selector in (
        manifests["Service", "ackwright-operator"]["spec"]["selector"],
        manifests["PodDisruptionBudget", "ackwright-operator"]["spec"]["selector"]["matchLabels"],
        manifests["NetworkPolicy", "ackwright-operator"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert all(selector.items() <= labels for labels in pods)


def test_the_operator_may_change_the_lease_of_every_shard() -> None:
    (rule,) = (
        r
        for r in objects({})["Role", "ackwright-operator"]["rules"]
        if "leases" in r["resources"] and "get" in r["verbs"]
    )
    assert rule["resourceNames"] == list(LEASE_NAMES)


@pytest.mark.parametrize("shards", [0, MAX_SHARDS + 1, 1.5])
def test_another_number_of_shards_is_refused(shards: float) -> None:
    completed = run("template", "ackwright", CHART, values={"shards": shards})
    assert completed.returncode != 0
    assert "shards" in completed.stderr
