"""Names of topics that a pipeline must not use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ackwright.api.checks import Broken, Cel, Validation

T = TypeVar("T")

# The compacted topic that records which lanes were initialised.
LANES_TOPIC = "ackwright-lanes"
# The compacted topic of the decisions of stateful pipelines.
DECISIONS_TOPIC = "ackwright-decisions"
# Of the empty topics that carry positions, on a cluster that is not the source's.
MARKER_PREFIX = "ackwright."


def not_reserved(
    reads: Sequence[str], nodes: Sequence[str], names: Callable[[T], Iterable[tuple[str, str]]]
) -> tuple[Validation[T], ...]:
    """Validations that refuse names of topics that belong to Kafka or to Ackwright.

    nodes: the paths of the schema nodes that hold a name.
    names: from what is validated to the names, each with the path of its field.
    """

    def validation(owner: str, is_reserved: Callable[[str], bool], expression: str) -> Validation[T]:
        def find(subject: T) -> Iterator[Broken]:
            return (Broken(field, name) for field, name in names(subject) if is_reserved(name))

        return Validation(
            f"is a topic of {owner}'s own",
            "choose another topic",
            tuple(reads),
            find,
            cel=tuple(Cel(expression, on=node) for node in nodes),
        )

    return (
        validation("Kafka", lambda name: name.startswith("__"), "!self.startsWith('__')"),
        validation(
            "Ackwright",
            lambda name: name in (LANES_TOPIC, DECISIONS_TOPIC) or name.startswith(MARKER_PREFIX),
            f"self != '{LANES_TOPIC}' && self != '{DECISIONS_TOPIC}' && !self.startsWith('{MARKER_PREFIX}')",
        ),
    )
