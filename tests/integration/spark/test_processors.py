"""Which processors in Python the job accepts in a stateful pipeline, and how it names what it refuses.

See docs/stateful.md#a-processor-in-python.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ackwright_stream import processors, source, transform
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Format, JobSpec, Reason, StateSettings, Transform
from integration.support.processor_pipelines import NoRows
from integration.support.raw_records import JOB
from integration.support.stateful_pipelines import with_state

TIMED = StateSettings(2, "/nowhere", "update", "at", "5 seconds", 1_000)
UNTIMED = replace(TIMED, event_time=None, watermark_delay=None)
ROWS = "key STRING, value STRING"
Frames = Callable[[DataFrame], DataFrame]


def process(frame: DataFrame, mode: str = "update", time: str = "none", *keys: str, **more: Any) -> DataFrame:
    return frame.groupBy(*(keys or ("key",))).transformWithState(NoRows(), ROWS, mode, time, **more)


def of_pandas(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").transformWithStateInPandas(NoRows(), ROWS, "update", "none")


def with_group_state(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").applyInPandasWithState(
        lambda key, rows, state: rows, ROWS, "n INT", "update", "NoTimeout"
    )


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    module_ = types.ModuleType("my_processor")
    sys.modules["my_processor"] = module_
    yield module_
    del sys.modules["my_processor"]


def job(state: StateSettings, *, available_now: bool = False) -> JobSpec:
    stateful = with_state(JOB, Path("/nowhere"))
    source_ = replace(JOB.source, format=Format.JSON, schema="key STRING, value STRING, at TIMESTAMP")
    of_module = Transform(module="my_processor", function="transform")
    return replace(stateful, source=source_, transform=of_module, state=state, available_now=available_now)


def output(spark: SparkSession, module: types.ModuleType, function: Frames, of: JobSpec) -> DataFrame:
    module.transform = function  # type: ignore[attr-defined]
    return transform.apply_transform(spark, source.read_stream(spark, JOB, "earliest"), of)


@pytest.mark.parametrize(
    ("function", "state", "follows_clock"),
    [
        (process, UNTIMED, False),
        (lambda frame: process(frame, "append"), replace(UNTIMED, output_mode="append"), False),
        (lambda frame: process(frame, "update", "eventTime"), TIMED, False),
        (lambda frame: process(frame, "update", "processingTime"), UNTIMED, True),
        (lambda frame: process(frame.dropDuplicates(["value"])), UNTIMED, False),
        (of_pandas, UNTIMED, False),
    ],
)
def test_a_processor_is_accepted(
    spark: SparkSession, module: types.ModuleType, function: Frames, state: StateSettings, follows_clock: bool
) -> None:
    processor = processors.processor_of(output(spark, module, function, job(state)))
    assert processor is not None
    assert processor.by_clock is follows_clock


@pytest.mark.parametrize(
    ("function", "state", "problem"),
    [
        (lambda frame: process(frame, "append"), UNTIMED, "has transformWithState with outputMode append"),
        (lambda frame: process(frame, "update", "eventTime"), UNTIMED, "timers of event time, and no watermark"),
        (
            lambda frame: process(frame, initialState=frame.sparkSession.createDataFrame([], ROWS).groupBy("key")),
            UNTIMED,
            "gives transformWithState an initialState",
        ),
        (lambda frame: process(process(frame)), UNTIMED, "has several stateful processors"),
        (
            lambda frame: process(frame).groupBy("key").count(),
            UNTIMED,
            "uses transformWithState together with GROUP BY",
        ),
        (
            lambda frame: of_pandas(frame.groupBy("key", "value").count()),
            UNTIMED,
            "uses transformWithStateInPandas together with GROUP BY",
        ),
        (lambda frame: process(frame).dropDuplicates(), UNTIMED, "together with dropDuplicates"),
        (
            lambda frame: process(frame).alias("a").join(frame.alias("b"), "key"),
            replace(TIMED, output_mode="append"),
            "uses JOIN together with transformWithState",
        ),
        (
            lambda frame: frame.groupBy("key").transformWithState(
                NoRows(), "at TIMESTAMP", "append", "eventTime", eventTimeColumnName="at"
            ),
            replace(TIMED, output_mode="append"),
            "uses transformWithState with eventTimeColumnName, which is not built",
        ),
        (lambda frame: frame.groupBy("key").applyInPandas(lambda rows: rows, ROWS), UNTIMED, "uses applyInPandas,"),
        (lambda frame: frame.groupBy("key").applyInArrow(lambda rows: rows, ROWS), UNTIMED, "uses applyInArrow,"),
        (
            lambda frame: (
                frame.groupBy("key").cogroup(frame.groupBy("key")).applyInPandas(lambda left, right: left, ROWS)
            ),
            UNTIMED,
            "uses cogroup,",
        ),
        (with_group_state, UNTIMED, "uses applyInPandasWithState,"),
        (lambda frame: frame.union(frame).distinct(), UNTIMED, "uses UNION,"),
    ],
)
def test_what_is_refused_is_named_as_users_write_it(
    spark: SparkSession, module: types.ModuleType, function: Frames, state: StateSettings, problem: str
) -> None:
    with pytest.raises(JobError) as caught:
        output(spark, module, function, job(state))
    assert caught.value.reason is Reason.INVALID_TRANSFORM
    assert f"the transform {problem}" in caught.value.message or problem in caught.value.message
    assert "; " in caught.value.message, "what to do"


def test_a_bounded_run_with_timers_of_the_clock_is_refused(spark: SparkSession, module: types.ModuleType) -> None:
    with pytest.raises(JobError, match="in a bounded run, which would not end"):
        output(
            spark, module, lambda frame: process(frame, "update", "processingTime"), job(UNTIMED, available_now=True)
        )
    assert output(spark, module, process, job(UNTIMED, available_now=True)).isStreaming
