"""What Spark is passed of the error with which a batch ends."""

from __future__ import annotations

import threading
import traceback
from types import SimpleNamespace
from typing import Any

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.failures import BatchEnded
from ackwright_stream.jobspec import Reason
from ackwright_stream.ownership import Ownership
from ackwright_stream.progress import Progress
from ackwright_stream.query import Query
from minimal_job import minimal_job

OF_SPARK = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.toArrow.\n" + "\tat x.Y.z\n" * 1_000


def test_the_text_for_spark_is_short_and_the_driver_has_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer text ends the stream's thread with a StackOverflowError (StreamExecution.PROXY_ERROR)."""
    none: Any = SimpleNamespace()
    query = Query(none, minimal_job(), Ownership({}, 0, none), Progress(minimal_job()), threading.Event())

    def deliver(*_: object) -> None:
        try:
            raise ValueError(OF_SPARK)
        except ValueError as e:
            raise JobError(Reason.BATCH_FAILED, "the cause") from e

    monkeypatch.setattr(query, "_deliver", deliver)
    with pytest.raises(BatchEnded) as raised:
        query._process(none, 0, none)
    text = "".join(traceback.format_exception(raised.value))
    assert len(text) < 1_500
    assert "Py4JJavaError" not in text
    assert raised.value.__context__ is None
    assert "BatchFailed: the cause" in str(query._failure)
