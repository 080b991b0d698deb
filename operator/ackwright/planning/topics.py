"""The settings of topics: what tolerating the loss of f brokers takes (design, section 1), and the rules that explicit values must keep.

With min.insync.replicas = f+1 an acknowledged record is on at least one broker after f are lost; with replication.factor = min.insync + f
enough replicas are left to go on writing. https://kafka.apache.org/documentation/#topicconfigs_min.insync.replicas
"""

from __future__ import annotations

from dataclasses import dataclass

from ackwright.api import topic_names
from ackwright.api.spec import DeliveryPipeline, Topic
from ackwright.planning.guarantees import Setting, Settings

LANES_TOPIC = topic_names.LANES_TOPIC
MIN_INSYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
CLEANUP = "cleanup.policy"
MAX_REPLICAS = 32_767  # an int16 in Kafka's protocol


@dataclass(frozen=True)
class TopicPlan:
    """A topic as it shall be. internal: the operator's own; deletion_policy: Retain | Delete; drift_policy: repair | alert | pause."""

    name: str
    partitions: int
    replication_factor: int
    replication_reason: str
    config: Settings
    deletion_policy: str = "Retain"
    drift_policy: str = "repair"
    internal: bool = False


def min_insync(topic: Topic, f: int) -> int | None:
    """The topic's min.insync.replicas, explicit or derived; None if the explicit one is not a number from 1 on."""
    text = topic.config.get(MIN_INSYNC)
    if text is None:
        return f + 1
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 and int(text) >= 1 else None


def replication_factor(topic: Topic, f: int) -> int:
    """Explicit, or the smallest that keeps the rule."""
    return topic.replication_factor or (min_insync(topic, f) or f + 1) + f


def topic_plans(pipeline: DeliveryPipeline) -> tuple[TopicPlan, ...]:
    """The topics of a valid pipeline that may be managed, and the compacted topic that records which lanes were initialised."""
    f = pipeline.spec.broker_failures
    lanes = Topic.model_validate({"name": LANES_TOPIC, "partitions": 1, "config": {CLEANUP: "compact"}})
    return (*(_plan(t, f) for t in pipeline.spec.topics), _plan(lanes, f, internal=True))


def _plan(topic: Topic, f: int, *, internal: bool = False) -> TopicPlan:
    least, copies = min_insync(topic, f) or f + 1, replication_factor(topic, f)
    derived = [
        Setting(
            MIN_INSYNC,
            str(least),
            f"brokers that hold a record when it is acknowledged; all but one ({least - 1}) may be lost",
        ),
        Setting(
            UNCLEAN,
            topic.config.get(UNCLEAN, "false"),
            "a replica that lags behind must not become leader: it lacks acknowledged records",
        ),
    ]
    why = (
        "records which lanes were initialised: the last word on each is kept for ever"
        if internal
        else "as declared in spec.topics"
    )
    given = [
        Setting(name, value, why) for name, value in sorted(topic.config.items()) if name not in (MIN_INSYNC, UNCLEAN)
    ]
    return TopicPlan(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=copies,
        replication_reason=f"writes go on while {least} replicas are in sync: {copies} - {least} = {copies - least} may be lost",
        config=(*derived, *given),
        deletion_policy=topic.deletion_policy,
        drift_policy=topic.drift_policy,
        internal=internal,
    )
