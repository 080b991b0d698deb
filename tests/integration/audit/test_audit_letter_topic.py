"""The audit of dead letters in a compacted topic beside a table: by key. The tests play the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import DeadLetterTopic, Format, Guarantee
from ackwright_stream.reports import Verdict
from integration.support.audited import Pipeline, Record
from integration.support.audited_delta import Audited

SQL = "SELECT CAST(kafka.key AS STRING) AS id, CAST(n AS STRING) AS v FROM source WHERE n >= 0"
GOOD, FILTERED = [Record(b"k", b'{"n": %d}' % n) for n in range(3)], Record(b"k", b'{"n": -1}')
BAD = [Record(None, b"oops \xff", headers=(("h", b"\x00"), ("h", None))), Record(b"b", b"{")]
SENT = [GOOD[0], BAD[0], GOOD[1], BAD[1], FILTERED, GOOD[2]]
ROWS = (("k", "0"), ("k", "1"), ("k", "2"))


@pytest.fixture
def audited(kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> Audited:
    pipeline = Pipeline(kafka.bootstrap_servers, spark)
    pipeline.create("letters", cleanup_policy="compact,delete")
    source = replace(pipeline.job.source, format=Format.JSON, schema="n BIGINT", dead_letter_fraction=0.5)
    pipeline.job = replace(pipeline.job, source=source)
    return Audited(pipeline, tmp_path, SQL, dead_letters=DeadLetterTopic(pipeline.topic("letters"), {}))


def letter(audited: Audited, record: Record, offset: int, group: str | None = None, reason: bytes = b"why") -> Record:
    """The dead letter of a record, as docs/dead-letters.md describes it."""
    group, topic = group or audited.pipeline.name, audited.pipeline.topic("in")
    own = {
        "group": group.encode(),
        "topic": topic.encode(),
        "partition": b"%d" % record.partition,
        "offset": b"%d" % offset,
        "key": record.key,
        "reason": reason,
    }
    headers = (*record.headers, *((f"ackwright.dead-letter.{name}", value) for name, value in own.items()))
    key = f"{group}/{topic}-{record.partition}@{offset}".encode()
    return replace(record, key=key, headers=headers)


def letters(audited: Audited) -> list[Record]:
    """Those of SENT."""
    return [letter(audited, r, n) for n, r in enumerate(SENT) if r in BAD]


def delivered(audited: Audited, written: list[Record], until: int = len(SENT)) -> Report:
    """The report when these dead letters are written and the position is at `until`."""
    audited.pipeline.produce("in", SENT)
    audited.pipeline.produce("letters", written)
    rows = [row for row in ROWS if any(r.value == b'{"n": %s}' % row[1].encode() for r in SENT[:until])]
    audited.deliver(0, until, *rows)
    return audited.audit()


Tamper = Callable[[Audited, list[Record]], list[Record]]


@pytest.mark.parametrize(
    ("tamper", "lost", "unexpected"),
    [
        pytest.param(lambda a, w: [*w, w[0], w[1], w[0]], 0, 0, id="repeated"),
        pytest.param(lambda a, w: [letter(a, BAD[0], 1, reason=b"another"), w[1]], 0, 0, id="another reason"),
        pytest.param(lambda a, w: [*w, letter(a, BAD[0], 1, group="another"), Record(b"x", b"x")], 0, 0, id="others"),
        pytest.param(lambda a, w: w[1:], 1, 0, id="lost"),
        pytest.param(lambda a, w: [replace(w[0], value=b"another"), w[1]], 1, 1, id="another value"),
        pytest.param(lambda a, w: [replace(w[0], key=w[1].key), w[1]], 1, 0, id="another key, that is written again"),
        pytest.param(lambda a, w: [*w, letter(a, GOOD[0], 0)], 0, 1, id="delivered as well"),
    ],
)
def test_each_kind_of_damage_is_reported_by_key(audited: Audited, tamper: Tamper, lost: int, unexpected: int) -> None:
    report = delivered(audited, tamper(audited, letters(audited)))
    assert (report.lost, report.duplicated, report.unexpected) == (lost, 0, unexpected), report
    assert report.verdict is (Verdict.BROKEN if lost or unexpected else Verdict.HELD)
    assert (report.sent, report.expected, report.malformed) == (len(SENT), len(ROWS), len(BAD))
    if not lost and not unexpected:
        assert report.expected + report.dead_letters + 1 == report.sent


def test_dead_letters_that_the_position_has_not_passed_are_explained(audited: Audited) -> None:
    """Under exactly-once they precede the commit; at-most-once writes none before its claim."""
    report = delivered(audited, letters(audited), until=2)
    assert (report.lost, report.unexpected, report.verdict) == (0, 0, Verdict.HELD), report
    assert (report.sent, report.dead_letters) == (2, 2)
    assert audited.audit(Guarantee.AT_MOST_ONCE).unexpected == 1


def test_what_retention_may_have_removed_is_missing_and_not_lost(audited: Audited) -> None:
    audited.pipeline.produce("letters", letters(audited))
    audited.pipeline.delete("letters", 0, 1)
    report = delivered(audited, [])
    assert (report.lost, report.missing, report.verdict) == (0, 1, Verdict.UNPROVEN), report
