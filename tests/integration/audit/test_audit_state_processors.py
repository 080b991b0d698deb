"""The audit counts the records of a processor in Python, and does not judge its output.

See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import Transform
from ackwright_stream.reports import Verdict
from integration.support.audited import wrong
from integration.support.decided_batches import Batch, audited, row, stateful, stateful_audit
from integration.support.processor_pipelines import NoRows

_ROWS = "key STRING, value STRING"


def of_names(source: DataFrame) -> DataFrame:
    return source.groupBy("name").transformWithState(NoRows(), _ROWS, "update", "processingTime")


def test_records_are_counted_and_the_output_is_not_judged(
    kafka: EmbeddedKafka, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("audited_processor")
    module.transform = of_names  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "audited_processor", module)
    pipeline = stateful_audit(kafka.bootstrap_servers, spark)
    stateful(pipeline, "", "update", timed=False)
    pipeline.job = replace(pipeline.job, transform=Transform(module="audited_processor", function="transform"))
    batches = [Batch([("a", 1), ("b", 2)], watermark=0, output=2), Batch([("a", 3)], watermark=0, output=1)]
    report = audited(pipeline, batches, [row("a", "1"), row("b", "1"), row("a", "2")])
    assert report.verdict is Verdict.UNPROVEN
    assert wrong(report) == (0, 0, 0, 0)
    assert any("a processor in Python computes its output" in doubt for doubt in report.doubts), report.doubts
    assert (report.sent, report.counted, report.delivered, report.unjudged) == (3, 3, 3, 3)
