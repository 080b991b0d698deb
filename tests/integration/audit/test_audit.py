"""The audit reports each kind of damage, and none where there is none. The tests write what a job would write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, Producer
from confluent_kafka.admin import OffsetSpec

from ackwright_stream import audit_kafka
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Format, Guarantee, KafkaSink, Reason, Transform
from ackwright_stream.reports import Verdict
from integration.support.audited import SENT, Pipeline, Record, delivered, ends, records, without, wrong
from integration.support.members import delete_group
from waiting import ANSWER


def swapped(records_: list[Record]) -> list[Record]:
    at = [i for i, r in enumerate(records_) if r.key == b"k0-0"]
    changed = list(records_)
    changed[at[0]], changed[at[1]] = records_[at[1]], records_[at[0]]
    return changed


@pytest.mark.parametrize(
    ("tamper", "expected", "kinds"),
    [
        (lambda s: s, (0, 0, 0, 0), []),
        (lambda s: s[:3] + s[4:], (1, 0, 0, 0), ["lost"]),
        (lambda s: [*s, s[3]], (0, 1, 0, 0), ["duplicated"]),
        (lambda s: [*s, Record(b"same", b"twice")], (0, 1, 0, 0), ["duplicated"]),
        (lambda s: [*s, Record(b"k0-0", b"foreign")], (0, 0, 1, 0), ["unexpected"]),
        (swapped, (0, 0, 0, 2), ["outOfOrder", "outOfOrder"]),
        (lambda s: [*without(s, b"gone"), Record(b"gone", b"")], (1, 0, 1, 0), ["lost", "unexpected"]),
        (lambda s: [*without(s, None), Record(b"", b"no key")], (1, 0, 1, 0), ["lost", "unexpected"]),
        (lambda s: without(s, b"same"), (2, 0, 0, 0), ["lost"]),
    ],
    ids=["right", "lost", "duplicated", "thrice", "unexpected", "swapped", "tombstone", "null-key", "lost-twice"],
)
def test_each_kind_of_damage_is_reported(
    pipeline: Pipeline,
    tamper: Callable[[list[Record]], list[Record]],
    expected: tuple[int, int, int, int],
    kinds: list[str],
) -> None:
    report = delivered(pipeline, tamper(SENT))
    assert wrong(report) == expected
    assert [o.kind for o in report.offending] == kinds
    assert (report.verdict is Verdict.HELD) is (expected == (0, 0, 0, 0))
    assert (report.sent, report.expected, report.delivered) == (len(SENT), len(SENT), len(tamper(SENT)))


def test_offending_records_are_shown_with_their_place(pipeline: Pipeline) -> None:
    sink = [*without(SENT, b"k1-2"), SENT[0], Record(b"odd", b"\xff" + b"x" * 500, 1)]
    offending = {o.kind: o for o in delivered(pipeline, sink).offending}
    lost, twice, odd = offending["lost"], offending["duplicated"], offending["unexpected"]
    assert (lost.key, lost.value, lost.count, lost.where) == ("k1-2", "v2", 1, f"{pipeline.topic('in')}-1")
    assert (twice.key, twice.value, twice.where) == ("k0-0", "v0", f"{pipeline.topic('out')}-0@11")
    assert odd.where == f"{pipeline.topic('out')}-1@4"
    assert odd.value is not None
    assert len(odd.value) == 160


def test_headers_count(pipeline: Pipeline) -> None:
    sent = [
        Record(b"a", b"1", headers=(("h", b"x"), ("h", None))),
        Record(b"b", b"2", headers=(("h", b"x"),)),
        Record(b"c", b"3"),
    ]
    right = delivered(pipeline, sent, sent)
    assert wrong(right) == (0, 0, 0, 0)
    other = Pipeline(pipeline.bootstrap, pipeline.spark)
    sink = [replace(sent[0], headers=(("h", None), ("h", b"x"))), replace(sent[1], headers=()), sent[2]]
    assert wrong(delivered(other, sink, sent)) == (2, 0, 2, 0)


def test_aborted_records_do_not_count_on_either_side(pipeline: Pipeline) -> None:
    pipeline.produce("in", [Record(b"x", b"aborted")], "abort")  # takes offsets 0 and, for the marker, 1
    pipeline.produce("in", [Record(b"k", b"v")], "commit")
    pipeline.produce("out", [Record(b"k", b"v")], "abort")
    pipeline.produce("out", [Record(b"k", b"v")], "commit")
    pipeline.passed({0: 4, 1: 0})
    report = pipeline.audit()
    assert wrong(report) == (0, 0, 0, 0)
    assert (report.sent, report.counted, report.delivered) == (1, 1, 1)


def test_the_audit_waits_for_an_open_transaction_that_hides_records(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.produce("in", SENT)
    open_one = pipeline.produce("out", [Record(b"x", b"undecided")], "open")
    pipeline.produce("out", SENT, "commit")  # committed, and hidden from readers behind the open one
    pipeline.passed(ends(SENT))
    real = audit_kafka.KafkaView._offsets
    lane, stable = (pipeline.topic("out"), 0), list[int]()

    def offsets(
        self: audit_kafka.KafkaView, lanes: Iterable[audit_kafka.Lane], spec: OffsetSpec, isolation: IsolationLevel
    ) -> Any:
        ends_ = real(self, lanes, spec, isolation)
        if isolation is IsolationLevel.READ_COMMITTED and lane in ends_:
            if not stable:
                open_one.abort_transaction(ANSWER)  # now that the audit has read its first offset
            stable.append(ends_[lane])
        return ends_

    monkeypatch.setattr(audit_kafka.KafkaView, "_offsets", offsets)
    assert wrong(pipeline.audit()) == (0, 0, 0, 0)
    assert stable[0] == 0 < stable[-1], "it reads the end again until the transaction has ended"


def test_the_audit_of_a_running_pipeline_counts_no_batch_in_progress(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline continues between the audit's two reads of the positions; some of its output is there in time."""
    pipeline.produce("in", records(10))
    pipeline.produce("out", records(6), "commit")
    pipeline.passed({0: 5, 1: 0})
    real = audit_kafka.KafkaView.positions
    asked: list[int] = []

    def positions(
        self: audit_kafka.KafkaView, lanes: Iterable[audit_kafka.Lane], *more: Any
    ) -> dict[audit_kafka.Lane, int | None]:
        if asked:
            pipeline.passed({0: 8, 1: 0})
        asked.append(1)
        return real(self, lanes, *more)

    monkeypatch.setattr(audit_kafka.KafkaView, "positions", positions)
    report = pipeline.audit()
    assert len(asked) == 2
    assert wrong(report) == (0, 0, 0, 0)
    assert (report.sent, report.expected, report.delivered) == (5, 5, 6)
    asked.clear()
    pipeline.passed({0: 5, 1: 0})
    pipeline.produce(
        "out", [records(10)[5], records(10)[8]], "commit"
    )  # one a second time, one that no position covers
    assert wrong(pipeline.audit()) == (0, 1, 1, 0)


def test_at_least_once_may_be_ahead_of_its_position(pipeline: Pipeline) -> None:
    pipeline.produce("in", SENT)
    pipeline.produce("out", SENT)
    pipeline.passed({0: 3, 1: 0})
    held = pipeline.audit(guarantee=Guarantee.AT_LEAST_ONCE)
    assert wrong(held) == (0, 0, 0, 0)
    assert pipeline.audit().unexpected > 0  # exactly-once may not
    pipeline.produce("out", SENT)
    again = pipeline.audit(guarantee=Guarantee.AT_LEAST_ONCE)
    assert (again.lost, again.duplicated, again.unexpected) == (0, len(SENT), 0)
    assert again.verdict is Verdict.HELD


def test_at_least_once_does_not_wait_for_an_application_upstream(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job reads up to the first open transaction, and an upstream may keep one open for 15 minutes."""
    pipeline.produce("in", records(5))
    upstream = pipeline.produce("in", [Record(b"x", b"undecided")], "open")
    pipeline.produce("in", [Record(b"y", b"behind it")])
    pipeline.produce("out", records(5))
    pipeline.passed({0: 3, 1: 0})
    monkeypatch.setattr(audit_kafka, "_ABORT_MARGIN_S", -60)  # an audit that waited for it would fail at once
    try:
        assert wrong(pipeline.audit(guarantee=Guarantee.AT_LEAST_ONCE, operation_timeout_ms=2000)) == (0, 0, 0, 0)
    finally:
        upstream.abort_transaction(ANSWER)


def test_a_transform_that_filters_and_routes(pipeline: Pipeline) -> None:
    pipeline.create("other")
    other = pipeline.topic("other")
    sent = [Record(b"k", json.dumps({"a": a, "n": n}).encode()) for a, n in (("x", 1), ("y", 2), ("z", 3))]
    sql = f"SELECT a AS key, n, CASE WHEN n = 3 THEN '{other}' END AS topic FROM source WHERE n > 1"  # noqa: S608
    job = {
        "source": replace(pipeline.job.source, format=Format.JSON, schema="a STRING, n INT"),
        "sink": replace(pipeline.job.sink_of(KafkaSink), format=Format.JSON),
        "transform": Transform(sql=sql),
    }
    sink = [Record(b"y", b'{"n":2}'), Record(b"z", b'{"n":3}', topic=other)]
    report = delivered(pipeline, sink, sent, **job)
    assert wrong(report) == (0, 0, 0, 0)
    assert (report.sent, report.expected, report.delivered) == (3, 2, 2)
    pipeline.produce("out", [Record(b"z", b'{"n":3}')])  # in the wrong topic
    assert wrong(pipeline.audit(**job)) == (0, 0, 1, 0)


def test_a_malformed_record_that_was_passed_counts_as_lost_unless_skipped(pipeline: Pipeline) -> None:
    sent = [Record(b"k", b"good"), Record(b"k", b"\xff")]
    strict = replace(pipeline.job.source, format=Format.STRING)
    report = delivered(pipeline, sent[:1], sent, source=strict)
    assert (report.lost, report.malformed, report.verdict) == (1, 1, Verdict.BROKEN)
    assert "malformed" in report.notes[0]
    skipping = pipeline.audit(source=replace(strict, skip_malformed=True))
    assert (skipping.lost, skipping.malformed, skipping.verdict) == (0, 1, Verdict.HELD)


def test_the_audit_counts_from_the_first_position_of_the_lane(pipeline: Pipeline) -> None:
    pipeline.create("lanes")
    keys = (f"{pipeline.name}/{pipeline.topic('in')}-0", f"other/{pipeline.topic('in')}-0")
    lane, foreign = (
        Record(k.encode(), json.dumps({"start": s, "topicId": "x"}).encode()) for k, s in zip(keys, (4, 6), strict=True)
    )
    pipeline.produce("lanes", [lane, foreign], "commit")
    sent = records(7)
    report = delivered(pipeline, sent[4:], sent)
    assert wrong(report) == (0, 0, 0, 0)
    assert report.lanes[f"{pipeline.topic('in')}-0"] == {"from": 4, "position": 7}
    assert (report.sent, report.expected) == (3, 3)
    delete_group(pipeline.admin, pipeline.name)
    with pytest.raises(JobError, match="no longer has a position") as e:
        pipeline.audit()
    assert e.value.reason is Reason.POSITION_LOST


def test_records_in_a_topic_to_which_none_was_routed_are_unexpected(pipeline: Pipeline) -> None:
    pipeline.create("left", "right")
    left, right = pipeline.topic("left"), pipeline.topic("right")
    routed = {"transform": Transform(sql=f"SELECT key, value, '{left}' AS topic FROM source")}  # noqa: S608
    sent = records(4)
    routes = [left, right, pipeline.topic("in"), "a topic that does not exist"]
    report = delivered(pipeline, [replace(r, topic=left) for r in sent], sent, routes=routes, **routed)
    assert (*wrong(report), report.verdict) == (0, 0, 0, 0, Verdict.HELD)
    pipeline.produce("right", sent[:1], "commit")
    assert pipeline.audit(**routed).verdict is Verdict.HELD, "it reads no other topics"
    report = pipeline.audit(routes=routes, **routed)
    assert (*wrong(report), report.verdict) == (0, 0, 1, 0, Verdict.BROKEN)
    assert report.offending[0].topic == right


def test_a_key_has_to_be_where_the_partitioner_of_the_job_puts_it(pipeline: Pipeline) -> None:
    by_key = {"sink": replace(pipeline.job.sink_of(KafkaSink), preserve_partition=False)}
    keys = [b"", *(f"key-{n}".encode() for n in range(50))]
    sent = [Record(key, b"v%d" % n) for n, key in enumerate(keys)] + [Record(None, b"no key")]
    pipeline.produce("in", sent)
    pipeline.passed({0: len(sent), 1: 0})
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "partitioner": pipeline.job.producer["partitioner"]})
    places: dict[bytes | None, int] = {}
    for r in sent:
        producer.produce(
            pipeline.topic("out"), r.value, r.key, on_delivery=lambda _, m: places.update({m.key(): m.partition()})
        )
    assert producer.flush(ANSWER) == 0
    report = pipeline.audit(**by_key)
    assert (*wrong(report), report.misplaced, report.verdict) == (0, 0, 0, 0, 0, Verdict.HELD)
    assert set(places.values()) == {0, 1}

    other = Pipeline(pipeline.bootstrap, pipeline.spark)
    key = next(key for key in keys[1:] if places[key] == 0)
    report = delivered(
        other,
        [Record(key, b"v", partition=1)],
        [Record(key, b"v")],
        sink=replace(other.job.sink_of(KafkaSink), preserve_partition=False),
    )
    assert (*wrong(report), report.misplaced, report.verdict) == (0, 0, 0, 0, 1, Verdict.BROKEN)


def test_a_position_beyond_the_end_is_refused(pipeline: Pipeline) -> None:
    pipeline.produce("in", records(2))
    pipeline.passed({0: 9, 1: 0})
    with pytest.raises(JobError, match="ends at 2") as e:
        pipeline.audit()
    assert e.value.reason is Reason.TOPIC_REPLACED


def test_what_cannot_be_recomputed_is_refused(pipeline: Pipeline) -> None:
    pipeline.passed({0: 0, 1: 0})
    with pytest.raises(JobError, match="not deterministic") as e:
        pipeline.audit(transform=Transform(sql="SELECT key, uuid() AS value FROM source"))
    assert e.value.reason is Reason.INVALID_TRANSFORM


def test_a_pipeline_without_output(pipeline: Pipeline) -> None:
    pipeline.produce("in", SENT)
    report = pipeline.audit()
    assert (report.sent, report.delivered, report.verdict) == (0, 0, Verdict.HELD)
    pipeline.passed(ends(SENT))
    report = pipeline.audit(transform=Transform(sql="SELECT key, value FROM source WHERE value = 'none is like this'"))
    assert (report.sent, report.expected, report.verdict) == (len(SENT), 0, Verdict.HELD)


def test_a_missing_topic_is_named(pipeline: Pipeline) -> None:
    with pytest.raises(JobError, match="no-such-topic") as e:
        pipeline.audit(sink=replace(pipeline.job.sink_of(KafkaSink), topic="no-such-topic"))
    assert e.value.reason is Reason.TOPIC_MISSING
