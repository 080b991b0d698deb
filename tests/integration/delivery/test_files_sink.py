"""The guarantees with real Parquet files: real brokers, real Spark, processes that are killed.

tests/integration/files proves the protocol without Spark, with its controls. The reader shares no code with the sink.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode
from integration.support.files_pipelines import pipeline
from waiting import WAIT


def test_killed_before_and_after_the_file_is_created_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """One task has both partitions: after a kill between its two files the driver restarts from the positions."""
    p = pipeline(kafka, tmp_path, "exactly-once")
    p.spec = replace(p.spec, slots=1)
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        for point in ("after-read", "mid-produce", "before-commit", "file-created", "after-commit"):
            hit = job.arm(point, "kill")
            p.feed()
            job.arrived(hit)
            p.caught_up(job)
        p.assert_exactly_once()
        hit = job.arm("batch-end", "kill")  # the driver
        p.feed()
        job.arrived(hit)
        job.job.wait(WAIT)
    with p.life() as job:
        p.caught_up(job)
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
    p.assert_exactly_once()
