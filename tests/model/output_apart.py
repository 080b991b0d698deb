"""A model of stateful pipelines under the weaker guarantees: the output is not in the transaction of the decision.

Positions, decisions and state are those of decisions.py, and so is the transaction, which has no output. Under
at-least-once a driver writes the output of its evaluation first, and decides when all of it is acknowledged. Under
at-most-once it decides first, and writes the output if it knows that the decision is committed. A partition of the
output is written in one step, so that a driver may die between two of them. A driver that was replaced may write late.

The state counts each record once under both: decisions form a chain, each from the state of the one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .decisions import (
    COMMITTED,
    DECIDED,
    ELSEWHERE,
    MIXED,
    PARTITIONS,
    SENDING,
    Cfg,
    Decision,
    Driver,
    Model,
    State,
    Step,
    Transaction,
    with_driver,
)
from .variants import DUPLICATED, LOST, Variant

UNDECIDED = "of an evaluation that is not decided"
FIRST, LAST = "writing the first partition", "writing the last partition"


@dataclass(frozen=True)
class Apart(Cfg):
    """The parameters of one variant."""

    at_least_once: bool = True  # otherwise at-most-once: what must hold
    writes_first: bool = True  # the output is written before the decision is sent; otherwise behind it
    acknowledged: bool = True  # written before the decision, every partition is acknowledged by then
    needs_outcome: bool = True  # written behind the decision, only if the decision is known to be committed


class OutputApart(Model):
    """The transitions of one variant."""

    def __init__(self, cfg: Apart) -> None:
        super().__init__(cfg)
        self.a = cfg

    def check(self, s: State) -> str | None:
        base = 0
        for batch, d in enumerate(s.decisions, 1):
            evaluation = s.evaluations[d.state - 1]
            if evaluation.batch != batch:
                return f"{d} of batch {batch}: {DUPLICATED}"
            if evaluation.base != base:
                return f"{d} of batch {batch}: {ELSEWHERE}"
            if d.output != d.state:
                return f"{d}: {MIXED}"
            base = d.state
        return self._check_least(s) if self.a.at_least_once else self._check_most(s)

    def _check_least(self, s: State) -> str | None:
        pending = {driver.output for driver in s.drivers if driver.mode in (FIRST, LAST)}
        for d in s.decisions:
            if d.output not in pending and any(d.output not in output for output in s.outputs):
                return f"outputs {s.outputs}: that of {d} is {LOST}"
        return None

    def _check_most(self, s: State) -> str | None:
        decided = {d.output for d in s.decisions}
        if s.transaction and s.transaction.status == COMMITTED:  # not visible yet
            decided.add(s.transaction.decision.output)
        for output in s.outputs:
            batches = Counter(s.evaluations[e - 1].batch for e in output)
            if any(count > 1 for count in batches.values()):
                return f"output {output}: {DUPLICATED}"
            if not self.a.writes_first and not decided.issuperset(output):
                return f"output {output}, decisions {s.decisions}: {UNDECIDED}"
        return None

    def _publish(self, s: State, t: Transaction) -> State:
        return s._replace(decisions=(*s.decisions, t.decision))

    def _answer(self, s: State, t: Transaction, *, known: bool = True) -> State:
        d = s.drivers[t.driver]
        if t.awaited and not self.a.writes_first and (known or not self.a.needs_outcome):
            writing = d._replace(mode=FIRST, batch=t.batch, state=t.decision.state)
            return with_driver(s, t.driver, writing)
        return super()._answer(s, t, known=known)

    def _driver(self, s: State, i: int, d: Driver, name: str) -> Iterator[Step]:
        yield from super()._driver(s, i, d, name)
        if d.mode not in (FIRST, LAST):
            return
        last = d.mode == LAST
        then = d._replace(mode=LAST)
        if last and not self.a.writes_first:
            then = d._replace(mode=DECIDED)
        written = s._replace(outputs=_with(s.outputs, PARTITIONS[last], d.output))
        lost = s if self.a.writes_first and not self.a.acknowledged else None
        for after, how in ((written, "writes"), (lost, "believes to write")):
            if after is None:
                continue
            text = f"{name}: {how} {d.output} to partition {PARTITIONS[last]}"
            if last and self.a.writes_first:
                yield from self._decides(after, i, d, text)
            else:
                yield text, with_driver(after, i, then), None

    def _sends(self, s: State, i: int, d: Driver, name: str) -> Iterator[Step]:
        """The comparisons of decisions.py, and then the first of the two: the output, or the transaction."""
        for text, after, violation in super()._sends(s, i, d, name):
            if after is None or after.drivers[i].mode != SENDING or not self.a.writes_first:
                yield text, after, violation
            else:  # what it would send, it sends when the output is written
                yield f"{name}: has compared", with_driver(s, i, d._replace(mode=FIRST)), violation

    def _decides(self, s: State, i: int, d: Driver, text: str) -> Iterator[Step]:
        """Sends the transaction behind the output, or is refused."""
        if s.transaction:
            return  # the id's last transaction has not ended
        if self.c.fenced and d.member != s.member:
            yield f"{text}, and is fenced", with_driver(s, i, Driver()), None
            return
        decision = Decision(d.entries[0], d.output)
        t = Transaction(i, True, PARTITIONS, d.loaded.batch + 1, decision, d.member)
        yield f"{text}, and sends {t}", with_driver(s._replace(transaction=t), i, d._replace(mode=SENDING)), None


def _with(outputs: tuple[tuple[int, ...], ...], partition: int, evaluation: int) -> Any:
    """The outputs with one more of a partition. Their order says nothing: a driver that was replaced writes late."""
    return tuple(tuple(sorted((*o, evaluation))) if p == partition else o for p, o in enumerate(outputs))


def _variant(violation: str | None, about: str, *, slow: bool = False, **cfg: Any) -> Variant:
    return Variant(about, Apart(**cfg), violation, slow, OutputApart)


_LEAST: dict[str, Any] = {"at_least_once": True, "writes_first": True}
_MOST: dict[str, Any] = {"at_least_once": False, "writes_first": False}
VARIANTS = {
    "state-alo": _variant(
        None, "at-least-once: the output is acknowledged, then the batch is decided", **_LEAST, evaluations=3
    ),
    "state-alo-large": _variant(None, "the same with another evaluation", slow=True, **_LEAST),
    "state-alo-decides-first": _variant(
        LOST, "at-least-once decides before it writes", **{**_LEAST, "writes_first": False}
    ),
    "state-alo-unacknowledged": _variant(
        LOST, "it decides before the brokers have acknowledged the output", **_LEAST, acknowledged=False
    ),
    "state-alo-base": _variant(DUPLICATED, "it does not compare the base", **_LEAST, compares_base=False),
    "state-amo": _variant(
        None, "at-most-once: the batch is decided, then the output is written", **_MOST, evaluations=3
    ),
    "state-amo-large": _variant(None, "the same with another evaluation", slow=True, **_MOST),
    "state-amo-writes-first": _variant(
        DUPLICATED, "at-most-once writes before it decides", **{**_MOST, "writes_first": True}
    ),
    "state-amo-unknown": _variant(
        UNDECIDED, "it writes after a commit whose outcome is unknown", **_MOST, needs_outcome=False
    ),
    "state-amo-unfenced": _variant(DUPLICATED, "its decision has offsets without membership", **_MOST, fenced=False),
}
