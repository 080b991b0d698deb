"""A pipeline whose tasks and drivers are processes without Spark (lane_process.py), and what they have delivered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from ackwright.local.watch import Watch
from ackwright_stream.fault_points import VARIABLE
from ackwright_stream.jobspec import Cluster, Guarantee, KafkaSink, to_json
from integration.support import lane_process
from integration.support.pipelines import (
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
)
from integration.support.two_clusters import TwoClusters
from minimal_job import with_member
from waiting import ANSWER, wait_until


@dataclass(frozen=True)
class Result:
    """The result that a process printed before it ended."""

    code: int  # 128 + n if signal n killed it
    driver: int = 0
    membership: str = ""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None  # a Reason
    message: str | None = None
    fingerprint: str | None = None  # of moved positions
    lost_topic_id: str | None = None  # of a topic that was recreated


class ChildProcess(Protocol):
    """The part of subprocess.Popen that a LaneProcess uses."""

    returncode: Any

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def communicate(self, *, timeout: float | None = None) -> tuple[bytes, Any]: ...


class LaneProcess:
    """A running process and its fault points."""

    def __init__(self, process: ChildProcess, points: Path) -> None:
        self._process, self._points = process, points

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def at(self, point: str) -> bool:
        """Whether the process has reached the armed fault point."""
        return bool((self._points / f"{point}.hit").exists() and (self._points / f"{point}.hit").read_text())

    def arm(self, point: str, action: str) -> None:
        fresh = self._points / f".{point}"
        fresh.write_text(action)
        fresh.rename(self._points / point)

    def arrived(self, point: str) -> None:
        def has_arrived() -> bool:
            assert self.at(point) or not self.ended, f"ended before {point}: {self.result()}"
            return self.at(point)

        wait_until(has_arrived, f"a process at {point}")

    def release(self, point: str) -> None:
        (self._points / f"{point}.release").touch()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        if not self.ended:
            with suppress(ProcessLookupError):  # it has ended since, and the process that forked it has reaped it
                self.signal(signal.SIGKILL)
        self._process.wait(ANSWER)

    def result(self, timeout: float = 240) -> Result:
        """Waits for the end of the process (timeout in seconds); returns its result."""
        out, _ = self._process.communicate(timeout=timeout)
        code = self._process.returncode
        if code < 0 or not out:
            return Result(code if code >= 0 else 128 - code)
        return Result(code=code, **json.loads(out.decode().splitlines()[-1]))


@dataclass
class LanePipeline:
    """A pipeline with a full source and an empty sink of as many partitions; partitions are preserved."""

    bootstrap: str  # of the sink and of the positions
    directory: Path
    job: Any
    partitions: int
    count: int
    watch: Any
    started: list[LaneProcess] = field(default_factory=list)
    marker_prefix: str = ""  # of the topic that carries the positions, on two clusters

    @property
    def source(self) -> str:
        return str(self.job.source.topics[0])

    @property
    def marker(self) -> str:
        """The topic whose offsets of the group are the positions: the source's, unless the sink has its own cluster."""
        return self.marker_prefix + self.source

    @property
    def sink(self) -> str:
        return str(self.job.sink_of(KafkaSink).topic)

    def task(
        self, lane: int, start: int, until: int, driver: Result, points: Mapping[str, str] | None = None, **options: Any
    ) -> LaneProcess:
        """A task of the driver, whose slot is the number of its only lane."""
        of_driver = {"driver": driver.driver, "membership": driver.membership}
        return self._start("task", points, lane=lane, start=start, until=until, **of_driver, **options)

    def drive(self, until: int | None = None, points: Mapping[str, str] | None = None, **options: Any) -> LaneProcess:
        """A driver that delivers up to `until` of each lane; None: to its count, with read=True to its end."""
        end = self.count if until is None and not options.get("read") else until
        return self._start("drive", points, until=end, **options)

    def run_driver(self, until: int | None = None, **options: Any) -> Result:
        """Runs a new driver that takes over the pipeline and delivers up to `until`; returns its result."""
        result = self.drive(until, **options).result()
        assert result.code == 0, result
        return result

    def positions(self) -> dict[int, int]:
        return positions_of(self.bootstrap, self.job.group, self.marker, self.partitions)

    def accept_loss(self, topic_id: str) -> None:
        """Accepts the loss of the source topic with this id, as ackwright accept-topic does."""
        self._replace(accepted_losses={self.source: topic_id})

    def connect(self, to_sink: Cluster) -> None:
        """Gives the processes that start from now on this connection to the sink's own cluster."""
        self._replace(sink=replace(self.job.sink_of(KafkaSink), cluster=to_sink))

    def _replace(self, **changes: Any) -> None:
        self.job = replace(self.job, **changes)
        (self.directory / "job.json").write_text(to_json(self.job))

    def _start(self, what: str, points: Mapping[str, str] | None, **options: Any) -> LaneProcess:
        armed = self.directory / f"points-{len(self.started)}"
        armed.mkdir(parents=True)
        for point, action in (points or {}).items():
            (armed / point).write_text(action)
        argv = [sys.executable, lane_process.__file__, what, "--jobspec", str(self.directory / "job.json")]
        for name, value in options.items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                argv.append(option)
            elif value is not None and value is not False:
                argv += [option, str(value)]
        with (self.directory / f"process-{len(self.started)}.log").open("wb") as log:
            environment = {**lane_process.environment(), VARIABLE: str(armed)}
            process = self.watch.start(argv, env=environment, stdout=subprocess.PIPE, stderr=log)
        self.started.append(LaneProcess(process, armed))
        return self.started[-1]


@contextmanager
def lane_pipeline(
    bootstrap: str,
    directory: Path,
    guarantee: str,
    partitions: int = 2,
    count: int = 300,
    *,
    slots: int | None = None,
    to: TwoClusters | None = None,
) -> Iterator[LanePipeline]:
    """A pipeline with `count` records in each source partition. Processes that still run at the end are killed.

    slots: tasks of a batch; None: one for each lane. to: the sink's own cluster, with that of the source (`bootstrap`).
    """
    name = f"lane-{uuid.uuid4().hex[:10]}"
    source, sink = f"{name}-in", f"{name}-out"
    if to:
        to.create_topics(source, sink, partitions)
        declared = to.document(name, guarantee, source, sink)
    else:
        create_topics(bootstrap, source, sink, partitions=partitions)
        declared = document(bootstrap, name, guarantee, source, sink)
    feed(bootstrap, source, partitions, 0, count)
    job = job_of(declared, directory)
    # Tasks still run after their driver's process has ended, and machines are slow.
    job = with_member(replace(job, slots=slots or partitions), session_timeout_ms="300000")
    home = directory / name
    home.mkdir(parents=True)
    (home / "job.json").write_text(to_json(job))
    at = to.sink.bootstrap_servers if to else bootstrap
    with Watch() as watch:
        prefix = to.marker_prefix if to else ""
        yield LanePipeline(at, home, job, partitions, count, watch, marker_prefix=prefix)


def watched(pipeline: LanePipeline) -> Any:
    """A Watcher of the pipeline."""
    return Watcher(pipeline.bootstrap, pipeline.job.group, pipeline.marker, pipeline.sink, pipeline.partitions)


def assert_exactly_once(pipeline: LanePipeline, watcher: Any) -> None:
    """Asserts that the sink has each record once, in order, for a final and for a concurrent reader.

    Positions are at the ends and never moved backwards, and no transaction hangs.
    """
    everything = pipeline.partitions * pipeline.count
    final = read(pipeline.bootstrap, pipeline.sink)
    assert judge(final, pipeline.partitions, pipeline.count) == Verdict(0, 0, 0, 0)
    wait_until(lambda: len(watcher.records) >= everything, "the concurrent reader has every record")
    assert judge(watcher.records, pipeline.partitions, pipeline.count) == Verdict(0, 0, 0, 0)
    assert pipeline.positions() == dict.fromkeys(range(pipeline.partitions), pipeline.count)
    assert watcher.backwards == []
    assert_nothing_hangs(pipeline.bootstrap, pipeline.sink, pipeline.marker)


def assert_guaranteed(pipeline: LanePipeline, watcher: Any) -> None:
    """Asserts what the pipeline's guarantee says of lost and duplicated records.

    Positions are at the ends and never moved backwards, and no transaction hangs.
    """
    if pipeline.job.guarantee is Guarantee.EXACTLY_ONCE:
        assert_exactly_once(pipeline, watcher)
        return
    verdict = judge(read(pipeline.bootstrap, pipeline.sink), pipeline.partitions, pipeline.count)
    assert verdict.unexpected == 0
    assert (verdict.duplicated if pipeline.job.guarantee is Guarantee.AT_MOST_ONCE else verdict.lost) == 0
    assert pipeline.positions() == dict.fromkeys(range(pipeline.partitions), pipeline.count)
    assert watcher.backwards == []
    assert_nothing_hangs(pipeline.bootstrap, pipeline.sink, pipeline.marker)


def lost_by_lane(pipeline: LanePipeline, records: Any) -> dict[int, int]:
    """The number of records of each lane that are not in the sink."""
    delivered = {r.value for r in records}
    return {
        p: sum(f"{p}:{n}".encode() not in delivered for n in range(pipeline.count)) for p in range(pipeline.partitions)
    }
