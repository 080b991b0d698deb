"""The positions of sink.kafka: committed offsets of the pipeline's consumer group, with records in the lanes topic."""

from __future__ import annotations

from dataclasses import replace

from ackwright.api.topic_names import DECISIONS_TOPIC, LANES_TOPIC, MARKER_PREFIX
from ackwright.planning.acls import Kind, Need, Operation, Resource
from ackwright.planning.guarantees import POSITIONS_PRODUCER, Setting, Settings, values
from ackwright.sinks.base import Section
from ackwright_stream.jobspec import INSTANCE_ID, KafkaPositions, StandbyTimes

# Without a heartbeat for so long a driver is no member any more. It does not delay the next driver, which replaces the
# member at once. Until it is over after a driver's end, the group's offsets cannot be set by hand.
SESSION_TIMEOUT_MS = 45_000
# Of a source topic whose marker has a name that Kafka accepts: 249 less the prefix, the id of a cluster and a dot.
LONGEST_TOPIC = 249 - len(MARKER_PREFIX) - 22 - 1
STANDBY = StandbyTimes(silent_ms=5_000, silent_max_ms=SESSION_TIMEOUT_MS)
_UNCOMMITTED_READS: Settings = (
    Setting(
        "isolation.level",
        "read_uncommitted",
        "a driver that takes the pipeline, and a reader of the lanes topic, have to know of transactions that are open",
    ),
)


def to_job(group: str, *, own_cluster: bool = False) -> KafkaPositions:
    """What the jobspec says of the positions of a group. own_cluster: whether it is not the source's."""
    return KafkaPositions(
        lanes_topic=LANES_TOPIC,
        decisions_topic=None,
        driver_transactional_id=group,
        slot_transactional_id_prefix=f"{group}/slots/",
        lane_transactional_id_prefix=f"{group}/",
        producer=values(POSITIONS_PRODUCER),
        member=values(_member(group)),
        uncommitted_reads=values(_UNCOMMITTED_READS),
        marker_prefix=MARKER_PREFIX if own_cluster else "",
        lag_consumer=values(_lag_consumer(group)) if own_cluster else {},
    )


def with_decisions(positions: KafkaPositions) -> KafkaPositions:
    """The same for a stateful pipeline."""
    return replace(positions, decisions_topic=DECISIONS_TOPIC)


def decision_needs() -> tuple[Need, ...]:
    """The permissions that the job needs for its decisions."""
    operations = (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
    return (Need(Resource(Kind.TOPIC, DECISIONS_TOPIC), operations, "records the decision of each batch"),)


def sections(group: str, *, own_cluster: bool) -> tuple[Section, ...]:
    """The settings of the clients, with their reasons. own_cluster: as for `to_job`."""
    lag = Section("positions.lag_consumer", "Copies of positions for lag tools (librdkafka)", _lag_consumer(group))
    return (
        *((lag,) if own_cluster else ()),
        Section("positions.producer", "Producers that commit positions and no rows (librdkafka)", POSITIONS_PRODUCER),
        Section("positions.member", "Driver's membership in the group (librdkafka)", _member(group)),
        Section(
            "positions.uncommitted_reads",
            "Both consumers, where open transactions count (librdkafka)",
            _UNCOMMITTED_READS,
        ),
    )


def commit(group: str, *, own_cluster: bool) -> Settings:
    """How positions move, as `ackwright plan` prints it. own_cluster: as for `to_job`."""
    positions, fences = to_job(group), "initialising it fences its last owner"
    where = (
        (
            Setting("positions", "committed offsets", "of a consumer group on the sink's cluster, with the output"),
            Setting(
                "marker topic",
                f"{MARKER_PREFIX}<id of the source's cluster>.<source topic>",
                "empty: its partitions carry the offsets of the source's partitions",
            ),
            Setting("lag group", f"{group}.lag", "copies of the positions on the source's cluster, for lag tools"),
        )
        if own_cluster
        else (Setting("positions", "committed offsets", "of a consumer group, so every lag tool works"),)
    )
    return (
        *where,
        *(s for s in _member(group) if s.name in ("group.instance.id", "session.timeout.ms")),
        Setting("lanes topic", positions.lanes_topic, "records which lanes ever had a position"),
        Setting("transactional.id", positions.driver_transactional_id, f"the driver's; {fences}"),
        Setting(
            "transactional.id of a slot",
            f"{positions.slot_transactional_id_prefix}<number>",
            f"the task's; {fences}, an earlier attempt of the task",
        ),
        Setting(
            "transactional.id of a lane",
            f"{positions.lane_transactional_id_prefix}<topic>-<partition>",
            "of earlier releases: a driver of one of them is fenced at the first start",
        ),
        *(s for s in POSITIONS_PRODUCER if s.name == "transaction.timeout.ms"),
        Setting(
            "offset metadata",
            "topic id, slots, lanes topic id, pipeline id, driver number",
            "detects a replaced topic, and positions that others moved",
        ),
    )


def decisions(*, own_cluster: bool) -> Settings:
    """Where decisions are, as `ackwright plan` prints it. own_cluster: as for `to_job`."""
    where = ", on the sink's cluster" if own_cluster else ""
    return (Setting("decisions topic", DECISIONS_TOPIC, f"in the transaction of the positions{where}"),)


def needs(group: str) -> tuple[Need, ...]:
    """The permissions that the job needs for its positions."""
    write, read = (Operation.WRITE, Operation.DESCRIBE), (Operation.READ, Operation.DESCRIBE)
    positions = to_job(group)
    return (
        Need(
            Resource(Kind.TOPIC, positions.lanes_topic),
            (Operation.READ, *write),
            "records which lanes were initialised",
        ),
        Need(Resource(Kind.GROUP, group), read, "reads the positions, and commits them"),
        Need(Resource(Kind.TRANSACTIONAL_ID, positions.driver_transactional_id), write, "fences older drivers"),
        # The prefix ends with a slash: that of the bare group would also cover the lanes of a pipeline whose name
        # starts with this one's.
        Need(
            Resource(Kind.TRANSACTIONAL_ID, positions.lane_transactional_id_prefix, prefixed=True),
            write,
            "fences tasks, and moves positions",
        ),
    )


def marker_needs() -> tuple[Need, ...]:
    """The permissions that the job needs for markers on the sink's cluster.

    By the prefix, because no spec names the id of the source's cluster.
    """
    operations = (Operation.READ, Operation.DESCRIBE, Operation.CREATE, Operation.ALTER)
    why = "commits positions as offsets of empty topics, which it creates"
    return (Need(Resource(Kind.TOPIC, MARKER_PREFIX, prefixed=True), operations, why),)


def lag_needs(group: str) -> tuple[Need, ...]:
    """The permissions that the job needs for its copies of the positions on the source's cluster."""
    operations = (Operation.READ, Operation.DESCRIBE)
    return (Need(Resource(Kind.GROUP, f"{group}.lag"), operations, "copies the positions there for lag tools"),)


def _lag_consumer(group: str) -> Settings:
    """Settings of the consumer that commits copies of the positions. It consumes nothing, and nobody reads them."""
    return (
        Setting("group.id", f"{group}.lag", "not the group of the positions: these are copies that lag tools read"),
        Setting("enable.auto.commit", "false", "it commits what was read from the positions, and nothing else"),
    )


def _member(group: str) -> Settings:
    """Settings of the driver's membership in the group. It consumes nothing."""
    return (
        Setting("group.id", group, "positions are this group's committed offsets"),
        Setting(
            "group.instance.id",
            INSTANCE_ID,
            "the same for every driver: the coordinator refuses offsets of the driver that joined before (KIP-345)",
        ),
        Setting("enable.auto.commit", "false", "a position moves only in a transaction"),
        Setting(
            "topic.metadata.refresh.interval.ms",
            "-1",
            "never: a member that learns of new partitions joins again, and the coordinator refuses the running batch; "
            "the driver takes new partitions without that",
        ),
        Setting("session.timeout.ms", str(SESSION_TIMEOUT_MS), "the time after which a silent driver is no member"),
    )
