"""The pictures of Ackwright itself: its parts, one batch's transaction, the states of a pipeline, acknowledgements."""

from __future__ import annotations

from ackwright.reasons import ConditionReason
from pictures.sequence import Diagram, Message, Note, Result, draw
from pictures.svg import SMALL, Picture, Tone, arrow, box, cross, lines_of_text, rectangle, text


def architecture() -> Picture:
    """The parts of Ackwright, and the path of a record."""
    elements = (
        box((16, 24, 250, 70), "DeliveryPipeline", "spec: the guarantee, source, transform, sink"),
        box((330, 24, 260, 70), "operator", "derives the plan, creates topics and driver, reports", Tone.OURS),
        box((654, 24, 250, 70), "status", "is the guarantee met now, and if not, why"),
        arrow((266, 59), (328, 59)),
        arrow((590, 59), (652, 59)),
        box((16, 164, 170, 84), "producers", "your applications"),
        box((226, 164, 140, 84), "source", "topics in Kafka"),
        box((406, 164, 190, 84), "PySpark job", "driver and executors; one task, one transaction", Tone.OURS),
        rectangle(636, 146, 268, 120),
        text(770, 166, "sink", style="bold"),
        text(770, 186, "Kafka, PostgreSQL, Delta, Iceberg, files", style="small"),
        arrow((186, 206), (224, 206)),
        arrow((366, 206), (404, 206)),
        arrow((596, 206), (634, 206), tone=Tone.OURS),
        arrow((500, 94), (500, 162), tone=Tone.OURS),
        text(510, 132, "starts, repairs", anchor="start", style="small muted"),
        arrow((400, 94), (296, 162), tone=Tone.OURS),
        text(262, 132, "creates, repairs", style="small muted"),
        box((654, 200, 110, 54), "output", "rows", Tone.GOOD),
        box((776, 200, 112, 54), "positions", "offsets", Tone.GOOD),
        arrow((770, 266), (770, 330)),
        box((636, 332, 268, 66), "consumers", "your applications; read_committed with exactly-once"),
        box((226, 332, 370, 66), "audit", "recomputes the output, and counts lost and duplicated records", Tone.OURS),
        arrow((296, 248), (296, 330), dashed=True),
        arrow((680, 266), (590, 330), dashed=True),
        text(306, 296, "reads", anchor="start", style="small muted"),
    )
    return Picture(
        "architecture",
        "Operator, PySpark job and audit between a source in Kafka and a sink",
        "A DeliveryPipeline declares the guarantee. The operator derives the plan from it, creates and repairs the "
        "topics, starts the PySpark job, and reports in the status whether the guarantee is met. The job reads the "
        "source topics, transforms the records, and writes output and positions to the sink in one transaction per "
        "task. The sink is Kafka, PostgreSQL, Delta Lake, Iceberg or Parquet files. The audit reads source and sink, "
        "recomputes the output, and counts lost and duplicated records.",
        920,
        414,
        elements,
    )


_TASK, _TRANSACTIONS, _GROUP, _TOPIC, _READER = "task", "transaction coordinator", "group coordinator", "sink", "reader"


def transaction() -> Picture:
    """One task's transaction under exactly-once with a Kafka sink."""
    return draw(
        Diagram(
            "transaction",
            "One task's transaction: fence, read, decide, send, commit",
            (_TASK, _TRANSACTIONS, _GROUP, _TOPIC, _READER),
            (
                Message(_TASK, _TRANSACTIONS, "1. initialise the slot's transactional id", Tone.OURS),
                Note(_TRANSACTIONS, "fences earlier attempts, ends their transaction", Tone.OURS),
                Message(_TASK, _GROUP, "2. read the positions, waiting for open transactions", Tone.OURS),
                Note(_TASK, "3. all at from: continue; all at until: skip; else: restart", Tone.CARE),
                Message(_TASK, _GROUP, "4. new positions, with the driver's membership", Tone.OURS),
                Note(_GROUP, "refuses a driver that was replaced", Tone.OURS),
                Message(_TASK, _TOPIC, "the rows, invisible to read_committed", Tone.OURS),
                Message(_TASK, _TRANSACTIONS, "commit", Tone.GOOD),
                Message(_TOPIC, _READER, "the rows", Tone.GOOD),
                Note(_TASK, "5. after any error: close without an abort; the next attempt reads what happened"),
                Result("Positions and rows become visible together, or neither does.", Tone.GOOD),
            ),
            spacing=190,
        )
    )


def states() -> Picture:
    """The states of a pipeline, by the reasons of its conditions."""
    r = ConditionReason
    elements = (
        box((16, 40, 190, 66), r.CREATING, "the operator creates the topics"),
        box((16, 176, 190, 66), r.NOT_STARTED, "topics or brokers are not as required", Tone.CARE),
        box((266, 40, 190, 66), r.STARTING, "the pod starts, then Spark"),
        box((516, 40, 190, 66), r.DELIVERING, "records are delivered as declared", Tone.GOOD),
        box((766, 40, 170, 66), r.COMPLETED, "a bounded run is done", Tone.GOOD),
        box((266, 176, 190, 66), r.STANDBY, "another driver owns the pipeline"),
        box((516, 176, 190, 66), r.RESTARTING, "the query failed, and is tried again", Tone.CARE),
        box((766, 176, 170, 66), r.DRAINING, "ends its batch and commits"),
        box((766, 312, 170, 66), r.SUSPENDED, "spec.suspend is true"),
        box(
            (266, 312, 440, 66),
            r.STALLED,
            "from any state: halted, or not ready in time; a person has to act",
            Tone.BAD,
        ),
        arrow((206, 73), (264, 73)),
        arrow((111, 106), (111, 174)),
        arrow((206, 190), (264, 108)),
        arrow((456, 73), (514, 73)),
        arrow((706, 73), (764, 73)),
        arrow((340, 106), (340, 174)),
        arrow((456, 190), (514, 108)),
        arrow((590, 106), (590, 174)),
        arrow((632, 174), (632, 108)),
        arrow((706, 100), (764, 176)),
        arrow((851, 242), (851, 310)),
        arrow((590, 242), (590, 310), tone=Tone.BAD),
        arrow((936, 345), (952, 345), (952, 16), (361, 16), (361, 38)),
        arrow((936, 209), (952, 209), (952, 16), (361, 16), (361, 38)),
        text(656, 30, "resume, or an edit that needs a new driver", style="small muted"),
        arrow((286, 310), (236, 310), (236, 130), (300, 130), (300, 108)),
        text(228, 336, "after the remedy", anchor="end", style="small muted"),
    )
    return Picture(
        "pipeline-states",
        "The states of a pipeline, by the reasons of its conditions",
        "Creating leads to Starting, or to NotStarted while topics or brokers are not as required. Starting leads to "
        "Delivering; with a standby, to StandingBy until the driver takes the pipeline. Delivering leads to Restarting "
        "after a failure and back, to Draining after an edit or a suspension, and to Completed after a bounded run. "
        "Draining leads to Suspended, or with a new driver to Starting. Any state leads to Stalled "
        "when the driver halts or is not ready in time. After the remedy the driver starts again.",
        968,
        394,
        elements,
    )


def acknowledgements() -> Picture:
    """When the leader answers, with acks=0, 1 and all."""
    rows = (
        ("acks=0", "never", "lost with the request, unnoticed", Tone.BAD),
        ("acks=1", "when the leader has the record", "lost with the leader, before replication", Tone.CARE),
        ("acks=all", "when every in-sync replica has it", "lost only with all of these replicas", Tone.GOOD),
    )
    elements: list[str] = []
    for n, (name, answer, loss, tone) in enumerate(rows):
        y = 46 + n * 112
        elements += [
            box((16, y, 130, 60), "producer", name),
            box((286, y, 120, 60), "leader", "", Tone.GOOD if n else Tone.PLAIN),
            box((486, y, 120, 60), "followers", "", Tone.GOOD if n == 2 else Tone.PLAIN),
            arrow((146, y + 20), (284, y + 20)),
            arrow((406, y + 20), (484, y + 20), dashed=n < 2),
            text(215, y + 14, "record", style="small"),
            text(445, y + 14, "replicate", style="small"),
            box((646, y - 14, 290, 88), answer, f"A record is {loss}.", tone),
        ]
        if n == 0:
            elements.append(cross(215, y + 44, 6))
        else:
            elements.append(arrow((286, y + 44), (148, y + 44), tone=Tone.GOOD, dashed=True))
        if n == 2:
            elements.append(arrow((486, y + 44), (408, y + 44), tone=Tone.GOOD, dashed=True))
    heads = ((81, "setting"), (445, "the record's way"), (791, "the leader answers"))
    elements += [lines_of_text(x, 22, [head], size=SMALL, style="small muted") for x, head in heads]
    return Picture(
        "acknowledgements",
        "acks=0, 1 and all: when the leader answers, and what can be lost",
        " ".join(f"{name}: the leader answers {answer}; a record is {loss}." for name, answer, loss, _ in rows),
        952,
        358,
        tuple(elements),
    )


def lanes() -> Picture:
    """The lanes of a micro-batch: partitions, positions, tasks."""
    rows = (("orders-0", 7, 10), ("orders-1", 4, 8), ("orders-2", 6, 7))
    cell, left = 22, 120
    elements = [
        text(left + 5 * cell, 20, "source topic: offsets", style="small muted"),
        text(463, 20, "micro-batch", style="small muted"),
        box((566, 32, 140, 128), "task", "transform", Tone.OURS),
        box((756, 32, 140, 128), "sink", "rows and positions", Tone.GOOD),
        arrow((706, 96), (754, 96), tone=Tone.OURS),
    ]
    for n, (name, position, end) in enumerate(rows):
        y = 32 + n * 48
        elements.append(text(left - 10, y + 20, name, anchor="end", style="bold"))
        for offset in range(end):
            tone = Tone.PLAIN if offset < position else Tone.OURS
            elements.append(rectangle(left + offset * cell, y, cell - 2, 32, tone))
            elements.append(text(left + offset * cell + 10, y + 21, str(offset), style="small"))
        elements.append(text(463, y + 21, f"[{position}, {end})", style="small"))
        elements.append(arrow((left + end * cell + 4, y + 16), (426, y + 16)))
        elements.append(arrow((500, y + 16), (564, y + 16)))
    for x, tone, what in ((left, Tone.PLAIN, "delivered"), (left + 120, Tone.OURS, "to deliver, from the position on")):
        elements.append(rectangle(x, 186, 16, 16, tone))
        elements.append(text(x + 24, 199, what, anchor="start", style="small"))
    described = " ".join(f"{name}: position {p}, so the batch has the offsets {p} to {e - 1}." for name, p, e in rows)
    return Picture(
        "lanes",
        "Each source partition is a lane; a batch reads from its position to its end",
        f"{described} A task transforms the ranges of several lanes, and the sink gets rows and positions.",
        912,
        218,
        tuple(elements),
    )


def orders() -> Picture:
    """The order of rows and position under each guarantee, and what a crash in between does."""
    rows = (
        ("at-most-once", ("position", "rows"), "a crash in between: the batch is lost", Tone.BAD),
        ("at-least-once", ("rows", "position"), "a crash in between: the batch is delivered again", Tone.CARE),
        (
            "exactly-once",
            ("rows and position, in one transaction",),
            "a crash: both are committed, or neither",
            Tone.GOOD,
        ),
    )
    elements: list[str] = []
    for n, (guarantee, steps, crash, tone) in enumerate(rows):
        y = 16 + n * 70
        elements.append(text(16, y + 31, guarantee, anchor="start", style="bold"))
        width = 330 / len(steps) - (20 if len(steps) > 1 else 0)
        for k, step in enumerate(steps):
            elements.append(box((150 + k * (width + 40), y, width, 52), step, "", Tone.OURS))
        if len(steps) > 1:
            elements.append(arrow((150 + width, y + 26), (150 + width + 38, y + 26)))
            elements.append(cross(150 + width + 18, y + 26, 6))
        elements.append(arrow((480, y + 26), (528, y + 26), tone=tone))
        elements.append(box((530, y, 360, 52), crash, "", tone))
    return Picture(
        "guarantee-orders",
        "The guarantees differ in the order of two steps, and in what a crash does",
        " ".join(f"{name}: {', then '.join(steps)}; {crash}." for name, steps, crash, _ in rows),
        906,
        228,
        tuple(elements),
    )


def pictures() -> tuple[Picture, ...]:
    """All pictures of this module."""
    return architecture(), transaction(), states(), acknowledgements(), lanes(), orders()
