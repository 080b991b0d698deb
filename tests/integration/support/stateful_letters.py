"""Stateful pipelines with malformed records.

Those into any sink keep each well-formed record once, by dropDuplicates, so their output is that of the stateless ones
in letter_pipelines.py. Those into Kafka can count groups of 100 well-formed records instead.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.decisions import Decision
from ackwright_stream.jobspec import Transform
from integration.support.letter_pipelines import LetterPipeline, letter_pipeline, table_pipeline, value
from integration.support.outside_letters import outside_pipeline
from integration.support.pipelines import read
from integration.support.postgres import Database
from integration.support.stateful_pipelines import DECISIONS, Counted, create_decisions, judge_counts

# One record of ten is malformed: offset n is that of the well-formed record n - (n + 6) DIV 10.
COUNTS = """
    SELECT name AS key, CAST(count(*) AS STRING) AS value
    FROM (SELECT concat('p', p, '/', (n - (n + 6) DIV 10) DIV 100) AS name FROM source)
    GROUP BY name
"""
_PAIRS = """
    SELECT a.kafka.key AS key, concat(a.p, ':', a.n) AS value FROM source a JOIN source b
    ON a.n = b.n AND a.p = b.p AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE
    AND a.n IS NOT NULL AND a.p IS NOT NULL AND a.n % 10 != 7
"""
_DEDUPLICATED = """
def transform(source):
    kept = source.dropDuplicates(["p", "n"]).where("n % 10 != 7")
    return kept.selectExpr("kafka.key AS key", "concat(p, ':', n) AS value")
"""
Pipeline = TypeVar("Pipeline", bound=LetterPipeline)


def stateful_letters(
    kafka: EmbeddedKafka, directory: Path, sink: str, guarantee: str, database: Database | None = None, **more: Any
) -> LetterPipeline:
    """A pipeline that keeps each well-formed record. sink: its name; database: of postgres. more: as max_fraction."""
    (directory / "first_records.py").write_text(_DEDUPLICATED)
    transform = {"python": {"module": "first_records", "function": "transform"}}
    state = _state("append")
    pipeline: LetterPipeline
    if database is not None:
        pipeline = table_pipeline(kafka, database, directory, guarantee, more={**state, "transform": transform}, **more)
    elif sink == "kafka":
        pipeline = letter_pipeline(kafka, directory, guarantee, transform=transform, **state, **more)
    else:
        pipeline = outside_pipeline(kafka, directory, sink, guarantee, transform=transform, **state, **more)
    paths = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])
    pipeline.environment["PYTHONPATH"] = paths
    return _in_directory(pipeline, directory)


def counted_letters(kafka: EmbeddedKafka, directory: Path, guarantee: str, **more: Any) -> LetterPipeline:
    """A pipeline into Kafka that counts groups of well-formed records. more: as max_fraction."""
    pipeline = letter_pipeline(kafka, directory, guarantee, transform={"sql": COUNTS}, **_state("update"), **more)
    return _in_directory(pipeline, directory)


def joined_letters(kafka: EmbeddedKafka, directory: Path) -> LetterPipeline:
    """A pipeline into Kafka that joins each well-formed record with itself: its plan reads the source twice."""
    pipeline = stateful_letters(kafka, directory, "kafka", "exactly-once")
    job = pipeline.spec
    assert job.state is not None
    pipeline.spec = replace(
        job,
        transform=Transform(sql=_PAIRS),
        source=replace(job.source, schema="p INT, n INT, at TIMESTAMP"),
        state=replace(job.state, event_time="at", watermark_delay="1 minute"),
    )
    return pipeline


def timed(partition: int, n: int) -> bytes:
    """The value of a record for joined_letters()."""
    return value(partition, n).replace(b"}", b', "at": "1971-01-01T00:00:00Z"}')


def _state(mode: str) -> dict[str, Any]:
    return {"state": {"partitions": 2, "outputMode": mode}, "checkpoint": {"volume": {"size": "1Gi"}}}


def _in_directory(pipeline: Pipeline, directory: Path) -> Pipeline:
    """The pipeline with its state in a directory, and small batches."""
    create_decisions(pipeline.servers)
    job = pipeline.spec
    assert job.state is not None
    state = replace(job.state, checkpoint=str(directory / "state"))
    pipeline.spec = replace(job, state=state, source=replace(job.source, max_offsets_per_trigger=700))
    return pipeline


def counted(pipeline: LetterPipeline) -> Counted:
    """What is wrong with the counts in the output of counted_letters(). The highest count of a group is its last one.

    Each partition was fed a multiple of ten records.
    """
    counts: dict[str, list[tuple[int, str]]] = {}
    for record in read(pipeline.servers, pipeline.sink):
        counts.setdefault((record.key or b"").decode(), []).append((int(record.value or b""), ""))
    return judge_counts(
        {group: sorted(of_group) for group, of_group in counts.items()}, pipeline.partitions, pipeline.fed * 9 // 10
    )


def decisions(pipeline: LetterPipeline) -> list[Decision]:
    """The decisions of a pipeline into Kafka, oldest first."""
    of_pipeline = [r for r in read(pipeline.servers, DECISIONS) if r.key == pipeline.spec.group.encode()]
    return [Decision.of_json((r.value or b"").decode()) for r in of_pipeline]
