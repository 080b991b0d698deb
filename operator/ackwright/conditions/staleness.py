"""Conditions of an observation that is too old: nobody knows whether they still hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ackwright.api.status import seconds_since
from ackwright.reasons import ConditionReason

Object = Mapping[str, Any]

RENEWED_EVERY_S = 300.0  # while the operator observes a pipeline, its status says so at least this often
STALE_S = 900.0  # an older observation says nothing about the present; one renewal in between may fail


def as_known(resource: Object, now: datetime) -> Object:
    """The pipeline with the conditions that are known now: Unknown if it was last observed too long ago.

    A status without a readable time of its observation stays as it is: an earlier release wrote it.
    """
    status = resource.get("status") or {}
    observed_at = status.get("observedAt")
    try:
        stale = observed_at is not None and seconds_since(observed_at, now) > STALE_S
    except (TypeError, ValueError):
        return resource
    if not stale:
        return resource
    unknown = {
        "status": "Unknown",
        "reason": ConditionReason.NOT_OBSERVED.value,
        "message": f"the operator last observed this pipeline at {observed_at}; check that the operator runs",
    }
    return {**resource, "status": {**status, "conditions": [{**c, **unknown} for c in status.get("conditions", ())]}}
