"""An index of pipelines by what they share: a consumer group, a topic.

The watches update it, reconcile reads it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ackwright.api.spec import DeliveryPipeline
from ackwright.planning import declared
from ackwright.planning.policy import Policy

Key = tuple[str, str]  # namespace, name
Resource = Mapping[str, Any]
Share = tuple[str, str]  # the kind of what is shared, and its name


class PipelineIndex:
    """Finds the other pipelines that share something with one, without a search through all.

    One thread writes, several read.
    """

    def __init__(self, policy: Policy = Policy()) -> None:  # noqa: B008 (frozen)
        """policy: what it refuses of a pipeline neither owns a group nor decides about a topic."""
        self._policy = policy
        self._resources: dict[Key, Resource] = {}
        self._shares: dict[Key, frozenset[Share]] = {}
        self._sharers: dict[Share, set[Key]] = {}

    def update(self, key: Key, resource: Resource) -> None:
        """Adds a pipeline, or replaces its entry."""
        self._resources[key] = resource
        self._set_shares(key, declared.shares(resource))

    def remove(self, key: Key) -> frozenset[Key]:
        """Removes a pipeline. Returns those that shared something with it, and may have waited for that."""
        shares = self._shares.get(key, frozenset())
        self._set_shares(key, frozenset())
        self._resources.pop(key, None)
        return frozenset(other for share in shares for other in self._sharers.get(share, ()))

    def group_owner(self, resource: Resource) -> str | None:
        """The older pipeline with the same consumer group; None: none. resource: with the spec that is judged."""
        return declared.group_owner(resource, self._sharing([("group", declared.group_of(resource))]), self._policy)

    def conflicting_declarations(self, resource: Resource, pipeline: DeliveryPipeline) -> dict[str, str]:
        """By topic, the oldest pipeline that declares it, if it does so differently."""
        others = self._sharing(("topic", t.name) for t in pipeline.spec.topics)
        return declared.conflicting_declarations(resource, pipeline, others, self._policy)

    def shared_topics(self, resource: Resource) -> frozenset[str]:
        """Topics of this pipeline that another pipeline declares too."""
        return declared.shared_topics(resource, self._sharing(declared.shares(resource)))

    def _sharing(self, shares: Iterable[Share]) -> list[Resource]:
        keys = {key for share in shares for key in tuple(self._sharers.get(share, ()))}
        return [r for key in sorted(keys) if (r := self._resources.get(key))]

    def _set_shares(self, key: Key, shares: frozenset[Share]) -> None:
        before = self._shares.pop(key, frozenset())
        for share in shares - before:
            self._sharers.setdefault(share, set()).add(key)
        for share in before - shares:
            self._sharers[share].discard(key)
            if not self._sharers[share]:
                del self._sharers[share]
        if shares:
            self._shares[key] = shares
