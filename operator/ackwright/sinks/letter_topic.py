"""A dead-letter topic: spec.sink.<name>.deadLetter of the sinks that have one, and what a sink outside Kafka adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from ackwright.api.checks import Broken, Cel, Validation
from ackwright.api.fields import About, Model
from ackwright.api.quantities import MaxFraction, TopicName
from ackwright.api.topic_names import not_reserved
from ackwright.planning.acls import Kind, Need, Operation, Resource
from ackwright.planning.guarantees import DEAD_LETTER_PRODUCER, values
from ackwright.sinks.base import ABOUT_MAX_FRACTION, MAX_FRACTION, DeadLetters, Section, Sink, SinkContext
from ackwright_stream.jobspec import DeadLetterTopic


class KeyedDeadLetter(Model):
    """spec.sink.<name>.deadLetter of a sink whose rows are not in Kafka."""

    topic: Annotated[
        TopicName,
        About(
            "The topic of the dead letters, on the brokers of the source, with cleanup.policy: compact. Several "
            "pipelines may share it."
        ),
    ]
    max_fraction: Annotated[MaxFraction, About(ABOUT_MAX_FRACTION)] = MAX_FRACTION


class SinkWithLetterTopic(Sink):
    """A sink whose rows and positions are not in Kafka, and whose dead letters are. It uses no other topic."""

    NAME: ClassVar[str]  # of the sink in the spec
    KEYED_DEAD_LETTERS = True

    dead_letter: Annotated[
        KeyedDeadLetter | None, About("Where malformed records go, with source.onMalformed: deadLetter.")
    ] = None

    @classmethod
    def validations(cls) -> tuple[Validation[SinkContext[Any]], ...]:
        return validations(cls.NAME)

    def topics(self) -> tuple[str, ...]:
        return (self.dead_letter.topic,) if self.dead_letter else ()

    @property
    def routed(self) -> bool:
        return False

    def dead_letters(self) -> DeadLetters | None:
        letters = self.dead_letter
        return (
            DeadLetters("topic", letters.topic, letters.max_fraction, path(self.NAME), keyed=True) if letters else None
        )

    def needs(self, group: str) -> tuple[Need, ...]:
        operations = (Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
        why = "writes dead letters, and reads the largest batch that it takes"
        return tuple(Need(Resource(Kind.TOPIC, topic), operations, why) for topic in self.topics())

    def sections(self, group: str) -> tuple[Section, ...]:
        section = Section("dead_letters.producer", "Producer of dead letters (librdkafka)", DEAD_LETTER_PRODUCER)
        return (section,) if self.dead_letter else ()

    @property
    def letters_of_job(self) -> DeadLetterTopic | None:
        """The part of the jobspec that is about them."""
        return to_job(self.dead_letter.topic) if self.dead_letter else None


def to_job(topic: str) -> DeadLetterTopic:
    """A dead-letter topic in the jobspec."""
    return DeadLetterTopic(topic, values(DEAD_LETTER_PRODUCER))


def path(sink: str) -> str:
    """The path of deadLetter in the spec. sink: the sink's name there."""
    return f"spec.sink.{sink}.deadLetter"


def validations(sink: str) -> tuple[Validation[SinkContext[Any]], ...]:
    """What the topic of a sink with this name must not be."""
    field, declared = f"{path(sink)}.topic", f"self.sink.{sink}.deadLetter"

    def is_source(context: SinkContext[Any]) -> Iterator[Broken]:
        letters = context.sink.dead_letters()
        if letters and letters.name in context.source_topics:
            yield Broken(field, letters.name)

    def names(context: SinkContext[Any]) -> Iterator[tuple[str, str]]:
        if letters := context.sink.dead_letters():
            yield field, letters.name

    return (
        Validation(
            "is also a source: each dead letter would be malformed again, forever",
            "choose another topic",
            ("spec.source.topics", path(sink)),
            is_source,
            cel=(
                Cel(
                    f"!has(self.sink.{sink}) || !has({declared}) || !({declared}.topic in self.source.topics)",
                    on="spec",
                    at=f".sink.{sink}.deadLetter.topic",
                ),
            ),
        ),
        *not_reserved((field,), (field,), names),
    )
