"""Dead letters beside files and beside a staged table, without Spark: which of the two stores changes first.

tests/integration/delivery/test_dead_letters_outside.py has the same with Spark, real brokers and kills.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ackwright.planning.guarantees import DEAD_LETTER_PRODUCER, values
from ackwright_stream.dead_letters import of_text
from ackwright_stream.delivery import batch
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Cluster, DeadLetterTopic, JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range, Task
from ackwright_stream.sinks.base import StagedRows
from integration.support import delta_stores, staged_drivers
from integration.support.files_stores import A, Driver, Files, job, rows
from unit.stream.mock_brokers import MockBrokers

PRODUCE = 0  # the request's number
NOT_AUTHORISED = 29  # TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def brokers() -> MockBrokers:
    return MockBrokers()


def letters(*offsets: int) -> Iterable[pa.RecordBatch]:
    """As a task has them: read after its rows."""
    yield of_text(json.dumps({"topic": "in", "partition": 0, "offset": n, "reason": "why"}) for n in offsets)


def too_many() -> Iterable[pa.RecordBatch]:
    raise JobError(Reason.TOO_MANY_DEAD_LETTERS, "too many")
    yield


def with_letters(spec: JobSpec, brokers: MockBrokers, name: str) -> JobSpec:
    topic = DeadLetterTopic(brokers.topic(name), values(DEAD_LETTER_PRODUCER))
    sink: Any = spec.sink
    cluster = Cluster(**{**vars(spec.cluster), "bootstrap_servers": brokers.servers})
    return replace(spec, cluster=cluster, sink=replace(sink, dead_letters=topic))


def keys(brokers: MockBrokers, name: str, group: str) -> list[str]:
    """The keys of the records, without the pipeline, sorted."""
    return sorted(key.decode().removeprefix(f"{group}/") for key in brokers.keys(name))


def refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(JobError, match=words):
        call()


def test_no_file_is_there_before_the_dead_letters_are_acknowledged(brokers: MockBrokers, tmp_path: Path) -> None:
    files = Files(tmp_path / "files")
    spec = with_letters(job(tmp_path, files.path), brokers, "of-files")
    driver, span = Driver(spec), Range(A, 0, 10)
    brokers.refuse(PRODUCE, NOT_AUTHORISED)
    refused(lambda: driver.task().advance(0, [span], rows(A, 0, 10), letters(3)), "writing dead letters to of-files")
    assert (files.names(), files.temporary()) == ([], [])
    refused(lambda: driver.task().advance(0, [span], rows(A, 0, 10), too_many()), "too many")
    assert (files.names(), files.temporary(), keys(brokers, "of-files", spec.group)) == ([], [], [])
    assert driver.task().advance(0, [span], rows(A, 0, 10), letters(3, 7)) == (Outcome.DONE, 10)
    assert (files.position(), keys(brokers, "of-files", spec.group)) == (10, ["in-0@3", "in-0@7"])
    assert driver.task().advance(0, [span], rows(A, 0, 10), letters(3, 7)) == (Outcome.SKIPPED, 0)
    assert len(keys(brokers, "of-files", spec.group)) == 2, "what is skipped is not read"


def test_rows_of_the_weaker_guarantees_come_with_their_dead_letters(brokers: MockBrokers, tmp_path: Path) -> None:
    files = Files(tmp_path / "files")
    spec = with_letters(job(tmp_path, files.path), brokers, "without-position")
    driver = Driver(spec)
    write = partial(driver.task().sink.write, membership=driver.membership)
    brokers.refuse(PRODUCE, NOT_AUTHORISED)
    refused(lambda: write([A], rows(A, 0, 10), letters(3)), "writing dead letters to without-position")
    assert files.names() == []
    assert write([A], rows(A, 0, 10), letters(3)) == 10
    assert keys(brokers, "without-position", spec.group) == ["in-0@3"]


def test_a_driver_that_was_replaced_writes_dead_letters_and_no_file(brokers: MockBrokers, tmp_path: Path) -> None:
    """Its successor writes the same ones again."""
    files = Files(tmp_path / "files")
    spec = with_letters(job(tmp_path, files.path), brokers, "replaced")
    zombie = Driver(spec).task()

    def while_it_reads() -> Iterable[pa.RecordBatch]:
        yield from rows(A, 0, 10)
        Driver(spec)

    refused(lambda: zombie.advance(0, [Range(A, 0, 10)], while_it_reads(), letters(3)), "another driver has joined")
    assert files.names() == []
    span = [Range(A, 0, 7)]
    assert Driver(spec).task().advance(0, span, rows(A, 0, 7), letters(3)) == (Outcome.DONE, 7)
    assert keys(brokers, "replaced", spec.group) == ["in-0@3", "in-0@3"]


def test_a_task_of_a_table_does_not_answer_before_its_dead_letters_are_acknowledged(
    brokers: MockBrokers, tmp_path: Path
) -> None:
    table = delta_stores.Table(tmp_path / "table")
    spec = with_letters(delta_stores.job(tmp_path, table.path), brokers, "of-table")
    driver, span = staged_drivers.Driver(spec), Range(A, 0, 10)
    task = Task(0, (span,), (0,))
    work: Any = SimpleNamespace(lanes=lambda *, transactional: SimpleNamespace(sink=driver.task()))

    def staged(of_task: Iterable[pa.RecordBatch]) -> tuple[Any, ...]:
        return batch.stage(work, task, iter(staged_drivers.rows(A, 0, 10)), of_task)

    brokers.refuse(PRODUCE, NOT_AUTHORISED)
    refused(lambda: staged(letters(3)), "writing dead letters to of-table")
    refused(lambda: staged(too_many()), "too many")
    assert keys(brokers, "of-table", spec.group) == []
    outcome, records, files = staged(letters(3))
    assert (outcome, records, keys(brokers, "of-table", spec.group)) == (Outcome.DONE, 10, ["in-0@3"])
    assert table.offsets() == [], "no version has the rows yet"
    assert driver.commit([span], StagedRows((files,), records)) == (Outcome.DONE, 10)
    assert table.offsets() == list(range(10))
