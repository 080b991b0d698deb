"""Files of a stateful pipeline's state are damaged or missing: the driver halts, and a person accepts the loss.

The last file of each store is there by its name, so only Spark notices when it loads the state. See
docs/stateful.md#if-the-state-is-lost.
"""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Failure
from integration.support.pipelines import read
from integration.support.stateful_pipelines import StatefulPipeline, stateful_pipeline
from sql_texts import COUNTS_BY_KEY
from waiting import WAIT, wait_until

SNAPSHOTS = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[StatefulPipeline]:
    with stateful_pipeline(kafka, tmp_path, f"damage-{uuid.uuid4().hex[:8]}") as created:
        created.spec = replace(created.spec, transform=replace(created.spec.transform, sql=COUNTS_BY_KEY))
        yield created


def version(file: Path) -> int:
    """The version of the state that a file is of; -1 for another file."""
    number = file.name.partition("_")[0]
    return int(number) if number.isdigit() else -1


def files(pipeline: StatefulPipeline, ending: str) -> list[Path]:
    """The files of the first partition of the decided state that have this ending, in the order of their versions."""
    partition = pipeline.state / pipeline.last_decision().directory / "state" / "0" / "0"
    return sorted(partition.glob(f"*{ending}"), key=version)


def truncated(pipeline: StatefulPipeline) -> None:
    last = files(pipeline, ".changelog")[-1]
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])


def emptied(pipeline: StatefulPipeline) -> None:
    """As a file system may leave it after a loss of power, without its checksum."""
    last = files(pipeline, ".changelog")[-1]
    last.write_bytes(b"")
    last.with_name(f"{last.name}.crc").unlink()


def missing(pipeline: StatefulPipeline) -> None:
    """One in the middle is missing."""
    first, *middle, last = files(pipeline, ".changelog")
    assert middle, (first, last)
    middle[0].unlink()


def flipped(pipeline: StatefulPipeline) -> None:
    """The newest snapshot has other bytes."""
    snapshot = files(pipeline, ".zip")[-1]
    content = bytearray(snapshot.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 2] = (b ^ 0xFF for b in content[middle : middle + 2])
    snapshot.write_bytes(content)


def types(pipeline: StatefulPipeline) -> Path:
    """The file with the types of the state, of which each operator has one."""
    [file] = (pipeline.state / pipeline.last_decision().directory / "state").glob("0/*/_metadata/schema")
    return file


def types_emptied(pipeline: StatefulPipeline) -> None:
    types(pipeline).write_bytes(b"")


def types_truncated(pipeline: StatefulPipeline) -> None:
    content = types(pipeline).read_bytes()
    types(pipeline).write_bytes(content[: len(content) // 2])


def types_random(pipeline: StatefulPipeline) -> None:
    types(pipeline).write_bytes(random.Random(7).randbytes(200))


def with_snapshots(pipeline: StatefulPipeline) -> None:
    """A run that stores a snapshot of the decided state's first partition."""
    pipeline.spec = replace(pipeline.spec, spark={**pipeline.spec.spark, **SNAPSHOTS})
    with pipeline.life() as job:
        for _ in range(4):
            pipeline.feed(100)
            pipeline.caught_up(job)
        wait_until(lambda: files(pipeline, ".zip"), "a snapshot is stored")
        pipeline.drain(job)


def halted(pipeline: StatefulPipeline) -> Failure:
    """The failure of a driver that halts when it has further records."""
    pipeline.feed(100)
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    return failure


def last_counts(pipeline: StatefulPipeline) -> dict[bytes | None, int]:
    return {record.key: int(record.value or b"") for record in read(pipeline.servers, pipeline.sink)}


def counts_of(pipeline: StatefulPipeline, number: int) -> dict[bytes | None, int]:
    """So many records of each partition."""
    return {f"p{p}".encode(): number for p in range(pipeline.partitions)}


@pytest.mark.parametrize(
    "damage",
    [truncated, emptied, missing, flipped, types_emptied, types_truncated, types_random],
    ids=lambda d: d.__name__,
)
def test_damaged_state_halts_and_starts_empty_once_its_loss_is_accepted(
    pipeline: StatefulPipeline, damage: Callable[[StatefulPipeline], None]
) -> None:
    if damage is flipped:
        with_snapshots(pipeline)
    else:
        pipeline.drained()
    before = read(pipeline.servers, pipeline.sink)
    damage(pipeline)
    failure = halted(pipeline)
    assert failure.reason is Reason.STATE_LOST
    assert "cannot be read" in failure.message
    assert failure.fingerprint is not None
    assert read(pipeline.servers, pipeline.sink) == before

    pipeline.spec = replace(pipeline.spec, accepted_state_loss=failure.fingerprint)
    pipeline.drained()
    assert last_counts(pipeline) == counts_of(pipeline, 100)
    assert pipeline.last_decision().accepted_loss == failure.fingerprint


def test_a_copy_of_damaged_state_continues_whatever_was_accepted(pipeline: StatefulPipeline, tmp_path: Path) -> None:
    pipeline.drained()
    shutil.copytree(pipeline.state, tmp_path / "copy")
    truncated(pipeline)
    failure = halted(pipeline)
    shutil.rmtree(pipeline.state)
    (tmp_path / "copy").rename(pipeline.state)
    pipeline.spec = replace(pipeline.spec, accepted_state_loss=failure.fingerprint)
    pipeline.drained()
    assert last_counts(pipeline) == counts_of(pipeline, pipeline.fed)
