"""A record for each sensor that has sent nothing for ten minutes: the transform of silent-sensors.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

SILENCE_MS = 600_000


class Silence(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._latest = handle.getValueState("latest", "at_ms LONG")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self._latest.get()
        latest = max([*(before or ()), *(row.at_ms for row in rows)])
        if before:
            self._handle.deleteTimer(before[0] + SILENCE_MS)
        self._handle.registerTimer(latest + SILENCE_MS)
        self._latest.update((latest,))
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        (latest,) = self._latest.get()
        self._latest.clear()
        yield Row(key=key[0], latest=latest)

    def close(self) -> None:
        pass


def silent(source: DataFrame) -> DataFrame:
    signals = source.select("sensor", "at", F.unix_millis("at").alias("at_ms"))
    ended = signals.groupBy("sensor").transformWithState(Silence(), "key STRING, latest LONG", "append", "eventTime")
    return ended.select("key", F.concat_ws(" ", "key", F.timestamp_millis("latest").cast("string")).alias("value"))
