"""What an upgrade must not change: drivers and their objects, while pipelines deliver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from e2e.pipelines import Pipeline, wait_until

FLIGHTS = 5_000  # that are produced at a time
CHILDREN = "statefulsets,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets"


def children(p: Pipeline) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = p.installation.get(CHILDREN, labels=f"ackwright.io/pipeline={p.name}")
    return objects


def identity(p: Pipeline) -> object:
    """The driver's uid, its restarts, and the generation of each child: changed by any restart or rewrite."""
    driver = p.driver()
    assert driver is not None
    restarts = [c["restartCount"] for c in driver["status"]["containerStatuses"]]
    specs = sorted(
        (o["kind"], o["metadata"]["name"], o["metadata"]["uid"], o["metadata"].get("generation", 0))
        for o in children(p)
    )
    return driver["metadata"]["uid"], restarts, specs


def produce_and_wait_until_delivered(pipelines: Sequence[Pipeline], skip: int) -> None:
    for p in pipelines:
        p.produce_flights(FLIGHTS, skip=skip)
    for p in pipelines:
        p.wait_until_delivered()


def wait_until_delivered_and_observed(pipelines: Sequence[Pipeline], skip: int) -> None:
    """Produces flights; returns when they are delivered and the operator has reconciled each pipeline again."""
    before = {p.name: p.status()["delivery"]["observedAt"] for p in pipelines}
    produce_and_wait_until_delivered(pipelines, skip)
    wait_until(
        lambda: all(p.status()["delivery"]["observedAt"] > before[p.name] for p in pipelines),
        "each pipeline has been reconciled again",
        120,
    )
