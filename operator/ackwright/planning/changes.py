"""What an edit of a spec takes: which fields differ, and whether the running job notices. Pure.

The classes come from the fields' declarations (ackwright.api.resource). The API server refuses an edit that a pipeline
cannot survive; here it is shown before anything is applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ackwright.api.fields import ChangeClass, change_of
from ackwright.api.spec import DeliveryPipeline
from ackwright_stream.jobspec import DEFAULT_TIME_ZONE, TIME_ZONE


@dataclass(frozen=True)
class Change:
    """One field that differs."""

    # Its path; an entry of spec.topics is named instead of numbered.
    field: str
    # None: the field is absent.
    before: object
    after: object
    change: ChangeClass
    # Why it takes that.
    why: str

    def __str__(self) -> str:
        return f"{self.field}: {_shown(self.before)} → {_shown(self.after)} ({self.change})"


# What computes the state of a stateful pipeline, beside the fields that only such a pipeline has.
_COMPUTES_STATE = ("spec.transform", "spec.source.format", "spec.source.schema", "spec.source.subject")
_TIME_ZONE = ("spec", "spark", "conf", TIME_ZONE)


def changes(before: DeliveryPipeline, after: DeliveryPipeline) -> tuple[Change, ...]:
    """Every field that differs, in the order of the models."""
    stateful = before.spec.state is not None and after.spec.state is not None
    other_zone = stateful and _time_zone(before) != _time_zone(after)
    return tuple(
        Change(".".join(path), old, new, *_takes(type(after), path, old, new, stateful=stateful, other_zone=other_zone))
        for path, old, new in _differences((), _plain(before), _plain(after))
    )


def _takes(
    model: type[DeliveryPipeline],
    path: tuple[str, ...],
    before: object,
    after: object,
    *,
    stateful: bool,
    other_zone: bool,
) -> tuple[ChangeClass, str]:
    """What the change of one field takes, and why.

    stateful: whether the pipeline has state and keeps it. other_zone: whether it would continue in another time zone.
    """
    name = ".".join(path)
    if stateful and any(name == field or name.startswith(f"{field}.") for field in _COMPUTES_STATE):
        return ChangeClass.NEW_STATE, "the stored state is of the other query"
    # All settings of Spark are one difference if one of both specs has none.
    if other_zone and path == _TIME_ZONE[: len(path)]:
        return ChangeClass.NEW_STATE, "the stored state is of another time zone"
    if stateful and name == "spec.source.topics" and not set(_names(before)) <= set(_names(after)):
        return ChangeClass.NEW_STATE, "the stored state has records of a topic that is removed"
    return change_of(model, path, before, after)


def _time_zone(pipeline: DeliveryPipeline) -> str:
    return pipeline.spec.spark.conf.get(TIME_ZONE, DEFAULT_TIME_ZONE)


def _names(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


def largest_effect(edits: Sequence[Change]) -> ChangeClass | None:
    """The largest effect of the changes; None if there is none."""
    return max((edit.change for edit in edits), key=list(ChangeClass).index, default=None)


def left_alone(before: DeliveryPipeline, after: DeliveryPipeline) -> DeliveryPipeline:
    """The pipeline before, without the labels and annotations that applying the one after would keep."""
    meta = before.metadata
    named = {
        name: {key: value for key, value in getattr(meta, name).items() if key in getattr(after.metadata, name)}
        for name in ("labels", "annotations")
    }
    return before.model_copy(update={"metadata": meta.model_copy(update=named)})


def _plain(pipeline: DeliveryPipeline) -> dict[str, Any]:
    """The pipeline as JSON values, its topics by name."""
    document: dict[str, Any] = pipeline.model_dump(mode="json", by_alias=True, exclude_none=True)
    document["spec"]["topics"] = {topic["name"]: topic for topic in document["spec"].get("topics", ())}
    return document


def _differences(path: tuple[str, ...], before: Any, after: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from _differences((*path, name), before.get(name), after.get(name))
    elif before != after:
        yield path, before, after


def _shown(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
