"""How records are lost or duplicated without protection: one diagram for each scenario of the delivery simulator."""

from __future__ import annotations

from collections.abc import Mapping

from pictures.sequence import Diagram, Message, Note, Result, draw
from pictures.svg import Picture, Tone

PRODUCER, LEADER, FOLLOWER, CONSUMER = "producer", "leader", "follower", "consumer"
SOURCE, SINK, OLD, NEW, POSITIONS = "source topic", "sink topic", "old consumer", "new consumer", "committed offset"

_ACKS_0 = Diagram(
    "loss-acks-0",
    "acks=0: a request is lost, and the producer does not notice",
    (PRODUCER, LEADER, CONSUMER),
    (
        Message(PRODUCER, LEADER, "record 1", lost=True),
        Note(PRODUCER, "acks=0: nothing to wait for"),
        Message(PRODUCER, LEADER, "record 2", Tone.GOOD),
        Message(LEADER, CONSUMER, "record 2", Tone.GOOD),
        Result("Record 1 is lost. Nobody learns of it.", Tone.BAD),
    ),
)
_ACKS_1 = Diagram(
    "loss-acks-1",
    "acks=1: the leader dies before a follower has the record",
    (PRODUCER, LEADER, FOLLOWER),
    (
        Message(PRODUCER, LEADER, "record 1"),
        Message(LEADER, PRODUCER, "acknowledged", Tone.GOOD, answer=True),
        Note(LEADER, "has record 1; the follower does not have it yet", dies=True),
        Note(FOLLOWER, "is in sync, becomes the leader, and lacks record 1", Tone.CARE),
        Message(PRODUCER, FOLLOWER, "record 2, at the offset of record 1", Tone.GOOD),
        Result("Record 1 is lost although it was acknowledged.", Tone.BAD),
    ),
)
_MIN_ISR = Diagram(
    "loss-min-insync-1",
    "acks=all with min.insync.replicas=1: the only replica in sync dies",
    (PRODUCER, LEADER, FOLLOWER),
    (
        Note(FOLLOWER, "falls behind and leaves the in-sync replicas", Tone.CARE),
        Message(PRODUCER, LEADER, "record 1, acks=all"),
        Note(LEADER, "all in-sync replicas are one: itself"),
        Message(LEADER, PRODUCER, "acknowledged", Tone.GOOD, answer=True),
        Note(LEADER, "dies, or loses its disk", dies=True),
        Note(FOLLOWER, "unclean election: becomes the leader without record 1", Tone.CARE),
        Result("Record 1 is lost although all in-sync replicas had it.", Tone.BAD),
    ),
)
_COMMIT_BEFORE = Diagram(
    "loss-commit-before",
    "Commit before processing: the consumer dies in between",
    (SOURCE, OLD, POSITIONS, NEW),
    (
        Message(SOURCE, OLD, "records 5 to 7"),
        Message(OLD, POSITIONS, "commit offset 8"),
        Note(OLD, "has not processed them", dies=True),
        Message(POSITIONS, NEW, "resume at 8"),
        Note(NEW, "reads from record 8"),
        Result("Records 5 to 7 are lost. At-most-once accepts this, and never duplicates.", Tone.BAD),
    ),
    spacing=180,
)
_COMMIT_AFTER = Diagram(
    "duplicate-commit-after",
    "Commit after processing: the consumer dies in between",
    (SOURCE, OLD, SINK, POSITIONS, NEW),
    (
        Message(SOURCE, OLD, "records 5 to 7"),
        Message(OLD, SINK, "their output", Tone.GOOD),
        Note(OLD, "has not committed offset 8", dies=True),
        Message(POSITIONS, NEW, "resume at 5"),
        Message(NEW, SINK, "their output again", Tone.CARE),
        Result("Records 5 to 7 are duplicated. At-least-once accepts this, and never loses.", Tone.CARE),
    ),
    spacing=160,
)
_ZOMBIE = Diagram(
    "duplicate-zombie",
    "A zombie: a consumer hangs, is replaced, and continues",
    (OLD, SINK, POSITIONS, NEW),
    (
        Note(OLD, "has read records 5 to 7, and hangs", Tone.CARE),
        Message(POSITIONS, NEW, "the group replaces it: resume at 5"),
        Message(NEW, SINK, "output of 5 to 7", Tone.GOOD),
        Message(NEW, POSITIONS, "commit offset 8"),
        Note(OLD, "continues: it does not know that it was replaced", Tone.CARE),
        Message(OLD, SINK, "output of 5 to 7 again", Tone.CARE),
        Result("Records 5 to 7 are duplicated, unless the sink fences the zombie.", Tone.CARE),
    ),
    spacing=190,
)
_FENCED = Diagram(
    "fenced-zombie",
    "With Ackwright: the zombie is fenced, and its output is never visible",
    ("old driver's task", "Kafka", "new driver"),
    (
        Note("old driver's task", "has read records 5 to 7, and hangs", Tone.CARE),
        Message("new driver", "Kafka", "joins the group as its one member", Tone.OURS),
        Message("Kafka", "new driver", "position 5", answer=True),
        Message("new driver", "Kafka", "one transaction: output of 5 to 7, and position 8", Tone.OURS),
        Note("old driver's task", "continues"),
        Message("old driver's task", "Kafka", "its transaction: position 8", lost=True),
        Note("Kafka", "refuses the member that was replaced", Tone.OURS),
        Result("Records 5 to 7 are delivered exactly once.", Tone.GOOD),
    ),
    spacing=240,
)

# The scenario of tests/simulator/scenarios.py that has the same failure; a test compares what is lost and duplicated.
SCENARIOS: Mapping[str, str] = {
    "loss-acks-0": "acks-0-request-lost",
    "loss-acks-1": "acks-1-leader-dies-before-replication",
    "loss-min-insync-1": "min-insync-1-unclean",
    "loss-commit-before": "commit-before-killed",
    "duplicate-commit-after": "commit-after-killed",
    "duplicate-zombie": "zombie-consumer",
    "fenced-zombie": "zombie-consumer-transaction",
}


def pictures() -> tuple[Picture, ...]:
    """One picture for each case."""
    return tuple(map(draw, (_ACKS_0, _ACKS_1, _MIN_ISR, _COMMIT_BEFORE, _COMMIT_AFTER, _ZOMBIE, _FENCED)))
