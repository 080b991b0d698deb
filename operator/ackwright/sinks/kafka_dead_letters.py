"""The dead-letter topic of the sink kafka: spec.sink.kafka.deadLetter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from ackwright.api.checks import Broken, Cel, Validation
from ackwright.api.fields import About, Model
from ackwright.api.quantities import MaxFraction, TopicName
from ackwright.planning.guarantees import DEAD_LETTER_PRODUCER
from ackwright.sinks import letter_topic
from ackwright.sinks.base import ABOUT_MAX_FRACTION, MAX_FRACTION, DeadLetters, Section, SinkContext
from ackwright_stream.jobspec import DeadLetterTopic

PATH = letter_topic.path("kafka")
_TOPIC = f"{PATH}.topic"


class KafkaDeadLetter(Model):
    """spec.sink.kafka.deadLetter."""

    topic: Annotated[
        TopicName,
        About("The topic of the dead letters, on the brokers of the output. Several pipelines may share it."),
    ]
    max_fraction: Annotated[MaxFraction, About(ABOUT_MAX_FRACTION)] = MAX_FRACTION

    @property
    def declared(self) -> DeadLetters:
        """As Sink.dead_letters()."""
        return DeadLetters("topic", self.topic, self.max_fraction, PATH)

    def to_job(self) -> DeadLetterTopic:
        """Its part of the jobspec."""
        return letter_topic.to_job(self.topic)

    @property
    def section(self) -> Section:
        """The settings in its part of the jobspec."""
        return Section("dead_letters.producer", "dead letters under at-least-once (librdkafka)", DEAD_LETTER_PRODUCER)


def _topic(context: SinkContext[Any]) -> str | None:
    return context.sink.dead_letter.topic if context.sink.dead_letter else None


def _is_output(context: SinkContext[Any]) -> Iterator[Broken]:
    topic = _topic(context)
    if topic is not None and topic == context.sink.topic:
        yield Broken(_TOPIC, topic)


VALIDATIONS: tuple[Validation[SinkContext[Any]], ...] = (
    *letter_topic.validations("kafka"),
    Validation(
        "is also the topic of the output: its readers would get malformed records",
        "choose another topic",
        ("spec.sink.kafka.topic", PATH),
        _is_output,
        cel=(
            Cel(
                "!has(self.deadLetter) || !has(self.topic) || self.deadLetter.topic != self.topic",
                on="spec.sink.kafka",
                at=".deadLetter.topic",
            ),
        ),
    ),
)
