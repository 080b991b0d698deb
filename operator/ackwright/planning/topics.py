"""The settings of topics that tolerate the loss of f brokers, and the rules for explicit values. Pure.

With min.insync.replicas = f+1 an acknowledged record is still on at least one broker after f are lost. With
replication.factor = min.insync.replicas + f enough replicas are left for writes to continue.
https://kafka.apache.org/documentation/#topicconfigs_min.insync.replicas
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ackwright.api import topic_names
from ackwright.api.spec import DeliveryPipeline, Topic
from ackwright.planning.guarantees import Setting, Settings

LANES_TOPIC, DECISIONS_TOPIC = topic_names.LANES_TOPIC, topic_names.DECISIONS_TOPIC
OWN_TOPICS = (LANES_TOPIC, DECISIONS_TOPIC)
# A driver reads the decisions that are not compacted yet when it takes its pipeline, and compaction leaves the newest
# segment as it is.
_DECISIONS_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(64 * 1024 * 1024)}
MIN_INSYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
CLEANUP = "cleanup.policy"
COMPACT = "compact"
MAX_REPLICAS = 32_767  # an int16 in Kafka's protocol


@dataclass(frozen=True)
class TopicPlan:
    """The planned state of a topic."""

    name: str
    partitions: int
    replication_factor: int
    replication_reason: str  # why this replication factor
    config: Settings
    deletion_policy: str = "Retain"  # or Delete
    drift_policy: str = "repair"  # or alert, pause
    internal: bool = False  # a topic of the operator's own, which pipelines share
    feeds_state: bool = False  # a source of a stateful pipeline
    # From which alone the replication factor follows, 2f + 1; None: the topic declares replicas.
    broker_failures: int | None = None


def min_insync(topic: Topic, f: int) -> int | None:
    """The topic's min.insync.replicas, explicit or derived; None if the explicit value is no positive number."""
    text = topic.config.get(MIN_INSYNC)
    if text is None:
        return f + 1
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 and int(text) >= 1 else None


def replication_factor(topic: Topic, f: int) -> int:
    """The topic's replication factor: the explicit one, or the smallest that the rules allow."""
    return topic.replication_factor or (min_insync(topic, f) or f + 1) + f


def topic_plans(pipeline: DeliveryPipeline) -> tuple[TopicPlan, ...]:
    """The topics that a valid pipeline declares, and the compacted ones that Ackwright needs.

    The latter only if positions are in Kafka.
    """
    f, sink = pipeline.spec.broker_failures, pipeline.spec.sink.declared
    feeding = pipeline.spec.source.topics if pipeline.spec.state is not None else ()
    if not sink.IN_KAFKA:
        letters = sink.dead_letters()
        keyed = letters.name if letters and letters.keyed else None
        return tuple(
            replace(_plan(t, f, keyed=t.name == keyed), feeds_state=t.name in feeding) for t in pipeline.spec.topics
        )
    lanes = Topic.model_validate({"name": LANES_TOPIC, "partitions": 1, "config": {CLEANUP: COMPACT}})
    own = [
        _plan(lanes, f, internal="records which lanes were initialised: the last record of each lane is kept forever")
    ]
    if pipeline.spec.state is not None:
        decisions = Topic.model_validate({"name": DECISIONS_TOPIC, "partitions": 1, "config": _DECISIONS_CONFIG})
        own.append(_plan(decisions, f, internal="records what was decided: the last decision of each pipeline is kept"))
    return (*(replace(_plan(t, f), feeds_state=t.name in feeding) for t in pipeline.spec.topics), *own)


def is_compacted(policy: str) -> bool:
    """Whether a topic with this cleanup.policy keeps the last record of each key."""
    return COMPACT in {part.strip() for part in policy.split(",")}


def command_to_set(topic: str, setting: str, value: object) -> str:
    """The command with which a person changes a setting of a topic."""
    return f"kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {setting}={value}"


def _plan(topic: Topic, f: int, *, internal: str = "", keyed: bool = False) -> TopicPlan:
    """internal: the reason for the settings of a topic of Ackwright's own. keyed: as DeadLetters.keyed."""
    minimum, replicas = min_insync(topic, f) or f + 1, replication_factor(topic, f)
    derived = [
        Setting(
            MIN_INSYNC,
            str(minimum),
            f"brokers that hold a record when it is acknowledged; all but one ({minimum - 1}) may be lost",
        ),
        Setting(
            UNCLEAN,
            topic.config.get(UNCLEAN, "false"),
            "a replica that lags behind must not become leader: it lacks acknowledged records",
        ),
    ]
    if keyed and CLEANUP not in topic.config:
        why_compacted = "a dead letter that is written again replaces the one with its key"
        derived.append(Setting(CLEANUP, COMPACT, why_compacted))
    why = internal or "as declared in spec.topics"
    explicit = [
        Setting(name, value, why) for name, value in sorted(topic.config.items()) if name not in (MIN_INSYNC, UNCLEAN)
    ]
    return TopicPlan(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=replicas,
        replication_reason=f"writes continue while {minimum} replicas are in sync: "
        f"{replicas} - {minimum} = {replicas - minimum} may be lost",
        config=(*derived, *explicit),
        deletion_policy=topic.deletion_policy,
        drift_policy=topic.drift_policy,
        internal=bool(internal),
        broker_failures=f if topic.replication_factor is None and MIN_INSYNC not in topic.config else None,
    )
