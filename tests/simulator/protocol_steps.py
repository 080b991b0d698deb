"""The steps of the protocol's model in words: what a step does, and one sentence that says why it matters."""

from __future__ import annotations

import re

# The first pattern that a label matches decides.
WHY = (
    (r"late copy", "A client has sent this request twice, and the second copy arrives late."),
    (r"another program", "Brokers accept offsets without a membership beside a member."),
    (
        r"TxnOffsetCommit.*refused",
        "The group coordinator refuses the offsets: their membership is not the current one.",
    ),
    (r"refused|error", "The broker refuses the request: its epoch is not the current one."),
    (r"plans", "The driver chooses a range of each lane and divides them into tasks."),
    (r"another attempt", "Spark runs the task again, while the earlier attempt may still run."),
    (r"restarts", "A batch has failed: the driver takes its pipeline again, and its old tasks may still run."),
    (r"D\d starts as", "A driver joins the group with a new member id, which replaces the member before it."),
    (r"D\d starts", "A driver starts; the earlier one may still run."),
    (r"InitProducerId.*aborts", "The id has an open transaction: the coordinator aborts it and fences its epoch."),
    (r"InitProducerId", "The coordinator raises the id's epoch: earlier users of the id are fenced."),
    (r"deposed", "A broker that is no longer the group's coordinator answers with an old position."),
    (r"reads.*skip|reads.*: done", "The range is committed already, so there is nothing to do."),
    (r"reads.*fail", "The positions are not at the beginning of the range: the task fails, and the query restarts."),
    (r"halts?\b", "The driver halts until a person decides, instead of losing or repeating records."),
    (r"reads.*(records|recorded|lanes topic)", "The driver reads which lanes have had a position before."),
    (r"task.*reads", "The positions are at the beginning of the range: the task may deliver it."),
    (r"reads", "The driver learns where its lanes resume."),
    (
        r"AddPartitions|AddOffsets",
        "The coordinator adds the partitions to the transaction, so that it can end it there.",
    ),
    (r"TxnOffsetCommit", "The new positions are pending until the transaction ends."),
    (r"OffsetCommit", "A plain commit moves the position at once, and no epoch fences it."),
    (r"Produce.*record", "The record of the lanes is written; it shows a later driver that they had a position."),
    (r"Produce", "The rows are in the sink's log; a read_committed reader does not get them before the commit."),
    (r"EndTxn", "The coordinator decides that the transaction commits; markers carry the decision to its partitions."),
    (r"marker commit on __consumer", "The marker turns pending positions into committed ones."),
    (r"marker commit", "The marker makes the transaction's records visible."),
    (r"marker abort", "The marker removes what the aborted transaction had written."),
    (r"processes", "The rows are written outside a transaction: they are visible at once."),
    (r"expire", "Brokers delete positions of a group that was empty for long."),
    (r"recreated", "A topic with the same name and other records takes the place of the old one."),
)


def why(label: str) -> str:
    """The sentence of a step."""
    return next(sentence for pattern, sentence in WHY if re.search(pattern, label))


def in_words(label: str) -> str:
    """A label of the model without the payloads of its requests, which the drawing shows."""
    label = re.sub(r"reads \[(.*?)\](?= for|,|:|$)", lambda m: f"reads positions {_offsets(m[1])}", label)
    label = re.sub(r" for \[\(.*?\)\](?=:)", "", label)
    label = re.sub(r"\[((?:\(\d+, \d+, \d+\)(?:, )?)+)\]", lambda m: _lanes(m[1]), label)
    label = re.sub(r"(TxnOffsetCommit|Produce|OffsetCommit) (\[.*?\]|lanes? [\d and]+?)(?= by|,|$)", r"\1", label)
    return (
        label.replace("D1", "Driver 1").replace("D2", "Driver 2").replace("AddPartitionsToTxn+", "AddPartitions and ")
    )


def _offsets(positions: str) -> str:
    values = re.findall(r"\((\d+), \d+, \d+\)|(None)", positions)
    return " and ".join(a or "none" for a, _ in values) if values else positions


def _lanes(ranges: str) -> str:
    lanes = [lane for lane, _, _ in re.findall(r"\((\d+), (\d+), (\d+)\)", ranges)]
    return f"lane{'s' if len(lanes) > 1 else ''} {' and '.join(lanes)}"
