"""Which of the audit's counts break which guarantee."""

from __future__ import annotations

import json

import pytest

from ackwright_stream.audit import Report, text
from ackwright_stream.audit_compare import Offending
from ackwright_stream.jobspec import Guarantee

NO_FAULTS = {"lost": 0, "duplicated": 0, "unexpected": 0, "out_of_order": 0}
ALLOWED = {
    Guarantee.EXACTLY_ONCE: set(),
    Guarantee.AT_LEAST_ONCE: {"duplicated", "out_of_order"},
    Guarantee.AT_MOST_ONCE: {"lost", "out_of_order"},
}


def report(guarantee: Guarantee, **counts: int) -> Report:
    shown = tuple(Offending(kind, "out", None, "x", n, "out-0@3") for kind, n in counts.items())
    return Report(
        guarantee=guarantee,
        sent=3,
        expected=3,
        delivered=3,
        malformed=0,
        unjudged=0,
        lanes={},
        offending=shown,
        notes=(),
        **{**NO_FAULTS, **counts},
    )


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_what_breaks_a_guarantee(guarantee: Guarantee) -> None:
    assert report(guarantee).guarantee_held
    broken_by = {fault for fault in NO_FAULTS if not report(guarantee, **{fault: 1}).guarantee_held}
    assert broken_by == set(NO_FAULTS) - ALLOWED[guarantee]


def test_both_forms_say_the_same() -> None:
    broken = report(Guarantee.EXACTLY_ONCE, lost=2)
    document = json.loads(json.dumps(broken.document()))
    assert (document["guaranteeHeld"], document["lost"], document["outOfOrder"]) == (False, 2, 0)
    assert document["offending"] == [
        {"kind": "lost", "topic": "out", "key": None, "value": "x", "count": 2, "where": "out-0@3"}
    ]
    assert text(broken).startswith("exactly-once: BROKEN\n")
    assert "lost: 2 x topic out" in text(broken)
