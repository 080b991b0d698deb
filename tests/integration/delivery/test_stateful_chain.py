"""A stateful pipeline with two stateful operators: deduplication, and counts of what it has left.

See docs/protocol.md#stateful-pipelines.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from integration.support.stateful_pipelines import Counted, StatefulPipeline, stateful_pipeline

# Each record is in the input of the deduplication once more: with the record of its partition that has come 250 records
# later, which is in a later batch.
TRANSFORM = """
from pyspark.sql import functions as F


def counts(source):
    number = F.split(F.col("value").cast("string"), ":")[1].cast("int")
    twice = source.select(F.col("key").cast("string"), F.explode(F.array(number, number - 250)).alias("n"))
    name = F.concat_ws("/", "key", F.floor(F.col("n") / 100))
    marked = twice.where("n >= 0").select(name.alias("name"), F.concat_ws(":", "key", "n").alias("record"))
    once = marked.withColumn("mark", F.rand()).dropDuplicates(["record"])
    counts = once.groupBy("name").agg(F.count("*").alias("count"), F.first("mark").alias("mark"))
    return counts.select(F.col("name").alias("key"), F.concat_ws(" ", "count", "mark").alias("value"))
"""


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[StatefulPipeline]:
    with stateful_pipeline(kafka, tmp_path, f"chain-{uuid.uuid4().hex[:8]}") as created:
        (tmp_path / "counts_of_distinct.py").write_text(TRANSFORM)
        created.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        transform = replace(created.spec.transform, sql=None, module="counts_of_distinct", function="counts")
        created.spec = replace(created.spec, transform=transform)
        yield created


@pytest.mark.parametrize(
    "points",
    [
        ("evaluated",),  # both states are stored and nothing is decided
        ("after-commit",),
        ("before-commit", "batch-end"),
    ],
    ids=["evaluated", "decided", "batch"],
)
def test_both_states_are_of_one_evaluation_over_kills(pipeline: StatefulPipeline, points: tuple[str, ...]) -> None:
    for point in points:
        pipeline.killed_at(point)
    pipeline.drained()
    assert pipeline.counted() == Counted()
    assert {operator: len(ids) for operator, ids in pipeline.last_decision().state.items()} == {0: 2, 1: 2}
