"""Stateful pipelines whose job the tests of the audit play: batches, their decisions, and the report on an output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from ackwright_stream.audit_report import Report
from ackwright_stream.decisions import Decision
from ackwright_stream.jobspec import Format, KafkaSink, StateSettings, Transform
from ackwright_stream.jobspec_values import STATE
from ackwright_stream.positions import Lane
from integration.support.audited import PARTITIONS, Pipeline, Record

WINDOWS = """
    SELECT CAST(unix_timestamp(window.start) AS STRING) AS key, CAST(count(*) AS STRING) AS value
    FROM source GROUP BY window(at, '10 seconds')
"""
COUNTS = "SELECT name AS key, CAST(count(*) AS STRING) AS value FROM source GROUP BY name"


@dataclass(frozen=True)
class Batch:
    """One batch: the seconds of its records' event times by name, and the watermark in seconds with which it began."""

    records: Sequence[tuple[str | None, int]]
    watermark: int
    output: int  # the number of its records


def stateful_audit(servers: str, spark: SparkSession) -> Pipeline:
    """A pipeline with a topic of decisions, whose records have a name and a time."""
    pipeline = Pipeline(servers, spark)
    pipeline.create("decisions", cleanup_policy="compact")
    sink = pipeline.job.sink_of(KafkaSink)
    sink = replace(
        sink,
        preserve_partition=False,
        positions=replace(sink.positions, decisions_topic=pipeline.topic("decisions")),
    )
    pipeline.job = replace(
        pipeline.job,
        source=replace(pipeline.job.source, format=Format.JSON, schema="name STRING, at TIMESTAMP"),
        sink=sink,
        stream_options={},
    )
    return pipeline


def stateful(pipeline: Pipeline, sql: str, mode: str, *, timed: bool = True) -> None:
    """Makes the pipeline one with this transform."""
    state = StateSettings(
        partitions=2,
        checkpoint="/nowhere",
        output_mode=mode,
        event_time="at" if timed else None,
        watermark_delay="5 seconds" if timed else None,
        batch_bytes=1_000_000,
    )
    required = {name: value for name, (value, _) in STATE.items()}
    spark = {**pipeline.job.spark, **required, "spark.sql.shuffle.partitions": "2"}
    pipeline.job = replace(pipeline.job, transform=Transform(sql=sql), state=state, spark=spark)


def log_entry(watermark: int) -> str:
    return f'v1\n{{"batchWatermarkMs":{watermark * 1000},"conf":{{}}}}\n{{}}'


def decided(
    pipeline: Pipeline, batches: Sequence[Batch], *, first: int = 0, accepted_loss: str | None = None
) -> list[str]:
    """The decisions of the batches, whose records are all in partition 0, from the batch `first` on."""
    lanes = [Lane(pipeline.topic("in"), p) for p in range(PARTITIONS)]
    decisions, begin = [], 0
    for number, batch in enumerate(batches):
        end = begin + len(batch.records)
        decision = Decision(
            batch=number,
            driver=1,
            directory="d",
            query="q",
            starts={lanes[0]: begin, lanes[1]: 0},
            positions={lanes[0]: end, lanes[1]: 0},
            watermark_ms=0,
            state={},
            records=batch.output,
            digest="",
            offsets_before=log_entry(batches[number - 1].watermark) if number else None,
            offsets=log_entry(batch.watermark),
            accepted_loss=accepted_loss,
        )
        begin = end
        if number >= first:
            decisions.append(decision.to_json())
    return decisions


def audited(
    pipeline: Pipeline,
    batches: Sequence[Batch],
    output: Sequence[Record],
    *,
    first: int = 0,
    accepted_loss: str | None = None,
) -> Report:
    """The report on this output of the batches."""
    sent = [r for batch in batches for r in batch.records]
    values = [json.dumps({"name": name, "at": f"1970-01-01T00:00:{at:02}Z"}).encode() for name, at in sent]
    pipeline.produce("in", [Record(None, value) for value in values])
    pipeline.produce("out", output, "commit")
    texts = decided(pipeline, batches, first=first, accepted_loss=accepted_loss)
    pipeline.produce("decisions", [Record(pipeline.name.encode(), text.encode()) for text in texts], "commit")
    pipeline.passed({0: len(sent), 1: 0})
    return pipeline.audit()


def row(key: str, value: object) -> Record:
    """A record of the output, in the partition of its key: Kafka's partitioner puts each of these keys into 0."""
    return Record(key.encode(), str(value).encode())
