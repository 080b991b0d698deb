"""The fields of the resource that describe a stateful pipeline: its event time, and how it keeps its state."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ackwright.api.fields import About, ChangeClass, Model
from ackwright.api.quantities import Duration, Line


class EventTime(Model):
    """spec.source.eventTime."""

    column: Annotated[Line, About("The column of the view `source` with the time of the event, a TIMESTAMP.")]
    watermark: Annotated[
        Duration,
        About(
            "How late a record may come: 10s, 5m. Windows that ended so long before the newest event are complete, and "
            "later records for them are dropped and counted.",
            ChangeClass.RESTART,
            "later micro-batches move the watermark by the new value, and it never moves back",
        ),
    ]


class State(Model):
    """spec.state."""

    partitions: Annotated[
        Annotated[int, Field(strict=True, ge=1, le=1_000)],
        About("The number of partitions of the state, and so of the tasks that update it."),
    ] = 4
    output_mode: Annotated[
        Literal["append", "update"],
        About(
            "append: a window is written once, when the watermark has passed its end, and a record of dropDuplicates "
            "at once. update: each micro-batch writes the groups that it has changed."
        ),
    ] = "append"
