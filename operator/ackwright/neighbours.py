"""Pipelines that share something with another one: a consumer group, a topic. The watches tell of pipelines, reconcile asks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ackwright.api.spec import DeliveryPipeline
from ackwright.planning import declared

Key = tuple[str, str]  # namespace, name
Resource = Mapping[str, Any]
Share = tuple[str, str]  # of what kind, and its name


class Neighbours:
    """An index, so that a look does not go through all pipelines. Written by one thread, read by several."""

    def __init__(self) -> None:
        self._resources: dict[Key, Resource] = {}
        self._shares: dict[Key, frozenset[Share]] = {}
        self._sharers: dict[Share, set[Key]] = {}

    def saw(self, key: Key, resource: Resource) -> None:
        """A pipeline as it is now."""
        self._resources[key] = resource
        self._note(
            key,
            frozenset({("group", declared.group_of(resource)), *(("topic", t) for t in declared.topics_of(resource))}),
        )

    def left(self, key: Key) -> frozenset[Key]:
        """A pipeline is gone. Returns those that may have waited for that."""
        shares = self._shares.get(key, frozenset())
        self._note(key, frozenset())
        self._resources.pop(key, None)
        return frozenset(other for share in shares for other in self._sharers.get(share, ()))

    def owner_of_group(self, resource: Resource) -> str | None:
        """The older pipeline, if any, that has this one's positions already."""
        return declared.owner_of_group(resource, self._with([("group", declared.group_of(resource))]))

    def declared_before(self, resource: Resource, pipeline: DeliveryPipeline) -> dict[str, str]:
        """By topic, the older pipeline that declares it otherwise."""
        return declared.declared_before(resource, pipeline, self._with(("topic", t.name) for t in pipeline.spec.topics))

    def declared_elsewhere(self, resource: Resource) -> frozenset[str]:
        """Topics of this pipeline that another one declares as well."""
        return declared.declared_elsewhere(resource, self._with(("topic", t) for t in declared.topics_of(resource)))

    def _with(self, shares: Iterable[Share]) -> list[Resource]:
        keys = {key for share in shares for key in tuple(self._sharers.get(share, ()))}
        return [r for key in sorted(keys) if (r := self._resources.get(key))]

    def _note(self, key: Key, shares: frozenset[Share]) -> None:
        before = self._shares.pop(key, frozenset())
        for share in shares - before:
            self._sharers.setdefault(share, set()).add(key)
        for share in before - shares:
            self._sharers[share].discard(key)
            if not self._sharers[share]:
                del self._sharers[share]
        if shares:
            self._shares[key] = shares
