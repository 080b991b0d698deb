"""Which of the audit's counts break which guarantee, and which leave it unproven."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ackwright_stream.audit_report import Offending, Report, text
from ackwright_stream.jobspec import ExitCode, Guarantee
from ackwright_stream.reports import Verdict

NO_FAULTS = {"lost": 0, "duplicated": 0, "unexpected": 0, "misplaced": 0, "out_of_order": 0}
UNKNOWN = {"missing": 0, "unjudged": 0}
ALLOWED = {
    Guarantee.EXACTLY_ONCE: set(),
    Guarantee.AT_LEAST_ONCE: {"duplicated", "out_of_order"},
    Guarantee.AT_MOST_ONCE: {"lost", "out_of_order"},
}


def report(guarantee: Guarantee, *doubts: str, **counts: int) -> Report:
    shown = tuple(Offending(kind, "out", None, "x", n, "out-0@3") for kind, n in counts.items())
    return Report(
        guarantee=guarantee,
        sent=3,
        counted=3,
        expected=3,
        delivered=3,
        malformed=0,
        dead_letters=0,
        lanes={"in-0": {"from": 0, "position": 3}},
        unjudged_lanes=("in-0",) if doubts else (),
        offending=shown,
        doubts=doubts,
        notes=("a limit",),
        **{**NO_FAULTS, **UNKNOWN, **counts},
    )


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_what_breaks_a_guarantee(guarantee: Guarantee) -> None:
    assert report(guarantee).verdict is Verdict.HELD
    verdicts = {fault: report(guarantee, **{fault: 1}).verdict for fault in NO_FAULTS}
    assert {fault for fault, verdict in verdicts.items() if verdict is Verdict.BROKEN} == set(NO_FAULTS) - ALLOWED[
        guarantee
    ]
    assert {verdict for fault, verdict in verdicts.items() if fault in ALLOWED[guarantee]} <= {Verdict.HELD}


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_what_cannot_be_judged_leaves_it_unproven_unless_a_fault_is_certain(guarantee: Guarantee) -> None:
    assert report(guarantee, "records are gone").verdict is Verdict.UNPROVEN
    for count in UNKNOWN:
        assert report(guarantee, **{count: 1}).verdict is Verdict.UNPROVEN
    certain = {"lost", "duplicated"} - ALLOWED[guarantee]
    for fault in certain:
        assert report(guarantee, "records are gone", **{fault: 1, "unjudged": 1}).verdict is Verdict.BROKEN


def test_each_verdict_has_an_exit_code_and_several_reports_have_the_worst() -> None:
    codes = {verdict: verdict.exit_code for verdict in Verdict}
    assert codes == {
        Verdict.HELD: ExitCode.OK,
        Verdict.UNPROVEN: ExitCode.UNPROVEN,
        Verdict.BROKEN: ExitCode.FAILED,
    }
    assert Verdict.worst([Verdict.HELD, Verdict.UNPROVEN]) is Verdict.UNPROVEN
    assert Verdict.worst([Verdict.BROKEN, Verdict.UNPROVEN]) is Verdict.BROKEN
    assert Verdict.worst([]) is Verdict.HELD


@pytest.mark.parametrize("counted", ["sent", "counted", "expected", "delivered", "dead_letters"])
def test_over_no_records_nothing_was_there_to_judge(counted: str) -> None:
    empty = replace(report(Guarantee.EXACTLY_ONCE), sent=0, counted=0, expected=0, delivered=0)
    assert text(empty).startswith("exactly-once: held, over no records: nothing was there to judge\n")
    assert empty.verdict is Verdict.HELD, "nothing was left unjudged"
    one = text(replace(empty, **{counted: 1}))  # type: ignore[arg-type]
    assert one.startswith("exactly-once: held\n")


def test_both_forms_say_the_same() -> None:
    broken = report(Guarantee.EXACTLY_ONCE, lost=2)
    document = json.loads(json.dumps(broken.document()))
    assert (document["verdict"], document["guaranteeHeld"]) == ("broken", False)
    assert (document["lost"], document["outOfOrder"]) == (2, 0)
    assert document["offending"] == [
        {"kind": "lost", "topic": "out", "key": None, "value": "x", "count": 2, "where": "out-0@3"}
    ]
    assert text(broken).startswith("exactly-once: BROKEN\n")
    assert "lost: 2 x topic out" in text(broken)


@pytest.mark.parametrize("doubts", [(), ("in-0: records are gone",)])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_report_is_read_as_it_was_written(guarantee: Guarantee, doubts: tuple[str, ...]) -> None:
    written = report(guarantee, *doubts, lost=1, out_of_order=2)
    assert Report.of_document(json.loads(json.dumps(written.document()))) == written


@pytest.mark.parametrize("field", ["guarantee", "sent", "outOfOrder", "lanes", "offending", "doubts", "notes"])
def test_a_document_that_lacks_a_field_is_no_report(field: str) -> None:
    document = report(Guarantee.EXACTLY_ONCE).document()
    del document[field]
    with pytest.raises(KeyError):
        Report.of_document(document)


def test_an_unproven_guarantee_has_not_held_and_both_forms_say_why() -> None:
    unproven = report(Guarantee.EXACTLY_ONCE, "in-0: records are gone")
    document = json.loads(json.dumps(unproven.document()))
    assert (document["verdict"], document["guaranteeHeld"]) == ("unproven", False)
    assert document["unjudgedLanes"] == ["in-0"]
    assert document["doubts"] == ["in-0: records are gone"]
    assert document["notes"] == ["in-0: records are gone", "a limit"]
    assert text(unproven).startswith("exactly-once: UNPROVEN\n")
    assert "not judged: in-0: records are gone\n  note: a limit\n" in text(unproven)
