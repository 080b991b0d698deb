"""What a driver says when it gives up: the cause, and not what its own attempts did to one another."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackwright_stream import driver
from ackwright_stream.driver import Driver
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason, Restart
from ackwright_stream.progress import Progress

SQL = JobError(Reason.BATCH_FAILED, "Division by zero")
FENCED = JobError(Reason.POSITION_CONFLICT, "fenced by a newer instance")
LATER = JobError(Reason.BATCH_FAILED, "the sink is full")


@pytest.mark.parametrize(
    ("failures", "told"),
    [((SQL, SQL, SQL), SQL), ((SQL, SQL, FENCED), SQL), ((SQL, FENCED, LATER), LATER), ((FENCED, FENCED, FENCED), FENCED)],
)
def test_the_cause_is_told(monkeypatch: pytest.MonkeyPatch, failures: Sequence[JobError], told: JobError) -> None:
    left = list(failures)

    def fails(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(run=lambda: _raise(left.pop(0)))

    owned = SimpleNamespace(driver=1, positions={}, expired=0)
    monkeypatch.setattr(driver.ownership, "take", lambda *_: owned)
    monkeypatch.setattr(driver, "Query", fails)
    job = SimpleNamespace(restart=Restart(initial_ms=1, max_ms=1, max_attempts=3), guarantee=Guarantee.EXACTLY_ONCE, group="g")
    cluster = SimpleNamespace(ends=lambda _: {}, check_group=lambda: None)
    progress = SimpleNamespace(
        lanes=tuple, last_error=None, **dict.fromkeys(("owns", "count", "state", "failed", "ends"), lambda *_, **__: None)
    )
    found = Driver(cast(JobSpec, job), cast(Progress, progress), stop := threading.Event())
    try:
        with pytest.raises(JobError) as caught:
            found._run_queries(cast(Any, None), cast(Any, cluster), headers=True)
    finally:
        stop.set()
    assert caught.value is told
    assert left == []


def _raise(error: JobError) -> None:
    raise error
