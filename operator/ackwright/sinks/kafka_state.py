"""What the sink kafka must be like for a stateful pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ackwright.api.checks import Broken, Cel, Validation
from ackwright.sinks.base import SinkContext

_PATH = "spec.sink.kafka"


def _refused(
    field: str, is_broken: Callable[[Any], bool], cel: str, message: str, remedy: str
) -> Validation[SinkContext[Any]]:
    """field: below spec.sink.kafka. is_broken: of the sink. cel: true of a sink that is right."""

    def find(context: SinkContext[Any]) -> Iterator[Broken]:
        if context.output_mode is not None and is_broken(context.sink):
            yield Broken(f"{_PATH}.{field}")

    expression = f"!has(self.state) || !has(self.sink.kafka) || {cel}"
    return Validation(
        message, remedy, ("spec.state", _PATH), find, cel=(Cel(expression, on="spec", at=f".sink.kafka.{field}"),)
    )


VALIDATIONS: tuple[Validation[SinkContext[Any]], ...] = (
    _refused(
        "preservePartition",
        lambda sink: sink.preserve_partition,
        "!self.sink.kafka.preservePartition",
        "cannot be true with state: the output of a group has no source partition",
        "remove it",
    ),
    _refused(
        "topic",
        lambda sink: sink.topic is None,
        "has(self.sink.kafka.topic)",
        "is required with state: a stateful transform cannot choose the topic of a record",
        "add the topic of the output",
    ),
)
