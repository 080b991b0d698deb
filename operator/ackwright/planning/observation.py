"""Everything that the next steps for a pipeline depend on. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ackwright.api.spec import DeliveryPipeline
from ackwright.api.status import Status, TopicStatus
from ackwright.errors import AckwrightError
from ackwright.planning.changes import Change
from ackwright.planning.clusters import ClusterRole, needed_topics, parts, recorded_on, role_of
from ackwright.planning.edits import Decision
from ackwright.planning.kafka_work import KafkaWork, combined, kafka_work
from ackwright.planning.observed import KafkaState, Workload
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.topic_records import RecordedTopics, topic_statuses
from ackwright_stream.reports import ProgressReport


@dataclass(frozen=True)
class Observation:
    """A pipeline with a valid spec, now or earlier, and its actual state."""

    pipeline: DeliveryPipeline  # of the spec in force: the present one, or an earlier one
    plan: DeliveryPlan
    generation: int | None  # of the present spec
    invalid: str | None  # what is wrong with the present spec; None: it is valid
    edit: tuple[Change, ...]  # differences from the last accepted spec
    decision: Decision  # the spec in force, and what happens to an edit
    status: Status  # before this reconcile
    workload: Workload
    progress: ProgressReport | None  # None: no driver answers
    # Of each Kafka cluster of the plan. The error: why it cannot be read.
    kafka: Mapping[ClusterRole, KafkaState | AckwrightError]
    recorded: RecordedTopics
    group_owner: str | None  # an older pipeline with the same consumer group
    credentials: str  # which Secrets the driver is to have
    stuck: bool  # the driver has lag and makes no progress
    expired: bool  # the change takes longer than it may
    heard: bool  # the present driver has reported its progress since the operator started
    unreachable: bool  # the present driver is ready, and has not reported for too long

    def kafka_work(self) -> KafkaWork:
        """What to do about Kafka."""
        return combined(
            kafka_work(part, needed_topics(part), state, recorded_on(self.plan, role, self.recorded), self.group_owner)
            for role, part, state in self.clusters()
        )

    def clusters(self) -> Iterator[tuple[ClusterRole, DeliveryPlan, KafkaState | AckwrightError]]:
        """Each Kafka cluster of the plan, with what the plan has on it and its state."""
        return ((role, part, self.kafka[role]) for role, part in parts(self.plan).items())

    def role_of(self, topic: str) -> ClusterRole:
        """Which cluster the topic is on, or was on before an edit."""
        return role_of(self.plan, topic, self.recorded)

    def may_start(self, work: KafkaWork) -> bool:
        """Whether a driver may be started, after the steps."""
        return all(work.may_start(part, state) for _, part, state in self.clusters())

    def topic_statuses(self, before: Sequence[TopicStatus], work: KafkaWork, *, done: bool) -> tuple[TopicStatus, ...]:
        """The topics for the status, before the steps (done False) or after.

        Those of a cluster whose state is not known are as `before`.
        """
        topics: list[TopicStatus] = []
        for role, part, state in self.clusters():
            earlier = [t for t in before if self.role_of(t.name) is role]
            if isinstance(state, AckwrightError):
                topics += earlier
            else:
                names = frozenset((*(t.name for t in part.topics), *needed_topics(part)))
                changed = topic_statuses(earlier, state, names, work.steps, work.replaced, done=done)
                cluster = role.value if self.plan.sink_connection else None
                topics += [t.model_copy(update={"cluster": cluster}) for t in changed]
        return tuple(topics)
