"""The ranges of each task are read from Spark's execution, or the query stops.

The JVM's objects are stand-ins here; test_rules_ranges uses real ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Range, Task
from ackwright_stream.ranges import tasks
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


def source(number: int) -> Jvm:
    """The RDD of the Kafka source with so many partitions."""
    return Jvm("DataSourceRDD", getNumPartitions=number, dependencies=listing())


def over(rdd: Jvm, *dependencies: str, kind: str = "MapPartitionsRDD") -> Jvm:
    return Jvm(kind, dependencies=listing(*(Jvm(d, rdd=rdd) for d in dependencies)))


def coalesced(rdd: Jvm, *parents: Sequence[int]) -> Jvm:
    """What the job's own coalesce makes of it: each task runs some partitions of the source."""
    partitions = [Jvm(parentsIndices=list(indices)) for indices in parents]
    dependency = Jvm("CoalescedRDD$$anon$1", rdd=rdd)
    return Jvm("CoalescedRDD", partitions=partitions, dependencies=listing(dependency))


def executed(rdd: Jvm, *texts: str, leaf: str = "MicroBatchScanExec") -> Execution:
    """The execution of this RDD whose source has these partitions."""
    inputs = Jvm(toString=f"ArraySeq({', '.join(texts)})")
    plan = Jvm(collectLeaves=listing(Jvm(leaf, inputPartitions=inputs)))
    return Execution(Jvm(toRdd=rdd, executedPlan=plan))


def text(topic: str, partition: int, start: int = 0, until: int = 5) -> str:
    offsets = f"KafkaOffsetRange({topic}-{partition},{start},{until},None)"
    return f"KafkaBatchInputPartition({offsets},{{group.id=spark-kafka-1}},120000,true,true)"


class Pattern:
    """java.util.regex.Pattern and its Matcher, as far as the job uses them."""

    def __init__(self, expression: str) -> None:
        self._expression, self._text = re.compile(expression.replace(r"\z", r"\Z")), ""

    def matcher(self, text: str) -> Pattern:
        self._text = text
        return self

    def replaceAll(self, replacement: str) -> str:
        return self._expression.sub(replacement.replace("$1", r"\1"), self._text)


@pytest.fixture(autouse=True)
def java_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Java's classes that the job uses. Arrays.toString prints as Python does."""
    regex = SimpleNamespace(Pattern=SimpleNamespace(compile=Pattern))
    builder = SimpleNamespace(append=lambda partitions: partitions.toString())
    java = SimpleNamespace(
        util=SimpleNamespace(Arrays=SimpleNamespace(toString=str), regex=regex),
        lang=SimpleNamespace(StringBuilder=lambda: builder),
    )
    context = SimpleNamespace(_jvm=SimpleNamespace(java=java))
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)


ONE = "OneToOneDependency"
FIRST, SECOND, THIRD = Range(Lane("b.x-1", 0), 3, 9), Range(Lane("a_y", 12), 0, 5), Range(Lane("a_y", 13), 1, 2)
TEXTS = text("b.x-1", 0, 3, 9), text("a_y", 12), text("a_y", 13, 1, 2)


def test_a_task_for_each_partition_of_the_source() -> None:
    expected = (Task(0, (FIRST,), (0,)), Task(1, (SECOND,), (1,)), Task(2, (THIRD,), (2,)))
    assert tasks(executed(source(3), *TEXTS)) == expected
    assert tasks(executed(over(over(source(3), ONE), ONE), *TEXTS)) == expected


def test_merged_tasks_have_the_ranges_in_the_order_in_which_they_run() -> None:
    expected = (Task(0, (THIRD, FIRST), (2, 0)), Task(1, (SECOND,), (1,)))
    assert tasks(executed(coalesced(source(3), (2, 0), (1,)), *TEXTS)) == expected
    assert tasks(executed(over(coalesced(over(source(3), ONE), (2, 0), (1,)), ONE), *TEXTS)) == expected


def test_a_source_without_new_records_has_no_tasks() -> None:
    assert tasks(executed(source(0))) == ()
    assert tasks(executed(Jvm("ParallelCollectionRDD", dependencies=listing()), leaf="LocalTableScanExec")) == ()


@pytest.mark.parametrize(
    ("rdd", "words"),
    [
        (over(source(1), "ShuffleDependency", kind="ShuffledRowRDD"), "ShuffledRowRDD"),
        (over(source(1), ONE, ONE, kind="UnionRDD"), "2 dependencies"),
        (coalesced(coalesced(source(1), (0,)), (0,)), "CoalescedRDD"),
        (over(source(1), "NarrowDependency", kind="CartesianRDD"), "CartesianRDD"),
        (Jvm("ParallelCollectionRDD", dependencies=listing()), "0 dependencies"),
    ],
)
def test_rule_7_any_other_step_is_refused(rdd: Jvm, words: str) -> None:
    with pytest.raises(JobError) as caught:
        tasks(executed(rdd, text("t", 0)))
    assert caught.value.reason is Reason.NOT_STATELESS
    assert words in caught.value.message


@pytest.mark.parametrize("rdd", [source(2), coalesced(source(2), (0, 1))], ids=["two tasks", "one task"])
def test_rule_7_a_lane_that_is_split_is_refused(rdd: Jvm) -> None:
    with pytest.raises(JobError, match="split over several ranges") as caught:
        tasks(executed(rdd, text("t", 0, 0, 5), text("t", 0, 5, 9)))
    assert caught.value.reason is Reason.NOT_STATELESS


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
    """A batch without known ranges counts as one without records, so its records would be lost."""
    unknown = "KafkaBatchInputPartition(KafkaOffsetRange(TopicPartition(t,0),0,5,None),{},120000,true,true)"
    for texts in ([unknown], [text("t", 1), unknown]):
        with pytest.raises(JobError, match="unknown form") as caught:
            tasks(executed(source(len(texts)), *texts))
        assert caught.value.reason is Reason.UNEXPECTED
