"""What each guarantee promises and what it leaves open, in words and numbers: one table.

The settings that follow from it are in guarantees.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ackwright_stream.jobspec import Guarantee


@dataclass(frozen=True)
class Caveat:
    """What a link of the chain from application to application does not guarantee."""

    text: str
    weakness: int  # how much it matters, 0 (not at all) to 9


@dataclass(frozen=True)
class Promise:
    """What follows from one guarantee, beside the settings of clients."""

    position: str  # when a position moves, in words; {commit}: as OutputSummary.commit
    after_a_crash: str
    reader: str  # what the reader of the output has to do, in words
    cost: str  # what the guarantee costs, in words
    may_lose: bool  # whether a record may be lost
    broker_failures: int  # how many brokers may be lost, unless spec.tolerate says it
    # Whether Kafka's internal topics, which hold positions and transactions, have to survive the loss of so many.
    needs_internal_topics: bool
    upstream: Caveat  # of the application that writes the source
    downstream: Caveat  # of the Kafka consumer that reads the output
    expiry: Caveat | None  # of records that expire before they are read


@dataclass(frozen=True)
class StatefulPromise:
    """What is different with state, which counts each record once under each guarantee."""

    position: str  # as Promise.position
    after_a_crash: str
    cost: str
    downstream: str = ""  # what follows the text of Promise.downstream


PROMISES: Mapping[Guarantee, Promise] = {
    Guarantee.AT_MOST_ONCE: Promise(
        position="before the lane's records are processed",
        after_a_crash="the claimed batch is never read again",
        reader="nothing",
        cost="little: the producer waits for no acknowledgement; the batch that a crash interrupts is lost",
        may_lose=True,
        broker_failures=0,
        needs_internal_topics=False,
        upstream=Caveat(
            "not run by Ackwright: an application that sends a record again after an error duplicates it in the source",
            3,
        ),
        downstream=Caveat(
            "not run by Ackwright: a reader that commits after processing reads records again after a crash", 2
        ),
        expiry=Caveat("records that expire before they are read are skipped and counted", 2),
    ),
    Guarantee.AT_LEAST_ONCE: Promise(
        position="after the sink has acknowledged the batch",
        after_a_crash="the unacknowledged batch is read again",
        reader="deduplicate, or upsert by key",
        cost="every replica in sync acknowledges each request; the batch that a crash interrupts is delivered again",
        may_lose=False,
        broker_failures=1,
        needs_internal_topics=False,
        upstream=Caveat(
            "not run by Ackwright: an application that drops a record before it is acknowledged loses it", 3
        ),
        downstream=Caveat("not run by Ackwright: a reader has to deduplicate, or upsert by key", 2),
        expiry=None,
    ),
    Guarantee.EXACTLY_ONCE: Promise(
        position="in the same {commit} as the output",
        after_a_crash="only lanes that had not committed run again",
        reader="isolation.level=read_committed",
        cost="one transaction per task and micro-batch; a record is visible when its task has committed",
        may_lose=False,
        broker_failures=1,
        needs_internal_topics=True,
        upstream=Caveat(
            "not run by Ackwright: an application that crashes and sends again duplicates a record in the source", 2
        ),
        downstream=Caveat(
            "not run by Ackwright: a Java reader sees aborted records unless it sets isolation.level=read_committed, "
            "which is not the default",
            3,
        ),
        expiry=None,
    ),
}

_ONE_TRANSACTION = "one transaction of the driver per micro-batch"
_OLDER_ROW = "; a driver that was replaced may write an older row behind a newer one"
STATEFUL_PROMISES: Mapping[Guarantee, StatefulPromise] = {
    Guarantee.AT_MOST_ONCE: StatefulPromise(
        position="with the decision of the micro-batch, before its output is written",
        after_a_crash="the output of a micro-batch that was decided and not written is lost; the state counts each "
        "record once",
        cost=f"{_ONE_TRANSACTION} and writes after it",
        downstream=_OLDER_ROW,
    ),
    Guarantee.AT_LEAST_ONCE: StatefulPromise(
        position="with the decision of the micro-batch, after the sink has acknowledged its output",
        after_a_crash="the micro-batch that was not decided runs again, with the state from before it, and its output "
        "may be there twice; the state counts each record once",
        cost=f"{_ONE_TRANSACTION} and writes before it",
        downstream=_OLDER_ROW,
    ),
    Guarantee.EXACTLY_ONCE: StatefulPromise(
        position="in the same {commit} as the output and the decision of the micro-batch",
        after_a_crash="the micro-batch that was not committed runs again, with the state from before it",
        cost=f"{_ONE_TRANSACTION}; a record is visible when the micro-batch has committed",
    ),
}
