"""The jobspec of a stateful pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ackwright_stream.jobspec import JobSpec, StateSettings
from ackwright_stream.jobspec_values import STATE
from minimal_job import minimal_job

SETTINGS = StateSettings(
    partitions=2, checkpoint="/state", output_mode="update", event_time=None, watermark_delay=None, batch_bytes=10_000
)


def stateful_job(**changes: Any) -> JobSpec:
    """A job with SETTINGS. changes: other fields."""
    job = minimal_job()
    required = {name: value for name, (value, _) in STATE.items()} | {"spark.sql.shuffle.partitions": "2"}
    return replace(job, **{"state": SETTINGS, "spark": {**job.spark, **required}, "stream_options": {}, **changes})
