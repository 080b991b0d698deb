"""Where the console's pipelines come from: the interface, and a recorded state in a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ackwright.console.views import Details, Object
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason

JSON = dict[str, Any]


@dataclass(frozen=True)
class Listing:
    """All pipelines at one moment."""

    resources: Sequence[Object]
    problem: str | None = None  # why they may be out of date; None: they are current


class Source(Protocol):
    """What the console reads. Its methods are called by several threads."""

    @property
    def kind(self) -> str:
        """Cluster, recorded or local."""

    @property
    def title(self) -> str:
        """Which cluster and namespace, which file, or which command."""

    @property
    def at(self) -> str | None:
        """When the state was recorded; None: it is the present one."""

    def pipelines(self) -> Listing: ...

    def details(self, namespace: str, name: str) -> tuple[Object, Details] | None:
        """The resource and what belongs to it; None if it does not exist. Raises AckwrightError."""

    def activity(self, after: int) -> JSON | None:
        """What has happened after the entry with this number; None: the source does not report it."""


class RecordedSource:
    """A state that `ackwright console --record` has written. Raises AckwrightError if the file has none."""

    kind = "recorded"

    def __init__(self, path: Path) -> None:
        try:
            state = json.loads(path.read_text())
            self.at = str(state["at"])
            self.title = f"{path.name}, recorded from {state['title']} at {state['at']}"
            self._resources: list[Object] = [_with_name(r) for r in state["resources"]]
            self._details = {key: Details.of_json(d) for key, d in state.get("details", {}).items()}
        except OSError as e:
            raise AckwrightError(
                Reason.FILE_UNREADABLE, f"{path}: the state cannot be read ({e.strerror}); check the path after --state"
            ) from e
        except (ValueError, LookupError, TypeError, AttributeError) as e:
            raise AckwrightError(
                Reason.INVALID_SPEC,
                f"{path}: this is no recorded state ({type(e).__name__}: {e}); write one with `console --record`",
            ) from e

    def pipelines(self) -> Listing:
        return Listing(self._resources)

    def details(self, namespace: str, name: str) -> tuple[Object, Details] | None:
        for resource in self._resources:
            if key(resource) == f"{namespace}/{name}":
                return resource, self._details.get(
                    key(resource), Details(missing=("nothing beside the resource was recorded",))
                )
        return None

    def activity(self, after: int) -> JSON | None:
        return None


def _with_name(resource: Object) -> Object:
    key(resource)
    return resource


def key(resource: Object) -> str:
    """namespace/name of a resource."""
    return f"{resource['metadata']['namespace']}/{resource['metadata']['name']}"


def record(source: Source, at: str) -> JSON:
    """Everything that the source has now, as RecordedSource reads it. at: the present time, as text."""
    resources = source.pipelines().resources
    return {
        "title": source.title,
        "at": at,
        "resources": [dict(r) for r in resources],
        "details": dict(_recorded_details(source, resources)),
    }


def _recorded_details(source: Source, resources: Iterable[Object]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for resource in resources:
        meta = resource["metadata"]
        read = source.details(meta["namespace"], meta["name"])
        if read:
            yield key(resource), read[1].as_json()
