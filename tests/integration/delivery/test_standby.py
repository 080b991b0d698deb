"""A standby driver with Spark started, which takes over when the driver is gone (spec.standby)."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode, JobSpec, KafkaSink
from integration.support.pipelines import (
    LANES,
    Running,
    Verdict,
    Watcher,
    assert_nothing_hangs,
    create_topics,
    document,
    feed,
    job_of,
    judge,
    positions_of,
    read,
    running,
)
from integration.support.positions_log import committed
from waiting import WAIT, wait_until

PARTITIONS = 3


@dataclass
class Pair:
    """One pipeline whose drivers are started and killed one after the other."""

    servers: str
    directory: Path
    spec: JobSpec
    watcher: Watcher
    stack: ExitStack
    fed: int = 0
    started: list[Running] = field(default_factory=list)

    def start(self) -> Running:
        """A driver, whose directory has its number from 0."""
        directory = self.directory / str(len(self.started))
        job = self.stack.enter_context(running(self.spec, directory))
        self.started.append(job)
        return job

    def active(self) -> Running:
        """A driver that has delivered everything."""
        job = self.start()
        self.feed()
        job.until_position(PARTITIONS, self.fed)
        return job

    def standby(self) -> Running:
        """A driver that is ready to take over."""
        job = self.start()
        job.until(lambda p: p["state"] == "standby", "a standby")
        return job

    def feed(self, count: int = 500) -> None:
        feed(self.servers, self.spec.source.topics[0], PARTITIONS, self.fed, count)
        self.fed += count

    def positions(self) -> dict[int, int]:
        return positions_of(self.servers, self.spec.group, self.spec.source.topics[0], PARTITIONS)

    def until_delivered(self) -> None:
        wait_until(lambda: self.positions() == dict.fromkeys(range(PARTITIONS), self.fed), "all is delivered")

    def recorded(self) -> tuple[dict[int, list[int]], list[bytes | None]]:
        """All that drivers of the pipeline have ever committed or recorded."""
        source = self.spec.source.topics[0]
        prefix = f"{self.spec.group}/".encode()
        lanes = [r.value for r in read(self.servers, LANES) if (r.key or b"").startswith(prefix)]
        return committed(self.servers, self.spec.group, source), lanes

    def assert_exactly_once(self) -> None:
        self.until_delivered()
        sink, source = str(self.spec.sink_of(KafkaSink).topic), self.spec.source.topics[0]
        assert judge(read(self.servers, sink), PARTITIONS, self.fed) == Verdict(0, 0, 0, 0)
        assert self.watcher.backwards == []
        assert_nothing_hangs(self.servers, sink, source)


@contextmanager
def pair(kafka: EmbeddedKafka, directory: Path, guarantee: str = "exactly-once") -> Iterator[Pair]:
    servers, name = kafka.bootstrap_servers, f"standby-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=PARTITIONS)
    spec = job_of(document(servers, name, guarantee, source, sink, standby=True), directory)
    with Watcher(servers, spec.group, source, sink, PARTITIONS) as watcher, ExitStack() as stack:
        yield Pair(servers, directory, spec, watcher, stack)


@pytest.mark.parametrize("takeovers", [1, 2])
def test_the_standby_takes_over_from_a_killed_driver(kafka: EmbeddedKafka, tmp_path: Path, takeovers: int) -> None:
    with pair(kafka, tmp_path) as p:
        first = p.active()
        before_standby = p.recorded()
        second = p.standby()
        assert p.recorded() == before_standby
        hit = first.arm("before-commit", lane=f"{p.spec.source.topics[0]}-0")
        p.feed()
        first.arrived(hit)
        before = p.positions()
        assert second.progress()["driver"] == 0
        first.job.kill()
        p.until_delivered()
        assert second.progress()["driver"] == 2
        assert min(before.values()) < p.fed
        last = second
        if takeovers == 2:
            last = p.standby()
            p.feed()
            p.until_delivered()
            second.job.kill()
        p.feed()
        p.until_delivered()
        assert last.progress()["driver"] == 1 + takeovers
        p.assert_exactly_once()


@pytest.mark.parametrize(("guarantee", "point"), [("at-least-once", "before-advance"), ("at-most-once", "claimed")])
def test_the_standby_keeps_the_order_of_the_other_guarantees(
    kafka: EmbeddedKafka, tmp_path: Path, guarantee: str, point: str
) -> None:
    """The kill is where the guarantee allows duplicates, or a loss, so there are some, and none of the other kind."""
    with pair(kafka, tmp_path, guarantee) as p:
        first = p.active()
        second = p.standby()
        hit = first.arm(point)
        p.feed()
        first.arrived(hit)
        first.job.kill()
        # Not until the positions are at the end: the killed driver may have claimed them all.
        second.until(lambda now: now["driver"] == 2, "the standby owns the pipeline")
        p.feed()
        p.until_delivered()
        second.job.drain()
        assert second.job.wait(WAIT) == ExitCode.OK
        verdict = judge(read(p.servers, str(p.spec.sink_of(KafkaSink).topic)), PARTITIONS, p.fed)
        assert verdict.unexpected == 0
        assert (verdict.lost > 0, verdict.duplicated > 0) == (guarantee == "at-most-once", guarantee == "at-least-once")


@pytest.mark.parametrize("suspended", [False, True])
def test_only_a_silent_driver_is_deposed_and_then_stands_by_itself(
    kafka: EmbeddedKafka, tmp_path: Path, *, suspended: bool
) -> None:
    """A process that is stopped keeps its connections: nothing but its silence tells."""
    with pair(kafka, tmp_path) as p:
        first = p.active()
        second = p.standby()
        if suspended:
            hit = first.arm("before-commit", lane=f"{p.spec.source.topics[0]}-0")
            p.feed()
            first.arrived(hit)
            first.suspend()
            p.until_delivered()
            first.release("before-commit", lane=f"{p.spec.source.topics[0]}-0")
            first.resume()
            first.until(lambda now: now["state"] == "standby", "the deposed driver stands by")
            assert second.progress()["driver"] == 2
        else:
            p.feed()
            p.until_delivered()
            assert (first.progress()["driver"], second.progress()["driver"]) == (1, 0)
            first.job.drain()
            assert first.job.wait(WAIT) == ExitCode.OK
            second.until(lambda now: now["state"] == "running", "the standby takes over")
        p.feed()
        p.assert_exactly_once()
        assert second.progress()["state"] == "running"


def test_a_driver_that_returns_after_its_successor_has_stopped_takes_the_pipeline_as_another_one(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    with pair(kafka, tmp_path) as p:
        first = p.active()
        second = p.standby()
        first.suspend()
        second.until(lambda now: now["state"] == "running", "the standby takes over")
        p.feed()
        p.until_delivered()
        second.job.drain()
        assert second.job.wait(WAIT) == ExitCode.OK
        first.resume()
        first.until(lambda now: now["driver"] == 3, "the first driver owns the pipeline again")
        p.feed()
        p.assert_exactly_once()


def test_a_restarted_query_and_a_failed_standby_leave_the_pipeline_with_its_driver(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """A query that is restarted joins again, which the standby must not take for the driver's end."""
    with pair(kafka, tmp_path) as p:
        first = p.active()
        second = p.standby()
        for attempt in range(int(p.spec.spark["spark.task.maxFailures"])):
            hit = first.arm("before-commit", "kill", lane=f"{p.spec.source.topics[0]}-0")
            if attempt == 0:
                p.feed()
            first.arrived(hit)
        first.until(lambda now: now["restarts"] and now["state"] == "running", "the query has restarted")
        p.until_delivered()
        assert (first.progress()["driver"], second.progress()["state"]) == (1, "standby")
        [jvm] = second.jvms()
        os.kill(jvm, signal.SIGKILL)
        assert second.job.wait(WAIT) == ExitCode.FAILED  # without Spark it could not take over
        p.feed()
        p.assert_exactly_once()


def test_control_without_a_standby_a_second_driver_deposes_the_first(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with pair(kafka, tmp_path) as p:
        p.spec = replace(p.spec, standby=None)
        first = p.active()
        second = p.start()
        second.until(lambda now: now["driver"] == 2, "the second driver owns the pipeline")
        assert first.job.wait(WAIT) == ExitCode.SUPERSEDED
