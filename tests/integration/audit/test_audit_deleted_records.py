"""The audit of a source or a sink whose records were deleted, compacted or recreated: what it cannot judge, it says.

The tests write what a job would write.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ackwright_stream import audit_kafka, source
from ackwright_stream.reports import Verdict
from integration.support.audited import PARTITIONS, SENT, Pipeline, Record, delivered, ends, records, without, wrong
from waiting import ANSWER, wait_until

OLD = [Record(b"k0-1", b"old"), Record(b"old", b"older", 1)]  # the output of records that no longer exist


def record_accepted_loss(pipeline: Pipeline, *lanes: str, sink_id: str | None = None) -> None:
    """Writes the lanes' records as after an accepted loss: they start with the sink's present ends."""
    described = pipeline.admin.describe_topics(TopicCollection([pipeline.topic("out")]))[pipeline.topic("out")].result(
        30
    )
    asked = {TopicPartition(pipeline.topic("out"), p): OffsetSpec.latest() for p in range(PARTITIONS)}
    ends = {str(p.partition): f.result(ANSWER).offset for p, f in pipeline.admin.list_offsets(asked).items()}
    value = {"start": 0, "topicId": "new", "sinkBefore": {"topicId": sink_id or str(described.topic_id), "ends": ends}}
    pipeline.create("lanes")
    pipeline.produce(
        "lanes", [Record(f"{pipeline.name}/{lane}".encode(), json.dumps(value).encode()) for lane in lanes], "commit"
    )


def both(pipeline: Pipeline, role: str = "in") -> list[str]:
    return [f"{pipeline.topic(role)}-{p}" for p in range(PARTITIONS)]


@pytest.mark.parametrize(
    ("delivered_again", "forged", "expected"),
    [
        (SENT, [], (0, 0, 0, 0)),
        (SENT, [Record(b"k0-1", b"forged")], (0, 0, 1, 0)),
        (SENT, [OLD[0]], (0, 0, 1, 0)),  # though the old topic once explained it
        (SENT, SENT[:1], (0, 1, 0, 0)),
        (SENT[1:], [], (1, 0, 0, 0)),  # though the old one's output has the same
    ],
)
def test_after_an_accepted_loss_exactly_the_new_topics_output_is_audited(
    pipeline: Pipeline, delivered_again: list[Record], forged: list[Record], expected: tuple[int, int, int, int]
) -> None:
    pipeline.produce("out", [*OLD, *SENT], "commit")
    record_accepted_loss(pipeline, *both(pipeline)[:1])  # a partition that was added later has a record without it
    report = delivered(pipeline, [*delivered_again, *forged], SENT)
    assert wrong(report) == expected
    assert (report.verdict is Verdict.HELD) is (expected == (0, 0, 0, 0))
    (note,) = report.notes
    assert f"the audit judges the sink from {pipeline.topic('out')}-0@" in note


def test_control_without_the_record_of_the_loss_the_old_output_is_unexpected(pipeline: Pipeline) -> None:
    pipeline.produce("out", OLD, "commit")
    assert wrong(delivered(pipeline, SENT, SENT)) == (0, 0, len(OLD), 0)


def test_in_a_sink_that_was_recreated_as_well_the_old_output_cannot_be_judged(pipeline: Pipeline) -> None:
    pipeline.produce("out", OLD, "commit")
    record_accepted_loss(pipeline, *both(pipeline), sink_id="another")
    report = delivered(pipeline, SENT, SENT)
    assert (*wrong(report), report.unjudged, report.verdict) == (0, 0, 0, 0, len(OLD), Verdict.UNPROVEN)
    assert "does not judge records that may be output of the old one" in report.doubts[0]


def test_with_several_source_topics_the_old_output_cannot_be_judged(pipeline: Pipeline) -> None:
    """The old output is mixed with that of the other source topic, which has to be in the sink."""
    pipeline.create("more")
    pipeline.produce("out", [*OLD, *SENT], "commit")  # what SENT stands for is of the other topic
    record_accepted_loss(pipeline, *both(pipeline))
    pipeline.produce("more", SENT)
    pipeline.passed({0: 0, 1: 0})
    pipeline.passed(ends(SENT), "more")
    report = pipeline.audit(source=replace(pipeline.job.source, topics=(pipeline.topic("in"), pipeline.topic("more"))))
    assert (*wrong(report), report.unjudged, report.verdict) == (0, 0, 0, 0, len(OLD), Verdict.UNPROVEN)
    assert "does not judge records that may be output of the old one" in report.doubts[0]


def test_what_may_come_from_deleted_records_is_not_judged_and_all_else_is(pipeline: Pipeline) -> None:
    pipeline.produce("in", [*records(7), *records(3, 1)])
    pipeline.produce("out", [*records(7), *records(3, 1)], "commit")
    pipeline.passed({0: 7, 1: 3})
    assert pipeline.audit().verdict is Verdict.HELD
    pipeline.delete("in", 0, before=3)
    report = pipeline.audit()
    assert (*wrong(report), report.unjudged, report.verdict) == (0, 0, 0, 0, 3, Verdict.UNPROVEN)
    assert (report.sent, report.counted, report.delivered) == (7, 7, 10)
    assert report.unjudged_lanes == (f"{pipeline.topic('in')}-0",)
    assert "from 0 to 3 are no longer in the source" in report.doubts[0]
    pipeline.produce("out", [records(3, 1)[0], Record(b"k", b"stray", 1)], "commit")  # the other lane is complete
    report = pipeline.audit()
    assert (*wrong(report), report.unjudged, report.verdict) == (0, 1, 1, 0, 3, Verdict.BROKEN)


def test_a_record_that_is_left_has_to_be_in_the_sink(pipeline: Pipeline) -> None:
    pipeline.produce("in", records(7))
    pipeline.produce("out", without(records(7), b"k0-1"), "commit")  # v1 and v4 are missing; v1 is going to be gone
    pipeline.passed({0: 7, 1: 0})
    pipeline.delete("in", 0, before=3)
    report = pipeline.audit()
    assert (*wrong(report), report.unjudged, report.verdict) == (1, 0, 0, 0, 2, Verdict.BROKEN)


def test_what_was_deleted_from_the_sink_is_missing_and_not_lost(pipeline: Pipeline) -> None:
    delivered(pipeline, SENT)
    pipeline.delete("out", 0, before=2)
    report = pipeline.audit()
    assert (*wrong(report), report.missing, report.verdict) == (0, 0, 0, 0, 2, Verdict.UNPROVEN)
    assert "begins at offset 2" in report.doubts[0]


def test_a_compacted_source_is_unproven_once_compaction_has_removed_records(pipeline: Pipeline) -> None:
    compacting = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01", "max_compaction_lag_ms": "100"}
    pipeline.create("table", cleanup_policy="compact", **compacting)
    table = replace(pipeline.job.source, topics=(pipeline.topic("table"),))
    sent = [r for r in records(6) if r.key != b"k0-2"]  # two keys, each twice
    pipeline.produce("table", sent)
    pipeline.produce("out", sent, "commit")
    pipeline.passed({0: len(sent), 1: 0}, "table")
    report = pipeline.audit(source=table)
    assert (*wrong(report), report.verdict) == (0, 0, 0, 0, Verdict.HELD)
    assert "the topic is compacted, but no record was removed yet" in report.notes[0]

    view = audit_kafka.KafkaView(replace(pipeline.job, source=table))
    lane = (pipeline.topic("table"), 0)

    def records_are_removed() -> bool:
        pipeline.produce("table", [Record(b"later", b"closes the segment")])
        return view.count({lane: 0}, {lane: len(sent)})[lane] == 2

    wait_until(records_are_removed, "compaction has removed the older values")
    report = pipeline.audit(source=table)
    assert (*wrong(report), report.unjudged, report.verdict) == (0, 0, 0, 0, 2, Verdict.UNPROVEN)
    assert (report.sent, report.counted, report.delivered) == (2, 2, 4)
    assert "is compacted, and 2 of the 4 offsets from 0 to 4 have no record" in report.doubts[0]
    pipeline.produce("out", [Record(b"k", b"stray", 1)], "commit")
    assert pipeline.audit(source=table).verdict is Verdict.BROKEN, "compaction of partition 0 does not explain it"


def test_an_audit_whose_reader_misses_records_proves_nothing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's reader reads a part of the source; another client counts all of it."""
    real = source.read_batch

    def half(*arguments: Any, **options: Any) -> Any:
        frame = real(*arguments, **options)
        return frame if "kafka.isolation.level" in options else frame.filter("offset < 5")

    monkeypatch.setattr(source, "read_batch", half)
    report = delivered(pipeline, SENT)
    assert (report.counted, report.counted - report.sent) == (len(SENT), 6)
    assert (*wrong(report), report.unjudged, report.verdict) == (0, 0, 0, 0, 6, Verdict.UNPROVEN)
    assert f"has {report.sent} source records, and another client has {len(SENT)}" in report.doubts[0]
