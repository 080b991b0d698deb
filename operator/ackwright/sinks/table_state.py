"""What a sink that appends rows and replaces none must be like for a stateful pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ackwright.api.checks import Broken, Cel, Validation
from ackwright.planning.guarantees import Setting, Settings
from ackwright.sinks.base import SinkContext

# As `ackwright plan` prints where decisions are, of a table with versions.
DECISIONS: Settings = (
    Setting("decisions", "files beside the state", "the commit of a micro-batch names the one that counts"),
)


def validations(sink: str) -> tuple[Validation[SinkContext[Any]], ...]:
    """What a pipeline with the sink of this name must not declare."""

    def find(context: SinkContext[Any]) -> Iterator[Broken]:
        if context.output_mode == "update":
            yield Broken("spec.state.outputMode", context.output_mode)

    return (
        Validation(
            f"must be append with sink.{sink}, which adds rows and replaces none: update writes the groups that a "
            "micro-batch has changed again",
            "write append; GROUP BY then needs a window or the event time among its columns",
            ("spec.state.outputMode", "spec.sink"),
            find,
            cel=(
                Cel(
                    f"!has(self.state) || !has(self.sink.{sink}) || self.state.outputMode == 'append'",
                    on="spec",
                    at=".state.outputMode",
                ),
            ),
        ),
    )
