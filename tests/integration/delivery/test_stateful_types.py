"""A stateful pipeline whose transform has changed, and with it the types of its state: the driver halts.

A Python function is known by its name alone, so only the types tell that it is another one. See
docs/stateful.md#change-it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import Reason
from ackwright_stream.reasons import REASONS
from ackwright_stream.reports import Failure
from integration.support.pipelines import positions_of, read
from integration.support.stateful_pipelines import StatefulPipeline, stateful_pipeline
from waiting import WAIT

_MODULE = """
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor


def columns():
    return F.col("key").cast("string"), F.split(F.col("value").cast("string"), ":")[1].cast("int")


class Sums(StatefulProcessor):
    def init(self, handle):
        self.summed = handle.getValueState("summed", "{variable}")

    def handleInputRows(self, key, rows, timerValues):
        before = self.summed.get() or (0,)
        after = int(before[0]) + sum(row.number for row in rows)
        self.summed.update(({stored},))
        yield Row(key=key[0], value=str(after))

    def close(self):
        pass


def by_processor(source):
    key, number = columns()
    rows = source.select(key.alias("key"), number.alias("number")).groupBy("key")
    return rows.transformWithState(Sums(), "key STRING, value STRING", "update", "none")


def sums(source):
    key, number = columns()
    return {rows}.select(F.col("k").cast("string").alias("key"), F.col("s").cast("string").alias("value"))
"""
_SUMS = "source.groupBy(key.alias('k')).agg(F.sum(number).alias('s'))"
_SQL = """
    SELECT CAST(key AS STRING) AS key, CAST(sum(CAST(split(CAST(value AS STRING), ':')[1] AS {})) AS STRING) AS value
    FROM source GROUP BY key
"""


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[StatefulPipeline]:
    with stateful_pipeline(kafka, tmp_path, f"types-{uuid.uuid4().hex[:8]}", limit=2_000) as created:
        yield created


def edit(pipeline: StatefulPipeline, rows: str = _SUMS, *, function: str = "sums", variable: str = "sum LONG") -> None:
    """Gives the pipeline a function of the same name. rows: what it returns. variable: the type of a processor's."""
    stored = "str(after)" if "STRING" in variable else "after"
    text = _MODULE.format(rows=rows, variable=variable, stored=stored)
    (pipeline.directory / "summed.py").write_text(text)
    pipeline.environment["PYTHONPATH"] = os.pathsep.join([str(pipeline.directory), os.environ.get("PYTHONPATH", "")])
    transform = replace(pipeline.spec.transform, sql=None, module="summed", function=function)
    pipeline.spec = replace(pipeline.spec, transform=transform)


def sums_of(pipeline: StatefulPipeline) -> dict[bytes | None, int]:
    """The last sum of each key."""
    return {record.key: int(record.value or b"") for record in read(pipeline.servers, pipeline.sink)}


def sums_up_to(pipeline: StatefulPipeline) -> dict[bytes | None, int]:
    """The sums of all that the source was fed."""
    return {f"p{p}".encode(): sum(range(pipeline.fed)) for p in range(pipeline.partitions)}


def halted(pipeline: StatefulPipeline, reason: Reason) -> Failure:
    """The failure of a driver that has further records, and halts without a batch: nothing of the pipeline changes."""
    pipeline.feed(100)
    servers, group = pipeline.servers, pipeline.spec.group
    before = positions_of(servers, group, pipeline.source, pipeline.partitions)
    output, decision = read(servers, pipeline.sink), pipeline.last_decision()
    with pipeline.life() as job:
        code = job.job.wait(WAIT)
        failure = job.job.failure()
    assert failure is not None
    assert (failure.reason, code) == (reason, REASONS[reason].exit_code), failure
    assert read(servers, pipeline.sink) == output
    assert pipeline.last_decision() == decision
    assert positions_of(servers, group, pipeline.source, pipeline.partitions) == before
    return failure


@pytest.mark.parametrize(
    "edits",
    [
        ["source.groupBy(key.alias('k')).agg(F.sum(number.cast('double')).cast('long').alias('s'))"],
        [
            "source.groupBy(key.alias('k')).agg(F.sum(number.cast('decimal(10)')).alias('s'))",
            "source.groupBy(F.substring(key, 2, 9).cast('int').alias('k')).agg(F.sum(number).alias('s'))",
            "source.groupBy(key.alias('k')).agg(F.greatest(F.sum(number), F.count('*')).alias('s'))",
            "source.select('key', 'value').distinct().groupBy(key.alias('k')).agg(F.sum(number).alias('s'))",
        ],
    ],
    ids=["sum-of-double", "sum-of-decimal-and-others"],
)
def test_a_function_with_other_types_in_its_state_halts_until_it_is_undone(
    pipeline: StatefulPipeline, edits: list[str]
) -> None:
    """The others: another type of the key, a further count, and a further step."""
    edit(pipeline)
    pipeline.drained()
    assert sums_of(pipeline) == sums_up_to(pipeline)
    for rows in edits:
        edit(pipeline, rows)
        failure = halted(pipeline, Reason.STATE_LOST)
        assert "the transform does not fit to the stored state" in failure.message, rows
        assert "undo the change of the transform, or of the image that has its Python function" in failure.message
    edit(pipeline)
    pipeline.drained()
    assert sums_of(pipeline) == sums_up_to(pipeline)


def test_a_processor_with_another_type_of_a_variable_halts_until_it_is_undone(pipeline: StatefulPipeline) -> None:
    edit(pipeline, function="by_processor")
    pipeline.drained()
    edit(pipeline, function="by_processor", variable="sum STRING")
    failure = halted(pipeline, Reason.STATE_LOST)
    assert "the transform does not fit to the stored state" in failure.message
    edit(pipeline, function="by_processor")
    pipeline.drained()
    assert sums_of(pipeline) == sums_up_to(pipeline)


def test_a_function_with_the_same_types_goes_on_from_the_state(pipeline: StatefulPipeline) -> None:
    """The new function sums from 1,000,000 on what the former one has left: nothing checks what it means."""
    edit(pipeline)
    pipeline.drained()
    before = sums_of(pipeline)
    edit(pipeline, _SUMS.replace("number", "number * 0 + 1_000_000"))
    pipeline.feed(10)
    pipeline.drained()
    assert sums_of(pipeline) == {key: value + 10 * 1_000_000 for key, value in before.items()}


def test_sql_that_has_changed_is_refused_whether_the_types_fit_or_not(pipeline: StatefulPipeline) -> None:
    def select(type_: str) -> None:
        transform = replace(pipeline.spec.transform, sql=_SQL.format(type_))
        pipeline.spec = replace(pipeline.spec, transform=transform)

    select("INT")
    pipeline.drained()
    for type_ in ("DOUBLE", "BIGINT"):
        select(type_)
        assert "is of another query" in halted(pipeline, Reason.INVALID_TRANSFORM).message
    select("INT")
    pipeline.drained()
    assert sums_of(pipeline) == sums_up_to(pipeline)
