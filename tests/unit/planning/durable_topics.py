"""A delivery plan and topics that match it, for tests that change one property."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ackwright.api.spec import parse
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.guarantees import Setting
from ackwright.planning.plan import DeliveryPlan, plan
from ackwright.planning.replicas import Partition, Racks
from ackwright.planning.topics import MIN_INSYNC, UNCLEAN, TopicPlan
from unit.render.pipelines import MINIMAL

RACKS: Racks = dict.fromkeys((1, 2, 3))
CONFIG = {MIN_INSYNC: "2", UNCLEAN: "false"}
DOCUMENT = {
    "apiVersion": "ackwright.io/v1alpha1",
    "kind": "DeliveryPipeline",
    "metadata": {"name": "p", "namespace": "ops"},
}
SETTINGS = (Setting(MIN_INSYNC, "2", "two"), Setting(UNCLEAN, "false", "no laggard"))


def plan_for(guarantee: str = "exactly-once", *names: str, f: int = 1, drift_policy: str = "repair") -> DeliveryPlan:
    delivery_plan = plan(parse({**DOCUMENT, "spec": {**MINIMAL, "guarantee": guarantee}}))
    topics = tuple(TopicPlan(name, 2, 3, "because", SETTINGS, drift_policy=drift_policy) for name in names or ("t",))
    return replace(delivery_plan, topics=topics, broker_failures=f)


def topic(name: str = "t", *, config: Mapping[str, str] = CONFIG, first: Partition | None = None) -> ObservedTopic:
    """A topic with two partitions on three brokers; `first` replaces the first partition."""
    complete = [Partition(n, (1, 2, 3), frozenset((1, 2, 3)), 1) for n in range(2)]
    return ObservedTopic(name, "id", (first or complete[0], complete[1]), dict(config))


def part(*in_sync: int, leader: int | None = 1, replicas: tuple[int, ...] = (1, 2, 3)) -> Partition:
    return Partition(0, replicas, frozenset(in_sync), leader)
