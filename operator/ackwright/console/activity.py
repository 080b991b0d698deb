"""What a command on this machine is doing, as the console shows it while it happens: stages, figures, events, kills."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ackwright.console.source import JSON, Listing, key
from ackwright.console.views import Details, Object
from ackwright.reasons import ConditionReason
from ackwright_stream.reports import ProgressReport, State

_ENTRIES_MAX = 2_000  # the latest
_SAMPLES_MAX = 3_600  # of one stage
_BETWEEN_SAMPLES_S = 0.5

# What the operator would report of a driver in this state.
_REASONS = {
    State.STARTING: ConditionReason.STARTING,
    State.STANDBY: ConditionReason.STANDBY,
    State.REPLAYING: ConditionReason.REPLAYING,
    State.RUNNING: ConditionReason.DELIVERING,
    State.RESTARTING: ConditionReason.RESTARTING,
    State.DRAINING: ConditionReason.DRAINING,
    State.DRAINED: ConditionReason.DRAINING,
    State.COMPLETE: ConditionReason.COMPLETED,
    State.FAILED: ConditionReason.HALTED,
}
_READY = (State.RUNNING, State.COMPLETE)


@dataclass
class _Stage:
    """A part of the command's work, with figures if it processes records."""

    name: str
    total: int | None
    pipeline: str | None  # namespace/name of the pipeline that runs in it
    done: int = 0
    lag: int = 0
    rate: float = 0.0
    detail: str = ""
    kills: int = 0
    is_over: bool = False
    samples: deque[Mapping[str, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLES_MAX))


class Activity:
    """What happens, in the order in which it happens. For threads: the command writes, and the server reads.

    now: seconds since the epoch.
    """

    def __init__(self, title: str, now: Callable[[], float] = time.time) -> None:
        self.title, self._now = title, now
        self._lock = threading.Lock()
        self._number = 0  # of the last entry or sample
        self._entries: deque[JSON] = deque(maxlen=_ENTRIES_MAX)
        self._stages: list[_Stage] = []
        self._resources: dict[str, Object] = {}
        self._reports: dict[str, ProgressReport] = {}
        self._results: JSON | None = None

    # -- written by the command ------------------------------------------------------------------------------------

    def pipeline(self, resource: Object) -> None:
        """Adds a pipeline that the command runs."""
        with self._lock:
            self._resources[key(resource)] = resource

    def stage(self, name: str, total: int | None = None, pipeline: str | None = None) -> None:
        """Begins a stage, and ends the one before. total: records; pipeline: namespace/name of the one that runs."""
        with self._lock:
            for stage in self._stages:
                stage.is_over = True
            self._stages.append(_Stage(name, total, pipeline))
            self._add("stage", name)

    def progress(self, done: int, total: int | None, rate: float, lag: int, detail: str = "") -> None:
        """Sets the figures of the present stage. detail: what it does apart from records; empty: nothing."""
        with self._lock:
            stage = self._stages[-1]
            stage.done, stage.total, stage.rate, stage.lag, stage.detail = done, total, rate, lag, detail
            at = self._now()
            if not stage.samples or at - stage.samples[-1]["at"] >= _BETWEEN_SAMPLES_S:
                self._number += 1
                stage.samples.append(
                    {"number": self._number, "at": at, "done": done, "rate": round(rate, 1), "lag": lag}
                )

    def report(self, report: ProgressReport) -> None:
        """Sets the report of a driver."""
        with self._lock:
            self._reports[report.pipeline] = report

    def event(self, text: str) -> None:
        """Adds something that happened."""
        with self._lock:
            self._add("event", text)

    def kill(self, text: str) -> None:
        """Adds a process that was killed."""
        with self._lock:
            if self._stages:
                self._stages[-1].kills += 1
            self._add("kill", text)

    def failure(self, text: str) -> None:
        """Adds a failure."""
        with self._lock:
            self._add("failure", text)

    def end(self, columns: Sequence[str] = (), rows: Sequence[Sequence[str]] = (), notes: Sequence[str] = ()) -> None:
        """Ends the last stage. columns and rows: a table of results."""
        with self._lock:
            for stage in self._stages:
                stage.is_over = True
            self._results = {"columns": list(columns), "rows": [list(r) for r in rows], "notes": list(notes)}
            self._add("stage", "the end")

    def _add(self, kind: str, text: str) -> None:
        self._number += 1
        stage = len(self._stages) - 1
        self._entries.append({"number": self._number, "at": self._now(), "kind": kind, "text": text, "stage": stage})

    # -- read by the server ----------------------------------------------------------------------------------------

    def after(self, number: int) -> JSON:
        """All stages with their figures; entries and samples only with a higher number."""
        with self._lock:
            return {
                "number": self._number,
                "stages": [_stage(stage, number) for stage in self._stages],
                "entries": [e for e in self._entries if e["number"] > number],
                "results": self._results,
            }

    def read(self) -> tuple[dict[str, Object], dict[str, ProgressReport]]:
        """The pipelines and the latest reports, by namespace/name."""
        with self._lock:
            return dict(self._resources), dict(self._reports)


def _stage(stage: _Stage, number: int) -> JSON:
    return {
        "name": stage.name,
        "pipeline": stage.pipeline,
        "total": stage.total,
        "done": stage.done,
        "lag": stage.lag,
        "rate": round(stage.rate, 1),
        "detail": stage.detail,
        "kills": stage.kills,
        "over": stage.is_over,
        "samples": [s for s in stage.samples if s["number"] > number],
    }


class LocalSource:
    """The pipelines of a command on this machine."""

    kind = "local"
    at = None

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self.title = activity.title

    def pipelines(self) -> Listing:
        resources, reports = self._activity.read()
        return Listing([_with_status(r, reports.get(name)) for name, r in resources.items()])

    def details(self, namespace: str, name: str) -> tuple[Object, Details] | None:
        resources, reports = self._activity.read()
        place = f"{namespace}/{name}"
        if place not in resources:
            return None
        report = reports.get(place)
        missing = () if report else ("the driver's progress: this command has not read it",)
        return _with_status(resources[place], report), Details(
            progress=report.as_json() if report else None, missing=missing
        )

    def activity(self, after: int) -> JSON | None:
        return self._activity.after(after)


def _with_status(resource: Object, report: ProgressReport | None) -> Object:
    """The resource with the figures of a report where the operator would have them."""
    if report is None:
        return resource
    ready = report.state in _READY
    message = "" if ready or report.last_error is None else str(report.last_error)
    condition: dict[str, Any] = {"type": "Ready", "status": str(ready), "message": message}
    delivery = {"lag": report.measured_lag, "recordsPerSecond": report.records_per_second, "batch": report.batch_id}
    return {
        **resource,
        "status": {
            "guarantee": report.guarantee,
            "conditions": [{**condition, "reason": _REASONS[report.state].value}],
            "delivery": delivery,
        },
    }
