"""ackwright audit: what remains when it is stopped, and the reason it gives for a pod without a report."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from ackwright.cli.audit import _COUNTS, _job, _report_of
from ackwright.cli.main import invoke
from ackwright.cli.target import Target
from ackwright.errors import AckwrightError
from ackwright.local.wait import wait_for
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import ExitCode, Guarantee, JobSpec, Reason
from ackwright_stream.reports import Ending, Failure

EXAMPLE = Path(__file__).parents[3] / "examples" / "delayed-flights-exactly-once.yaml"
WINDOWS = EXAMPLE.parent / "windowed-counts" / "pipeline.yaml"
REPORT = Report(
    guarantee=Guarantee.EXACTLY_ONCE,
    lanes={"in-0": {"from": 0, "position": 3}},
    unjudged_lanes=(),
    offending=(),
    doubts=(),
    notes=("a limit",),
    **{name: 0 for name, kind in Report.__annotations__.items() if kind == "int"}
    | {"sent": 1, "counted": 1, "expected": 1, "delivered": 1},
)
NOTHING: dict[str, Any] = {"sent": 0, "counted": 0, "expected": 0, "delivered": 0}
# The audit prints where it may write, and waits.
AUDITS = """
import sys, time
from ackwright.cli import audit, main

def audited(jobs, place, watch, routes):
    (place / "shuffled").write_text("records")
    print(place, flush=True)
    time.sleep(600)

audit.spark_settings = lambda place: {}
audit.audited = audited
sys.exit(main.invoke(["audit", "-f", sys.argv[1]]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_records_do_not_stay_behind_when_it_is_stopped(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", AUDITS, str(EXAMPLE)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        place = Path(process.stdout.readline().strip())
        assert (place / "shuffled").exists()
        process.send_signal(number)
        process.wait(30)
        wait_for(lambda: not place.exists(), f"{place} is gone", 30)
    finally:
        process.kill()
        process.wait(10)


def test_the_secret_of_the_state_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = yaml.safe_load(WINDOWS.read_text())
    s3 = {"credentialsSecret": {"name": "keys"}, "region": "eu-central-1"}
    document["spec"]["checkpoint"] = {"uri": "s3a://lake/p", "s3": s3}
    file, jobs = tmp_path / "p.yaml", list[JobSpec]()
    file.write_text(yaml.safe_dump(document))
    monkeypatch.setattr("ackwright.cli.audit.spark_settings", lambda _: {})

    def audited(audited_jobs: Sequence[JobSpec], *_: object) -> list[Report]:
        jobs.extend(audited_jobs)
        return [REPORT]

    monkeypatch.setattr("ackwright.cli.audit.audited", audited)
    assert invoke(["audit", "-f", str(file)]) == ExitCode.OK
    assert jobs[0].state is not None
    assert (jobs[0].state.checkpoint, jobs[0].state.credentials) == ("s3a://lake/p", None)


def report_of(status: dict[str, Any], log: bytes = b"") -> Any:
    """The report that the command reads of a pod with this status and log."""
    pods = SimpleNamespace(logs=lambda *_, **__: io.BytesIO(log))
    target = cast(Target, SimpleNamespace(kubernetes=pods, namespace="ops"))
    return _report_of(target, {"metadata": {"name": "p-audit-1"}, "status": status})


@pytest.mark.parametrize(
    "containers",
    [
        {},
        {"containerStatuses": []},
        {"containerStatuses": [{"name": "audit", "state": {"waiting": {"reason": "ContainerCreating"}}}]},
        {"containerStatuses": [{"name": "proxy", "state": {"terminated": {"exitCode": 0}}}]},
    ],
)
def test_an_evicted_pod_is_reported_with_its_reason(containers: dict[str, Any]) -> None:
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    with pytest.raises(
        AckwrightError, match=r"pod p-audit-1 .*\(Evicted: The node was low on resource: memory\.\); run the audit"
    ) as e:
        report_of({**evicted, **containers})
    assert e.value.reason is Reason.UNEXPECTED


def test_the_reason_is_that_of_the_termination_message_and_not_of_the_log() -> None:
    ending = Ending(4, Failure(Reason.BROKERS_UNREACHABLE, "no broker answers"))
    terminated = {"exitCode": 4, "message": ending.to_json()}
    states = [{"name": "audit", "state": {"terminated": terminated}}]
    with pytest.raises(AckwrightError, match=r"^no broker answers$") as e:
        report_of({"phase": "Failed", "containerStatuses": states}, b"ackwright: Superseded: a text, and no reason\n")
    assert e.value.reason is Reason.BROKERS_UNREACHABLE


def test_an_audit_that_reports_no_reason_is_unexpected_with_its_last_line() -> None:
    states = [{"name": "audit", "state": {"terminated": {"exitCode": 137}}}]
    with pytest.raises(AckwrightError, match=r"exit code 137 and without a report: last words$") as e:
        report_of({"phase": "Failed", "containerStatuses": states}, b"first\nlast words\n\n")
    assert e.value.reason is Reason.UNEXPECTED


def test_the_report_is_read_whatever_other_containers_the_pod_has() -> None:
    for code in (0, 1, 6):
        ended = {"name": "audit", "state": {"terminated": {"exitCode": code}}}
        status = {"phase": "Failed", "containerStatuses": [{"name": "proxy", "state": {"running": {}}}, ended]}
        assert report_of(status, b"begins\n" + json.dumps(REPORT.document()).encode()) == REPORT


@pytest.mark.parametrize("line", [b"{}", b'{"verdict": "held"}', b'{"verdict": "held"', b""])
def test_any_other_line_is_no_report(line: bytes) -> None:
    ended = {"name": "audit", "state": {"terminated": {"exitCode": 0}}}
    with pytest.raises(AckwrightError, match=r"exit code 0 and without a report") as e:
        report_of({"phase": "Succeeded", "containerStatuses": [ended]}, b"begins\n" + line)
    assert e.value.reason is Reason.UNEXPECTED


@pytest.mark.parametrize(
    ("report", "code", "shown"),
    [
        (REPORT, 0, "held"),
        (replace(REPORT, **NOTHING), 0, "held, over no records: nothing was there to judge"),
        (replace(REPORT, doubts=("in-0: records are gone",)), 6, "UNPROVEN"),
        (replace(REPORT, doubts=("in-0: records are gone",), lost=1), 1, "BROKEN"),
    ],
    ids=["held", "nothing", "unproven", "broken"],
)
def test_each_verdict_has_an_exit_code_and_a_doubt_is_printed_as_one(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    report: Report,
    code: int,
    shown: str,
) -> None:
    monkeypatch.setattr("ackwright.cli.audit._on_this_machine", lambda *_: report)
    assert invoke(["audit", "-f", str(EXAMPLE)]) == code
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == f"exactly-once {shown}"
    assert lines[-1] == "note: a limit"
    assert ("not judged: in-0: records are gone" in lines) is bool(report.doubts)
    assert {line.split()[0] for line in lines} >= set(_COUNTS)
    assert invoke(["audit", "-f", str(EXAMPLE), "-o", "json"]) == code
    printed = json.loads(capsys.readouterr().out)
    assert (printed["verdict"], printed["notes"]) == (shown.partition(",")[0].lower(), [*report.doubts, "a limit"])


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, "p has never been started; see why with: ackwright status p"),
        ({"finishedRun": {"run": "0123456789", "completedAt": "2026-11-21T12:00:00Z"}}, "audit -f FILE"),
    ],
)
def test_a_pipeline_without_a_job_says_why(status: dict[str, Any], expected: str) -> None:
    resource = {"metadata": {"name": "p"}, "spec": {}, "status": status}
    kubernetes = SimpleNamespace(get=lambda _, kind, *__: resource if kind == "DeliveryPipeline" else None)
    with pytest.raises(AckwrightError) as refused:
        _job(Target(cast(Any, kubernetes), "ops"), "p")
    assert expected in str(refused.value)
