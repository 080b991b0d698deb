"""The state of a stateful query: which state files an evaluation has written, and the files of Spark's own logs.

With checkpoint format 2 each evaluation stores its state under new unique ids. Spark collects them in an accumulator of
each stateful operator, one entry for each task that has succeeded, and takes the first entry of a partition; here all
are returned, because more than one means that the batch was evaluated twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from ackwright_stream.spark_internals.execution import Execution

_STREAMING = "org.apache.spark.sql.execution.streaming"
_LATE = "numRowsDroppedByWatermark"
_STORES = f"{_STREAMING}.state.StateStore$"
_WRITER = f"{_STREAMING}.operators.stateful.StateStoreWriter"


@dataclass(frozen=True)
class StateEntry:
    """What one task of a stateful operator has stored."""

    operator: int
    partition: int
    version: int  # of the state: the number of the batch plus 1
    ids: tuple[str, ...]  # of its stores, one each, mostly one in all; empty: Spark gave none
    base: tuple[str, ...]  # the ids from which it began; empty: from no state


@dataclass(frozen=True)
class Evaluated:
    """What Spark says of the batch that it has just run."""

    entries: tuple[StateEntry, ...]  # of every task that has succeeded
    operators: tuple[int, ...]  # the numbers of the stateful operators
    watermark_ms: int  # with which the next batch begins, milliseconds since 1970; 0: none
    # Rows that the operators have left out as late. Aggregation counts the records of a group and task as one row,
    # because it combines them before it reads the state.
    late_rows: int


def evaluated(query: StreamingQuery, execution: Execution) -> Evaluated:
    """What the batch has stored; call it once the batch's only action has ended.

    Spark moves the watermark itself when the batch ends; to do so earlier changes nothing.
    """
    plan = execution.java.executedPlan()
    gateway = SparkContext._active_spark_context._gateway
    writers = [node for node in _nodes(plan) if is_instance_of(gateway, node, _WRITER)]
    numbers = [int(writer.stateInfo().get().operatorId()) for writer in writers]
    entries = [
        StateEntry(
            number,
            int(entry.partitionId()),
            int(entry.batchVersion()),
            _ids(entry.stateStoreCkptId()),
            _ids(entry.baseStateStoreCkptId()),
        )
        for number, writer in zip(numbers, writers, strict=True)
        for entry in writer.checkpointInfoAccumulator().value()
    ]
    tracker = query._jsq.streamingQuery().watermarkTracker()
    tracker.updateWatermark(plan)
    late_rows = sum(int(writer.longMetric(_LATE).value()) for writer in writers)
    return Evaluated(tuple(entries), tuple(numbers), int(tracker.currentWatermark()), late_rows)


@contextmanager
def closing_stores(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """What closes the state of queries that have ended, in this process, for many queries one after the other.

    Spark closes it within a minute. By then hundreds of stores may be open, with some megabytes each. Snapshots are
    stored before. Spark's own maintenance pauses, so that one thread at a time maintains a store.
    """
    stores = getattr(getattr(spark._jvm, _STORES), "MODULE$")
    loaded = stores.getClass().getDeclaredField("loadedProviders")
    loaded.setAccessible(True)

    def close() -> None:
        names = loaded.get(None).keys().toSeq()
        for i in range(names.size()):
            stores.doMaintenanceAndUnload(names.apply(i))

    stores.setMaintenancePaused(True)
    try:
        yield close
    finally:
        stores.setMaintenancePaused(False)


def _ids(option: Any) -> tuple[str, ...]:
    return tuple(map(str, option.get())) if option.isDefined() else ()


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))


class CheckpointFiles:
    """The files below one directory, as Spark itself reads and writes those of its logs: whole, or not at all."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._jvm: Any = spark._jvm
        self._directory = directory
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        manager = getattr(self._jvm, f"{_STREAMING}.checkpointing.CheckpointFileManager")
        self._manager = manager.create(self._path(""), configuration)

    def names(self, directory: str) -> list[str]:
        """The names of what is in a directory; none if it does not exist."""
        path = self._path(directory)
        if not self._manager.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._manager.list(path))

    def read(self, file: str) -> str | None:
        """The text of a file; None if it does not exist."""
        path = self._path(file)
        if not self._manager.exists(path):
            return None
        stream = self._manager.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, file: str, text: str) -> None:
        """Writes or replaces a file, with the directories above it."""
        path = self._path(file)
        self._manager.mkdirs(path.getParent())
        self._manager.delete(path)  # not every file system replaces a file by renaming another one
        stream = self._manager.createAtomic(path, True)
        try:
            stream.write(bytearray(text.encode()))
            stream.close()
        except BaseException:
            stream.cancel()
            raise

    def delete(self, file: str) -> None:
        """Deletes a file; does nothing if it does not exist."""
        self._manager.delete(self._path(file))

    def _path(self, file: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._directory}/{file}" if file else self._directory)
