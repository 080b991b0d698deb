"""Random kills and faults, one after the other, while records flow; then a count of lost and duplicated records.

The seed decides which kill, where and when. The machine decides how the processes interleave, so a seed repeats the
plan of a campaign and not each of its steps.

An independent reader judges each round: it compares what was sent, and what a person has decided meanwhile, with what
is in the sink (account.py). It shares no code with the job.
"""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import Guarantee
from chaos.account import Counts
from chaos.faults import Faults
from chaos.kills import Kills
from chaos.pipeline import open_pipeline
from chaos.plan import DESCRIPTIONS, Action, Fault, Kill, Round, Storm, plan
from chaos.resident import Resident
from chaos.soak import Sampler, unjudged


@dataclass(frozen=True)
class Outcome:
    """One guarantee's campaign. problems: all that must not be, in words; empty if the guarantee held."""

    guarantee: Guarantee
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)
    rounds: int = 0
    seconds: float = 0.0
    problems: Sequence[str] = field(default=())


class Campaign:
    """The campaign of one guarantee. It kills brokers as well, so it needs a dedicated cluster."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        guarantee: Guarantee,
        seed: int,
        tell: Callable[[str], None],
        *,
        faults: Sequence[Fault] = (),
        spark: bool = True,
        unsafe: str | None = None,  # a rule that is off, for a negative control
    ) -> None:
        self._kafka, self._guarantee, self._seed, self._tell = kafka, guarantee, seed, tell
        self._faults, self._spark, self._unsafe = faults, spark, unsafe
        self._kill_counts: Counter[str] = Counter()
        self._fault_counts: Counter[str] = Counter()

    def run(self, directory: Path, kills: int) -> Outcome:
        """Makes so many kills."""
        rounds = plan(self._guarantee, kills, self._seed, self._faults, spark=self._spark)
        return self._run(directory, rounds, lambda: False)

    def soak(self, directory: Path, seconds: float) -> tuple[Outcome, Sampler]:
        """Makes kills until the time is over, beside a complete job that runs all the time and is sampled.

        Rounds without Spark: its starts would take the time from the kills.
        """
        end = time.monotonic() + seconds
        bootstrap = self._kafka.bootstrap_servers
        rounds = plan(self._guarantee, 100_000, self._seed, self._faults, spark=False)
        with Resident(bootstrap, self._guarantee, directory, random.Random(self._seed), self._tell) as resident:

            def processes() -> dict[str, int]:
                brokers = {f"broker {b.node}": b.pid for b in self._kafka.brokers if b.alive}
                return {**brokers, **resident.processes()}

            with Sampler(bootstrap, processes) as sampler:
                outcome = self._run(directory, rounds, lambda: time.monotonic() > end)
            counts, problems = resident.finish()
        series = sampler.judge()
        not_flat = [f"{s.name}: {s.measurement} grew from {s.first:g} to {s.last:g}" for s in series if not s.flat]
        kills = outcome.kills + Counter({Kill.SPARK_WORKER.value: resident.kills})
        problems = [*outcome.problems, *problems, *not_flat, *unjudged(series)]
        return replace(outcome, kills=kills, counts=outcome.counts + counts, problems=tuple(problems)), sampler

    def _run(self, directory: Path, rounds: Sequence[Round], over: Callable[[], bool]) -> Outcome:
        started = time.monotonic()
        counts, problems, number = Counts(), [], 0
        for round_ in rounds:
            if over():
                break
            number = round_.number
            of_round, of_this = self._round(directory, round_)
            counts += of_round
            problems += [f"round {number}: {problem}" for problem in of_this]
        seconds = time.monotonic() - started
        kinds = (self._kill_counts, self._fault_counts)
        return Outcome(self._guarantee, self._seed, *kinds, counts, number, seconds, tuple(problems))

    def _round(self, directory: Path, round_: Round) -> tuple[Counts, list[str]]:
        """Runs a round; returns what is in the sink, and the problems."""
        problems: list[str] = []
        counts = Counts()
        started, before = time.monotonic(), self._kill_counts.total()
        try:
            counts = self._act_and_judge(directory, round_, problems)
        except Exception as e:  # the next round is worth running all the same
            problems.append(f"broke off, and its records are not counted: {type(e).__name__}: {e}")
            self._tell(traceback.format_exc())
        lanes = f"{round_.topics * round_.partitions} lanes{', Spark' if round_.runs_spark else ''}"
        self._tell(
            f"{self._guarantee} round {round_.number}: {self._kill_counts.total() - before} kills, {lanes}, "
            f"{counts.expected} records, {counts.lost} lost, {counts.duplicated} duplicated, "
            f"{time.monotonic() - started:.0f} s"
        )
        for problem in problems:
            self._tell(f"  {problem}")
        return counts, problems

    def _act_and_judge(self, directory: Path, round_: Round, problems: list[str]) -> Counts:
        dice = random.Random(f"{self._seed}/{self._guarantee}/{round_.number}")
        with open_pipeline(self._kafka.bootstrap_servers, directory, self._guarantee, round_) as p:
            p.unsafe = self._unsafe
            kills = Kills(self._kafka, p, dice, problems)
            faults = Faults(self._kafka, p, kills, dice, problems)
            p.feed(kills.feed_count)
            kills.settle()
            killed = 0
            for action in round_.actions:
                killed += self._act(action, kills, faults)
                p.end_drivers()
            while killed < round_.kills:  # for drivers that delivered everything before they were killed
                killed += self._act(Kill.ANY_TIME, kills, faults)
            kills.settle()
            self._kafka.wait_until_in_sync(120)
            counts, of_judgement = p.judge()
        problems += of_judgement
        return counts

    def _act(self, action: Action, kills: Kills, faults: Faults) -> int:
        """Makes a kill or a fault; returns how many processes were killed."""
        started = time.monotonic()
        killed: Counter[str] = Counter()
        if isinstance(action, Fault):
            faults.make(action)
            self._fault_counts[DESCRIPTIONS[action]] += 1
        else:
            killed = kills.make(action)
            self._kill_counts += killed
        self._tell(f"    {_name(action)}: {time.monotonic() - started:.1f} s")
        return killed.total()


def _name(action: Action) -> str:
    return f"{len(action.kills)} drivers killed at the same time" if isinstance(action, Storm) else action.value
