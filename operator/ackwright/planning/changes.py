"""What an edit of a spec takes: which fields differ, and whether the running job notices. Pure.

An edit that a pipeline cannot survive is refused when it is applied (the CRD's transition rules); here it is named as well, for whoever
asks before applying. What renders to the same job restarts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ackwright.api.quantities import size_kib
from ackwright.api.spec import GIVEN_UP_ANNOTATION, DeliveryPipeline


class ChangeClass(StrEnum):
    """In rising order of what it takes."""

    LIVE = "live"  # the job runs on
    RESTART = "restart"  # the job drains, and its successor goes on from the positions
    NEW_STATE = "new state"  # what was kept does not fit any more
    IMMUTABLE = "immutable"  # refused: make another pipeline


@dataclass(frozen=True)
class Change:
    field: str
    before: object
    after: object
    change: ChangeClass
    why: str

    def __str__(self) -> str:
        return f"{self.field}: {_shown(self.before)} → {_shown(self.after)} ({self.change})"


# By path; the longest that fits counts. Whatever goes into the job's configuration or its pod is a restart.
CLASSES: Mapping[str, tuple[ChangeClass, str]] = {
    "metadata": (ChangeClass.LIVE, "labels and annotations are the user's own"),
    f"metadata.annotations.{GIVEN_UP_ANNOTATION}": (ChangeClass.RESTART, "the driver begins the topic anew"),
    "metadata.name": (ChangeClass.IMMUTABLE, "another name is another pipeline, with positions of its own"),
    "metadata.namespace": (ChangeClass.IMMUTABLE, "another namespace is another pipeline, with positions of its own"),
    "spec.guarantee": (
        ChangeClass.RESTART,
        "positions mean the same under each guarantee; the next driver takes the lanes over",
    ),
    "spec.tolerate": (ChangeClass.LIVE, "decides about the topics alone"),
    "spec.kafka": (
        ChangeClass.RESTART,
        "new connections; it must be the same Kafka cluster, or its positions are not there",
    ),
    "spec.source": (ChangeClass.RESTART, "the query is another one; it goes on from the positions"),
    "spec.source.groupId": (
        ChangeClass.IMMUTABLE,
        "positions belong to the group: under another one everything would be delivered again",
    ),
    "spec.transform": (ChangeClass.RESTART, "records behind the positions are not transformed again"),
    "spec.sink": (ChangeClass.RESTART, "records behind the positions are not written again"),
    "spec.topics": (ChangeClass.LIVE, "topics are changed while the job runs"),
    "spec.trigger": (ChangeClass.RESTART, "the query is another one"),
    "spec.checkpoint": (
        ChangeClass.RESTART,
        "positions are in Kafka; a stateless pipeline's checkpoint holds nothing that is needed",
    ),
    "spec.checkpoint.volume.size": (ChangeClass.LIVE, "the volume grows, if its storage class allows that"),
    "spec.checkpoint.volume.storageClassName": (ChangeClass.IMMUTABLE, "a volume cannot change its class"),
    "spec.spark": (ChangeClass.RESTART, "the pods are other ones"),
    "spec.suspend": (ChangeClass.LIVE, "the driver drains and goes, or comes back"),
}


def changes(before: DeliveryPipeline, after: DeliveryPipeline) -> tuple[Change, ...]:
    """Every field that differs, in the order of its path."""
    return tuple(_differences("", _plain(before), _plain(after)))


def most(found: Sequence[Change]) -> ChangeClass | None:
    """What they take together, None if there is none."""
    return max((c.change for c in found), key=list(ChangeClass).index, default=None)


def left_alone(before: DeliveryPipeline, after: DeliveryPipeline) -> DeliveryPipeline:
    """What is in the cluster, without the labels and annotations that a file does not name: applying the file leaves those as they are."""
    meta = before.metadata
    kept = {
        name: {k: v for k, v in getattr(meta, name).items() if k in getattr(after.metadata, name)}
        for name in ("labels", "annotations")
    }
    return before.model_copy(update={"metadata": meta.model_copy(update=kept)})


def _plain(pipeline: DeliveryPipeline) -> dict[str, Any]:
    found: dict[str, Any] = pipeline.model_dump(mode="json", by_alias=True, exclude_none=True)
    found["spec"]["topics"] = {t["name"]: t for t in found["spec"].get("topics", ())}
    return found


def _differences(path: str, before: Any, after: Any) -> Iterator[Change]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in [*before, *(n for n in after if n not in before)]:
            yield from _differences(f"{path}.{name}" if path else name, before.get(name), after.get(name))
    elif before != after:
        yield Change(path, before, after, *(_shrinking(path, before, after) or _class(path)))


def _shrinking(path: str, before: Any, after: Any) -> tuple[ChangeClass, str] | None:
    """What can become more and not less."""
    if path.endswith(".partitions") and isinstance(before, int) and isinstance(after, int) and after < before:
        return ChangeClass.IMMUTABLE, "Kafka cannot take partitions away from a topic"
    if path == "spec.checkpoint.volume.size" and size_kib(after) < size_kib(before):
        return ChangeClass.IMMUTABLE, "a volume cannot shrink"
    return None


def _class(path: str) -> tuple[ChangeClass, str]:
    fitting = [p for p in CLASSES if path == p or path.startswith(f"{p}.")]
    return CLASSES[max(fitting, key=len)]


def _shown(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
