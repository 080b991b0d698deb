"""The dead-letter topic of the sink kafka: spec.sink.kafka.deadLetter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from ackwright.api.checks import Broken, Cel, Validation
from ackwright.api.fields import About, Model
from ackwright.api.quantities import MaxFraction, TopicName
from ackwright.api.topic_names import not_reserved
from ackwright.planning.guarantees import DEAD_LETTER_PRODUCER, values
from ackwright.sinks.base import ABOUT_MAX_FRACTION, MAX_FRACTION, DeadLetters, Section, SinkContext
from ackwright_stream.jobspec import DeadLetterTopic

PATH = "spec.sink.kafka.deadLetter"
_TOPIC = f"{PATH}.topic"
_CEL = "!has(self.sink.kafka) || !has(self.sink.kafka.deadLetter) || "


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
        return DeadLetterTopic(self.topic, values(DEAD_LETTER_PRODUCER))

    @property
    def section(self) -> Section:
        """The settings in its part of the jobspec."""
        return Section("dead_letters.producer", "dead letters under at-least-once (librdkafka)", DEAD_LETTER_PRODUCER)


def _topic(context: SinkContext[Any]) -> str | None:
    return context.sink.dead_letter.topic if context.sink.dead_letter else None


def _is_source(context: SinkContext[Any]) -> Iterator[Broken]:
    if (topic := _topic(context)) in context.source_topics:
        yield Broken(_TOPIC, topic)


def _is_output(context: SinkContext[Any]) -> Iterator[Broken]:
    topic = _topic(context)
    if topic is not None and topic == context.sink.topic:
        yield Broken(_TOPIC, topic)


def _names(context: SinkContext[Any]) -> Iterator[tuple[str, str]]:
    topic = _topic(context)
    if topic is not None:
        yield _TOPIC, topic


VALIDATIONS: tuple[Validation[SinkContext[Any]], ...] = (
    Validation(
        "is also a source: each dead letter would be malformed again, forever",
        "choose another topic",
        ("spec.source.topics", PATH),
        _is_source,
        cel=(
            Cel(
                f"{_CEL}!(self.sink.kafka.deadLetter.topic in self.source.topics)",
                on="spec",
                at=".sink.kafka.deadLetter.topic",
            ),
        ),
    ),
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
    *not_reserved((_TOPIC,), (_TOPIC,), _names),
)
