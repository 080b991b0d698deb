"""A campaign of a stateful pipeline: drivers are killed at random, two drivers run at once, and the state is lost.

A windowed count runs on Spark in each round. An independent count of what was sent judges its output
(stateful_account.py), and so does the audit.
"""

from __future__ import annotations

import json
import random
import shutil
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.supervise import Job
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, Guarantee, KafkaSink, Reason
from ackwright_stream.reports import Verdict
from chaos.account import Counts
from chaos.campaign import Outcome
from chaos.stateful_account import SECONDS, count_span, group_of, judge
from chaos.stateful_plan import LOSSES, Action, Round, kills_of, plan
from integration.support.driver_lives import DriverLives
from integration.support.pipelines import assert_nothing_hangs, create_topics, document, job_of, positions_of, read
from integration.support.stateful_pipelines import create_decisions
from waiting import ANSWER, WAIT, wait_until

PARTITIONS = 3
FEED = 60  # records for each partition before a kill
LIMIT = 100  # offsets of a batch
LONGEST_S = 10.0  # how long a driver lives that is killed at any time, once it owns the pipeline
# Points that a driver passes when it takes the pipeline, and in each batch.
TAKEOVER = ("after-offsets", "before-commit", "after-commit")
BATCH = ("batch-start", "stored", "evaluated", "after-init", "after-read", *TAKEOVER, "mid-produce", "batch-end")
SQL = """
    SELECT concat_ws(' ', id, CAST(unix_timestamp(window.start) AS STRING)) AS key, CAST(count(*) AS STRING) AS value
    FROM source GROUP BY id, window(at, '60 seconds')
"""


@dataclass
class WindowedCounts(DriverLives):
    """One pipeline over the lives of its drivers, and the account of its output."""

    state: Path
    begins: dict[int, int] = field(default_factory=dict, init=False)  # of the span, by partition
    judged: dict[int, int] = field(default_factory=dict, init=False)  # offsets of the sink behind earlier spans
    counts: Counts = field(default_factory=Counts, init=False)  # of earlier spans

    @property
    def sink(self) -> str:
        return str(self.spec.sink_of(KafkaSink).topic)

    def feed(self, count: int = FEED) -> None:
        """Sends so many further records to each partition, in the order of their event times."""
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "linger.ms": 5})
        for n in range(self.fed, self.fed + count):
            for p in range(self.partitions):
                at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(n * SECONDS))
                value = json.dumps({"id": group_of(p, n)[0], "at": at}).encode()
                producer.produce(self.source, value, partition=p)
        assert producer.flush(ANSWER) == 0, "not all records were written"
        self.fed += count

    def end_span(self, ends: Mapping[int, int]) -> None:
        """Judges what was written since the last span. ends: the positions, behind which the next span begins."""
        assert_nothing_hangs(self.servers, self.sink)
        output = [r for r in read(self.servers, self.sink) if r.offset >= self.judged.get(r.partition, 0)]
        written = [((r.key or b"").decode(), int(r.value or b"")) for r in output]
        self.counts += judge(count_span(self.begins, ends), written)
        self.begins = dict(ends)
        self.judged |= {r.partition: r.offset + 1 for r in output}


class StatefulCampaign:
    """The campaign of a stateful pipeline."""

    def __init__(self, kafka: EmbeddedKafka, spark: SparkSession, seed: int, tell: Callable[[str], None]) -> None:
        self._kafka, self._spark, self._seed, self._tell = kafka, spark, seed, tell
        self._kills: Counter[str] = Counter()
        self._losses: Counter[str] = Counter()

    def run(self, directory: Path, kills: int) -> Outcome:
        """Makes so many kills."""
        started, counts = time.monotonic(), Counts()
        problems: list[str] = []
        rounds = plan(kills, self._seed)
        for round_ in rounds:
            of_round, of_this = self._round(directory, round_)
            counts += of_round
            problems += [f"round {round_.number}: {problem}" for problem in of_this]
        seconds = time.monotonic() - started
        kinds = (self._kills, self._losses)
        return Outcome(Guarantee.EXACTLY_ONCE, self._seed, *kinds, counts, len(rounds), seconds, tuple(problems))

    def _round(self, directory: Path, round_: Round) -> tuple[Counts, list[str]]:
        started, counts = time.monotonic(), Counts()
        problems: list[str] = []
        try:
            counts, problems = self._act_and_judge(directory, round_)
        except Exception as e:  # the next round is worth running all the same
            problems.append(f"broke off, and its records are not counted: {type(e).__name__}: {e}")
            self._tell(traceback.format_exc())
        self._tell(
            f"stateful round {round_.number}: {round_.kills} kills, {counts.expected} records, {counts.lost} lost, "
            f"{counts.duplicated} duplicated, {time.monotonic() - started:.0f} s"
        )
        return counts, problems

    def _act_and_judge(self, directory: Path, round_: Round) -> tuple[Counts, list[str]]:
        dice = random.Random(f"{self._seed}/stateful/{round_.number}")
        p = new_counts(self._kafka.bootstrap_servers, directory)
        actions = Actions(p, dice)
        for action in round_.actions:
            started = time.monotonic()
            actions.make(action)
            (self._losses if action in LOSSES else self._kills)[action.value] += kills_of(action) or 1
            self._tell(f"    {action.value}: {time.monotonic() - started:.1f} s")
        actions.settle()
        p.end_span(positions(p))
        return p.counts, [*problems_of(p.counts), *self._audited(p, round_)]

    def _audited(self, p: WindowedCounts, round_: Round) -> list[str]:
        """What the audit has to say: it does not judge output of a state whose loss was accepted."""
        report = audit(self._spark, p.spec)
        expected = Verdict.UNPROVEN if Action.DELETED in round_.actions else Verdict.HELD
        damage = (report.lost, report.duplicated, report.unexpected)
        return [] if report.verdict is expected and not any(damage) else [f"the audit says {report}"]


class Actions:
    """The kills and losses of one round."""

    def __init__(self, p: WindowedCounts, dice: random.Random) -> None:
        self._p, self._dice = p, dice

    def make(self, action: Action) -> None:
        """Raises AssertionError if something happens that must not."""
        self._p.feed()
        {
            Action.AT_POINT: self._at_point,
            Action.ANY_TIME: self._at_any_time,
            Action.WORKER: self._worker,
            Action.ZOMBIE: self._zombie,
            Action.RACE: self._race,
            Action.DELETED: self._deleted,
            Action.OLDER: self._older,
        }[action]()

    def settle(self) -> None:
        """A driver that delivers everything, and is killed behind the last batch."""
        with self._p.life() as job:
            self._p.caught_up(job)

    def _at_point(self) -> None:
        p = self._p
        with p.life() as job:
            if self._dice.random() < 0.3:
                job.arrived(job.arm(self._dice.choice(TAKEOVER)))
                return
            p.caught_up(job)
            hit = job.arm(self._dice.choice(BATCH))
            p.feed()
            job.arrived(hit)

    def _at_any_time(self) -> None:
        with self._p.life() as job:
            job.until(lambda now: now["driver"], "the driver owns the pipeline")
            time.sleep(self._dice.uniform(0.0, LONGEST_S))

    def _worker(self) -> None:
        p = self._p
        with p.life() as job:
            p.caught_up(job)
            p.kill_tasks(job, "stored")

    def _zombie(self) -> None:
        p = self._p
        with p.overtaken(self._dice.choice(BATCH)) as driver:
            p.feed()
            p.caught_up(driver)

    def _race(self) -> None:
        """Each takes the pipeline from the other. One may end as superseded before it is killed."""
        with self._p.life() as one, self._p.life() as other:
            jobs = (one.job, other.job)
            wait_until(lambda: all(map(has_owned, jobs)), "each driver owns the pipeline, or has owned it")
            time.sleep(self._dice.uniform(0.0, LONGEST_S))
            for job in jobs:
                assert job.poll() in (None, ExitCode.SUPERSEDED), job.failure()

    def _deleted(self) -> None:
        p = self._p
        self.settle()
        shutil.rmtree(p.state)
        p.feed()
        p.spec = replace(p.spec, accepted_state_loss=self._halted())
        p.end_span(positions(p))

    def _older(self) -> None:
        """The next driver is killed when a batch has run again."""
        p, older = self._p, self._p.directory / "older"
        self.settle()
        shutil.copytree(p.state, older)
        p.feed()
        self.settle()
        shutil.rmtree(p.state)
        older.rename(p.state)
        p.feed()
        with p.life() as job:
            job.arrived(job.arm("replayed"))

    def _halted(self) -> str | None:
        """The fingerprint of the lost state, of a driver that halts."""
        with self._p.life() as job:
            assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
            failure = job.job.failure()
        assert failure is not None
        assert failure.reason is Reason.STATE_LOST, failure
        return failure.fingerprint


def has_owned(job: Job) -> bool:
    """Whether a driver owns the pipeline, or has ended."""
    if job.poll() is not None:
        return True
    progress = job.progress()
    return progress is not None and progress.driver > 0


def positions(p: WindowedCounts) -> dict[int, int]:
    return positions_of(p.servers, p.spec.group, p.source, p.partitions)


def problems_of(counts: Counts) -> list[str]:
    """Every reason for which exactly-once did not hold."""
    numbers = {
        "lost": counts.lost,
        "counted twice": counts.duplicated,
        "in groups of no record": counts.unexpected,
        "in counts that do not rise": counts.disordered,
    }
    return [f"{number} records {what}" for what, number in numbers.items() if number]


def new_counts(servers: str, directory: Path) -> WindowedCounts:
    """A new pipeline with empty topics."""
    name = f"chaos-{uuid.uuid4().hex[:10]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=PARTITIONS)
    create_decisions(servers)
    spec = document(servers, name, "exactly-once", source, sink)
    spec["spec"] |= {
        "source": {
            "topics": [source],
            "format": "json",
            "schema": "id STRING, at TIMESTAMP",
            "maxOffsetsPerTrigger": LIMIT,
            # Partitions that are behind others are not late.
            "eventTime": {"column": "at", "watermark": "2h"},
        },
        "transform": {"sql": SQL},
        "state": {"partitions": 2, "outputMode": "update"},
        "sink": {"kafka": {"topic": sink}},
        "checkpoint": {"volume": {"size": "1Gi"}},
    }
    home = directory / name
    job = job_of(spec, home)
    assert job.state is not None
    state = home / "state"
    job = replace(job, state=replace(job.state, checkpoint=str(state)))
    return WindowedCounts(servers, home, job, PARTITIONS, state=state)
