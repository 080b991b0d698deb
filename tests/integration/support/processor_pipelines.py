"""Stateful pipelines whose transform is a processor in Python: transformWithState, with state and timers by key.

See docs/stateful.md#a-processor-in-python.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from integration.support.driver_lives import DriverLives

_NAMES = """
import random

import pandas as pd
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

OUTPUT = "key STRING, value STRING"


def number():
    return F.split(F.col("value").cast("string"), ":")[1].cast("int")


def names(source):
    return source.select(F.concat_ws("/", F.col("key").cast("string"), F.floor(number() / 100)).alias("name"))
"""
# Each function returns the counts of stateful_pipelines.py: a group is marked with a random number.
_COUNTS = f"""{_NAMES}

class Counts(StatefulProcessor):
    def init(self, handle):
        self.counted = handle.getValueState("counted", "count LONG, mark DOUBLE")

    def count(self, more):
        count, mark = self.counted.get() or (0, random.random())
        self.counted.update((count + more, mark))
        return f"{{count + more}} {{mark}}"

    def close(self):
        pass


class CountsOfRows(Counts):
    def handleInputRows(self, key, rows, timerValues):
        yield Row(key=key[0], value=self.count(sum(1 for _ in rows)))


class CountsOfFrames(Counts):
    def handleInputRows(self, key, rows, timerValues):
        yield pd.DataFrame({{"key": [key[0]], "value": [self.count(sum(map(len, rows)))]}})


def of_rows(source):
    return names(source).groupBy("name").transformWithState(CountsOfRows(), OUTPUT, "update", "none")


def of_frames(source):
    return names(source).groupBy("name").transformWithStateInPandas(CountsOfFrames(), OUTPUT, "update", "none")


# Each record is in the input of the deduplication once more, in a later batch.
def of_distinct(source):
    twice = source.select(F.col("key").cast("string"), F.explode(F.array(number(), number() - 250)).alias("n"))
    name = F.concat_ws("/", "key", F.floor(F.col("n") / 100))
    marked = twice.where("n >= 0").select(name.alias("name"), F.concat_ws(":", "key", "n").alias("record"))
    once = marked.dropDuplicates(["record"]).groupBy("name")
    return once.transformWithState(CountsOfRows(), OUTPUT, "update", "none")

"""
# Each window of 50 seconds is counted, and a timer outputs it. The watermark is 10 seconds behind.
_WINDOWS = f"""{_NAMES}

class Windows(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.counted = handle.getValueState("counted", "count LONG")

    def handleInputRows(self, key, rows, timerValues):
        before = self.counted.get()
        if before is None:
            self.handle.registerTimer((key[0] + 50) * 1000)
        self.counted.update(((before or (0,))[0] + sum(1 for _ in rows),))
        return iter([])

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(key=str(key[0]), value=str(self.counted.get()[0]))
        self.counted.clear()

    def close(self):
        pass


def windows(source):
    # Not 0, which is no later than the first watermark.
    timed = source.select(F.timestamp_seconds(number() + 1).alias("at"), (F.floor(number() / 50) * 50).alias("begin"))
    of_window = timed.withWatermark("at", "10 seconds").groupBy("begin")
    return of_window.transformWithState(Windows(), OUTPUT, "append", "eventTime")
"""
# Each group is counted, and a timer says so a second later: what it has counted, its mark, and whether a state that
# expires earlier is gone.
_ALARMS = f"""{_NAMES}

class Alarms(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.counted = handle.getValueState("counted", "count LONG, mark DOUBLE")
        self.short = handle.getValueState("short", "count LONG", 500)
        self.long = handle.getValueState("long", "count LONG", 3_600_000)

    def handleInputRows(self, key, rows, timerValues):
        before = self.counted.get()
        count, mark = before or (0, random.random())
        count += sum(1 for _ in rows)
        if before is None:
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1000)
            self.short.update((count,))
            self.long.update((count,))
        self.counted.update((count, mark))
        yield Row(key=key[0], value=f"{{count}} {{mark}}")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        count, mark = self.counted.get()
        left = [name for name in ("short", "long") if getattr(self, name).exists()]
        yield Row(key=key[0], value=f"{{count}} {{mark}} {{','.join(left)}}")

    def close(self):
        pass


def alarms(source):
    return names(source).groupBy("name").transformWithState(Alarms(), OUTPUT, "update", "processingTime")
"""
_OF_FUNCTION = {"windows": (_WINDOWS, "append"), "alarms": (_ALARMS, "update")}


class NoRows(StatefulProcessor):  # type: ignore[misc]
    """A processor for plans that are not run."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        return iter([])

    def close(self) -> None:
        pass


def process(pipeline: DriverLives, function: str) -> None:
    """Gives a stateful pipeline one of these transforms: of_rows, of_frames, of_distinct, windows or alarms."""
    text, mode = _OF_FUNCTION.get(function, (_COUNTS, "update"))
    module = f"processor_{function}"
    (pipeline.directory / f"{module}.py").write_text(text)
    path = os.pathsep.join([str(pipeline.directory), os.environ.get("PYTHONPATH", "")])
    pipeline.environment["PYTHONPATH"] = path
    transform = replace(pipeline.spec.transform, sql=None, module=module, function=function)
    assert pipeline.spec.state is not None
    state = replace(pipeline.spec.state, output_mode=mode)
    pipeline.spec = replace(pipeline.spec, transform=transform, state=state)


def schema_files(state: Path) -> list[str]:
    """The files in which Spark keeps the types of processors' state, in all directories of a pipeline's state."""
    return sorted(file.name for file in state.glob("*/state/*/_stateSchema/*/*") if not file.name.startswith("."))
