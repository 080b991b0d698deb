"""Everything that the next steps for a pipeline depend on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ackwright.api.spec import DeliveryPipeline
from ackwright.api.status import Accepted, Status, TopicStatus
from ackwright.errors import AckwrightError
from ackwright.planning.changes import Change
from ackwright.planning.declared import needed_topics
from ackwright.planning.kafka_work import KafkaWork, kafka_work
from ackwright.planning.observed import KafkaState, Workload
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.topic_records import RecordedTopics, topic_statuses
from ackwright_stream.reports import ProgressReport


@dataclass(frozen=True)
class Observation:
    """A pipeline with a valid spec, now or earlier, and its actual state."""

    pipeline: DeliveryPipeline  # of the present spec, or of the last valid one
    plan: DeliveryPlan
    generation: int | None  # of the present spec
    invalid: str | None  # what is wrong with the present spec; None: it is valid
    edit: tuple[Change, ...]  # differences from the last accepted spec
    accepted: Accepted | None  # the last valid spec
    status: Status  # before this reconcile
    workload: Workload
    progress: ProgressReport | None  # None: no driver answers
    kafka: KafkaState | AckwrightError  # the error: why Kafka cannot be read
    recorded: RecordedTopics
    group_owner: str | None  # an older pipeline with the same consumer group
    credentials: str  # which Secrets the driver is to have
    stuck: bool  # the driver has lag and makes no progress
    expired: bool  # the change takes longer than it may

    def kafka_work(self) -> KafkaWork:
        """What to do about Kafka."""
        return kafka_work(self.plan, needed_topics(self.pipeline), self.kafka, self.recorded, self.group_owner)

    def topic_statuses(self, before: Sequence[TopicStatus], work: KafkaWork, *, done: bool) -> tuple[TopicStatus, ...]:
        """The topics for the status, before the steps (done False) or after; `before` without Kafka's state."""
        if isinstance(self.kafka, AckwrightError):
            return tuple(before)
        names = frozenset((*(t.name for t in self.plan.topics), *needed_topics(self.pipeline)))
        return topic_statuses(before, self.kafka, names, work.steps, work.replaced, done=done)
