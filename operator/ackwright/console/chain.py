"""The chain of a plan, and the plan of a text, as JSON values. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ackwright.api.document import of_text
from ackwright.api.spec import DeliveryPipeline
from ackwright.errors import InvalidSpec, Violation
from ackwright.planning.chain import chain
from ackwright.planning.changes import changes, largest_effect, left_alone
from ackwright.planning.plan import DeliveryPlan, judged
from ackwright.planning.summary import summary
from ackwright.sinks.base import Link

View = dict[str, Any]

_TEXT = Path("pipeline.yaml")  # the name of the text in messages


def chain_view(plan: DeliveryPlan) -> View:
    """The links from the upstream producer to the downstream consumer, and what the guarantee promises."""
    links, promise = chain(plan), plan.promise
    return {
        "afterACrash": promise.after_a_crash,
        "position": promise.position,
        "readerHasTo": promise.reader,
        "links": [_link(link, link is links.weakest) for link in links.links],
    }


def _link(link: Link, weakest: bool) -> View:
    return {
        "name": link.name,
        "subject": link.subject,
        "caveat": link.caveat,
        "weakest": weakest,
        "settings": [asdict(s) for s in link.settings],
    }


def plan_view(text: str, before: DeliveryPipeline | None = None) -> View:
    """What `ackwright plan` says of a text: summary, chain and warnings, or all errors with line and column.

    before: the pipeline that the text edits; None: it is new.
    """
    try:
        pipeline, plan, warnings = judged(of_text(_TEXT, text))
    except InvalidSpec as e:
        return {"errors": _violations(e.violations)}
    return {
        "errors": [],
        "warnings": _violations(warnings),
        "summary": asdict(summary(plan)),
        "chain": chain_view(plan),
        "edit": None if before is None else _edit(before, pipeline),
    }


def _edit(before: DeliveryPipeline, after: DeliveryPipeline) -> View:
    if (before.metadata.namespace, before.metadata.name) != (after.metadata.namespace, after.metadata.name):
        return {"takes": None, "changes": [], "other": f"{before.metadata.namespace}/{before.metadata.name}"}
    differences = changes(left_alone(before, after), after)
    effect = largest_effect(differences)
    return {
        "takes": effect.value if effect else None,
        "changes": [
            {
                "field": c.field,
                "before": None if c.before is None else str(c.before),
                "after": None if c.after is None else str(c.after),
                "effect": c.change.value,
                "why": c.why,
            }
            for c in differences
        ],
    }


def _violations(violations: Iterable[Violation]) -> list[View]:
    return [
        {
            "line": v.place.line if v.place else None,
            "column": v.place.column if v.place else None,
            "reason": str(v.reason),
            "message": str(v),
        }
        for v in sorted(violations, key=lambda v: (v.place.line, v.place.column) if v.place else (0, 0))
    ]
