"""Tasks and lanes match one to one, or the query stops.

The JVM's objects are stand-ins here; test_rules_ranges uses real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Range
from ackwright_stream.ranges import task_ranges
from ackwright_stream.spark_internals.execution import Execution, running_execution


class Jvm:
    """An object with a class, whose methods return the values of the arguments."""

    def __init__(self, kind: str = "", **answers: Any) -> None:
        self._answers = {**answers, "getSimpleName": kind}

    def getClass(self) -> Jvm:
        return Jvm(self._answers["getSimpleName"])

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._answers[name]


def listing(*items: Any) -> Jvm:
    shown = ", ".join(f"org.apache.spark.{item.getClass().getSimpleName()}@5f3a" for item in items)
    return Jvm(
        size=len(items), head=items[0] if items else None, apply=items[0] if items else None, toString=f"List({shown})"
    )


def source(tasks: Sequence[Sequence[str]]) -> Jvm:
    """The RDD of the Kafka source: for each task the texts of its ranges."""
    partitions = []
    for texts in tasks:
        inputs = listing(*(Jvm(offsetRange=Jvm(toString=text)) for text in texts))
        partitions.append(Jvm(inputPartitions=inputs))
    return Jvm("DataSourceRDD", partitions=partitions, dependencies=listing())


def over(rdd: Jvm, *dependencies: str, kind: str = "MapPartitionsRDD") -> Jvm:
    return Jvm(kind, partitions=rdd.partitions(), dependencies=listing(*(Jvm(d, rdd=rdd) for d in dependencies)))


def executed(rdd: Jvm) -> Execution:
    return Execution(Jvm(toRdd=rdd))


def text(topic: str, partition: int, start: int = 0, until: int = 5) -> str:
    return f"KafkaOffsetRange({topic}-{partition},{start},{until},None)"


ONE = "OneToOneDependency"


def test_a_range_per_task_in_the_order_of_the_tasks() -> None:
    rdd = source([[text("b.x-1", 0, 3, 9)], [text("a_y", 12)]])
    expected = (Range(Lane("b.x-1", 0), 3, 9), Range(Lane("a_y", 12), 0, 5))
    assert task_ranges(executed(rdd)) == expected
    assert task_ranges(executed(over(over(rdd, ONE), ONE))) == expected


@pytest.mark.parametrize(
    ("rdd", "words"),
    [
        (source([[text("t", 0, 0, 5)], [text("t", 0, 5, 9)]]), "split over several tasks"),
        (source([[text("t", 0), text("t", 1)]]), "reads 2 ranges"),
        (source([[]]), "reads 0 ranges"),
        (over(source([[text("t", 0)]]), "ShuffleDependency", kind="ShuffledRowRDD"), "ShuffledRowRDD"),
        (over(source([[text("t", 0)]]), ONE, ONE, kind="UnionRDD"), "2 dependencies"),
        (over(source([[text("t", 0)]]), "NarrowDependency", kind="CoalescedRDD"), "CoalescedRDD"),
        (Jvm("ParallelCollectionRDD", dependencies=listing()), "0 dependencies"),
    ],
)
def test_rule_7_anything_else_is_refused(rdd: Jvm, words: str) -> None:
    with pytest.raises(JobError) as caught:
        task_ranges(executed(rdd))
    assert caught.value.reason is Reason.NOT_STATELESS
    assert words in caught.value.message


@pytest.mark.parametrize("same", [True, False])
def test_rows_of_another_execution_are_refused(same: bool) -> None:
    """Another batch's, say: its records would be written, and these positions moved."""
    execution = Jvm(toRdd=Jvm())
    rows: Any = SimpleNamespace(_jdf=Jvm(queryExecution=Jvm(logical=Jvm(rdd=Jvm(equals=same)))))
    query: Any = SimpleNamespace(_jsq=Jvm(streamingQuery=Jvm(lastExecution=execution)))
    if same:
        assert running_execution(rows, query).java is execution
        return
    with pytest.raises(JobError) as caught:
        running_execution(rows, query)
    assert caught.value.reason is Reason.UNEXPECTED


def test_an_unknown_form_of_a_range_is_not_guessed_at() -> None:
    with pytest.raises(JobError) as caught:
        task_ranges(executed(source([["KafkaOffsetRange(TopicPartition(t,0),0,5,None)"]])))
    assert caught.value.reason is Reason.UNEXPECTED
