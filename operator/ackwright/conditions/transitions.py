"""From findings to conditions, and from conditions to Events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ackwright.api.status import Condition
from ackwright.conditions.findings import Finding
from ackwright.reasons import ConditionReason, consequences
from ackwright_stream.reasons import Reason

ORDER = ("Ready", "GuaranteeMet", "TopicsReady", "SchemasReady", "JobRunning", "Reconciling", "Stalled", "RolledBack")
# Only of a pipeline whose formats need a schema registry; only after a rollback.
_OPTIONAL = ("SchemasReady", "RolledBack")

_OF_THE_JOB = ("Ready", "GuaranteeMet", "JobRunning")  # the job runs by the earlier spec until an edit is complete


def merged(
    previous: Sequence[Condition], findings: Mapping[str, Finding], now: str, generation: int | None
) -> tuple[Condition, ...]:
    """The conditions in their fixed order.

    The time of a transition moves only with the status. now: RFC 3339, whole seconds.

    While an edit is being applied, or is refused, conditions of the job that are True describe the earlier spec: they
    keep its generation, because `kubectl wait` compares that.
    """
    before = {c.type: c for c in previous}
    unsettled = any(findings[kind].status == "True" for kind in ("Reconciling", "Stalled"))

    def observed(kind: str) -> int | None:
        known = before.get(kind)
        if known and unsettled and kind in _OF_THE_JOB and known.status == findings[kind].status == "True":
            return known.observed_generation
        return generation

    return tuple(
        Condition(
            type=kind,
            status=findings[kind].status,
            reason=findings[kind].reason.value,
            message=findings[kind].message[:4096],
            last_transition_time=before[kind].last_transition_time
            if kind in before and before[kind].status == findings[kind].status
            else now,
            observed_generation=observed(kind),
        )
        for kind in ORDER
        if kind in findings
    )


def never_valid(previous: Sequence[Condition], invalid: str, now: str, generation: int | None) -> tuple[Condition, ...]:
    """The conditions of a pipeline that never had a valid spec. invalid: what is wrong with the present one."""
    unknown = Finding("Unknown", Reason.INVALID_SPEC, "the spec has never been valid; nothing has been started")
    findings = {kind: unknown for kind in ORDER if kind not in _OPTIONAL} | {
        "Ready": Finding("False", Reason.INVALID_SPEC, invalid),
        "Stalled": Finding("True", Reason.INVALID_SPEC, invalid),
        "Reconciling": Finding("False", ConditionReason.STALLED, "see Stalled"),
    }
    return merged(previous, findings, now, generation)


def is_bad(condition: Condition) -> bool:
    """Whether the condition calls for a person's attention. A change that is under way does not."""
    effects = consequences(condition.reason)
    if condition.type == "TopicsReady" and effects.remark:
        return True
    return not effects.expected and condition.status == (
        "True" if condition.type in ("Stalled", "RolledBack") else "False"
    )


def transitions(previous: Sequence[Condition], present: Sequence[Condition]) -> tuple[Condition, ...]:
    """The conditions that are worth an Event: their status or reason has changed, and no other one says the same."""
    before = {c.type: (c.status, c.reason) for c in previous}
    changed = [c for c in present if before.get(c.type) != (c.status, c.reason)]
    ready = {c.reason for c in changed if c.type == "Ready"}
    news = [
        c
        for c in changed
        if c.type in ("Ready", "GuaranteeMet", "Stalled") or (c.type == "TopicsReady" and c.reason not in ready)
    ]
    creating = ("False", ConditionReason.CREATING)  # that topics exist after their creation is not worth an Event
    news = [c for c in news if c.type != "TopicsReady" or is_bad(c) or before.get(c.type) not in (None, creating)]
    return tuple(c for c in news if c.type in before or c.type == "Ready" or is_bad(c))
