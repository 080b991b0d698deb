"""A model of the replay: an older copy of the state is restored, and a driver evaluates decided batches again.

Positions, decisions and transactions are those of decisions.py, and the replay changes none of them. One more
evaluation of a decided batch may have the same output as the decided one, or another output. If it has the same, its
state is as good, and the driver records it beside the state. Another driver, also one that was replaced, may do so at
the same time.

An evaluation whose base a driver compares is one step here; decisions.py has the logs between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .decisions import ELSEWHERE, MIXED, READ, Cfg, Driver, Evaluation, Model, State, Step, with_driver
from .variants import DUPLICATED, Variant


@dataclass(frozen=True)
class Replaying(Cfg):
    """The parameters of one variant."""

    compares_output: bool = True  # an evaluation with other output than the decided one halts the driver
    records_late: bool = True  # it is recorded when its output was compared; otherwise before
    losses: int = 1  # the budget: how often an older copy is restored


class Replay(Model):
    """The transitions of one variant."""

    def __init__(self, cfg: Replaying) -> None:
        super().__init__(cfg)
        self.r = cfg

    def initial(self) -> State:
        return super().initial()._replace(losses=self.r.losses)

    def check(self, s: State) -> str | None:
        for output in s.outputs:
            for batch, e in enumerate(output, 1):
                if s.evaluations[e - 1].batch != batch:
                    return f"output {output}: {DUPLICATED}"
                if not _is_of(s, output[: batch - 1], s.evaluations[e - 1].base):
                    return f"evaluation {e} of batch {batch}: {ELSEWHERE}"
        for d, *parts in zip(s.decisions, *s.outputs, strict=False):
            if set(parts) != {d.state}:
                return f"{d}, output {parts}: {MIXED}"
        return None

    def successors(self, s: State) -> Iterator[Step]:
        yield from super().successors(s)
        for batch in range(len(s.decisions) if s.losses else 0):
            stored = frozenset(e for e in s.stored if s.evaluations[e - 1].batch <= batch)
            replayed = s.replayed if s.replayed in stored else 0
            older = s._replace(stored=stored, replayed=replayed, losses=s.losses - 1)
            yield f"a copy of the state behind batch {batch} is restored", older, None

    def _driver(self, s: State, i: int, d: Driver, name: str) -> Iterator[Step]:
        if d.mode != READ or d.state in s.stored or not d.state:
            yield from super()._driver(s, i, d, name)
            return
        for text, after, violation in super()._driver(s, i, d, name):
            if text == f"{name}: joins":
                yield text, after, violation
        batch, base = self._newest(s, d.batch)
        if batch == d.batch:
            yield f"{name}: uses {base} in place of {d.state}", with_driver(s, i, d._replace(state=base)), None
            return
        if len(s.evaluations) >= self.c.evaluations:
            return
        e, decided = len(s.evaluations) + 1, s.decisions[batch].state
        for like in (decided, 0):
            new = Evaluation(batch + 1, base, like)
            again = s._replace(evaluations=(*s.evaluations, new), stored=s.stored | {e})
            recorded = again._replace(replayed=e)
            if like or not self.r.compares_output:
                yield f"{name}: evaluates {e} again: {new}", recorded, None
            else:
                halts = again if self.r.records_late else recorded
                yield f"{name}: halts, {e} has another output", with_driver(halts, i, Driver()), None

    def _newest(self, s: State, last: int) -> tuple[int, int]:
        """The last batch up to this one with state that is there, and the evaluation that has stored it."""
        for batch in range(last, 0, -1):
            if s.decisions[batch - 1].state in s.stored:
                return batch, s.decisions[batch - 1].state
            if s.replayed in s.stored and s.evaluations[s.replayed - 1].batch == batch:
                return batch, s.replayed
        return 0, 0


def _is_of(s: State, output: tuple[int, ...], e: int) -> bool:
    """Whether the state of an evaluation may be behind this output."""
    if not output or not e:
        return not output and not e
    evaluation = s.evaluations[e - 1]
    same_output = output[-1] in (e, evaluation.like)
    return evaluation.batch == len(output) and same_output and _is_of(s, output[:-1], evaluation.base)


def _safe(about: str, *, slow: bool = False, **cfg: Any) -> Variant:
    return Variant(about, Replaying(reruns=0, **cfg), None, slow, Replay)


def _unsafe(violation: str, about: str, **cfg: Any) -> Variant:
    return Variant(about, Replaying(reruns=0, **cfg), violation, False, Replay)


VARIANTS = {
    "state-replay": _safe(
        "two drivers evaluate decided batches again, from an older copy of the state", batches=3, damages=0
    ),
    "state-replay-large": _safe(
        "the same, with more evaluations, an older copy twice, and a replaced log",
        slow=True,
        batches=3,
        evaluations=5,
        losses=2,
    ),
    "state-replay-blind": _unsafe(
        ELSEWHERE, "the output of such an evaluation is not compared", compares_output=False, damages=0
    ),
    "state-replay-early": _unsafe(
        ELSEWHERE, "an evaluation is recorded before its output is compared", records_late=False, damages=0
    ),
    "state-replay-unfenced": _unsafe(
        DUPLICATED, "offsets without membership: a driver that was replaced decides behind its replay", fenced=False
    ),
}
