"""The job creates its clients with exactly the settings that its jobspec carries, and adds nothing but ids and
credentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from pyspark.sql import DataFrame

from ackwright.planning.plan import plan
from ackwright.render.jobspec import jobspec
from ackwright.sinks.postgres import PostgresSink as DeclaredPostgres
from ackwright_stream import audit_kafka, connection, postgres_connection, query, source, topic_ids
from ackwright_stream.delivery.batch import Output
from ackwright_stream.jobspec import Cluster, Guarantee, JobSpec, KafkaSink
from ackwright_stream.lanes import Lanes
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Lane
from ackwright_stream.sinks.kafka import (
    compacted,
    handles,
    lane_records,
    membership,
    plain_writer,
    sink,
    spark_kafka,
    transactions,
)
from minimal_job import NOBODY, minimal_job, with_positions
from unit.render.pipelines import MINIMAL, declared

LANE = Lane("in", 3)
# By a driver whose tasks used two slots.
DELIVERED = TopicPartition(LANE.topic, LANE.partition, 7, "ackwright/1 topic=a;slots=2;lanes=b;pipeline= driver=4")
Settings = Mapping[str, Any]


def _ended(timeout: float) -> None:
    """Ends the thread that keeps the membership."""
    raise KafkaException(KafkaError(KafkaError._FATAL))


def bounded_job() -> JobSpec:
    """The jobspec of a pipeline with trigger.availableNow."""
    bounded = plan(declared(MINIMAL, trigger={"availableNow": True}))
    return jobspec(bounded, master="local[2]", secrets=None)


class Recorder:
    """Stands in for the classes of clients, and keeps the settings of each client by the class's name."""

    def __init__(self) -> None:
        self.created: list[tuple[str, dict[str, Any]]] = []

    def of(self, kind: str) -> Callable[..., Any]:
        def create(settings: Settings) -> Any:
            self.created.append((kind, dict(settings)))
            return SimpleNamespace(
                consumer_group_metadata=lambda: b"member",
                init_transactions=lambda _: None,
                list_topics=lambda **_: None,
                committed=lambda *_, **__: [DELIVERED],
                subscribe=lambda _, on_assign, **__: on_assign(SimpleNamespace(assign=lambda _: None), []),
                memberid=lambda: "ackwright-1",
                poll=_ended,
                close=lambda: None,
            )

        return create


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    for module, kind in (
        (connection, "Consumer"),
        (compacted, "Consumer"),
        (audit_kafka, "Consumer"),
        (membership, "Consumer"),
        (sink, "Consumer"),
        (plain_writer, "Producer"),
        (transactions, "Handle"),
        (connection, "AdminClient"),
        (compacted, "AdminClient"),
    ):
        monkeypatch.setattr(module, kind, recorder.of(kind))
    monkeypatch.setattr(handles.Handles, "prepare", lambda *_: None)
    return recorder


def job(guarantee: Guarantee, credentials: Path) -> JobSpec:
    (credentials / "username").write_text("ann")
    (credentials / "password").write_text("hunter2")
    security = {"security.protocol": "SASL_SSL"}
    plain = minimal_job(guarantee)
    secured = Cluster(NOBODY, security, security, str(credentials), plain.cluster.every_client)
    return minimal_job(guarantee, cluster=secured)


def expected(job: JobSpec, section: Settings, **more: Any) -> dict[str, Any]:
    login = {"sasl.username": "ann", "sasl.password": "hunter2"}
    connected = {"bootstrap.servers": NOBODY, **job.cluster.every_client, **job.cluster.librdkafka, **login}
    settings = {**connected, **section, **more}
    reports = "delivery.report.only.error"  # confluent-kafka takes it as a bool alone
    return settings | ({reports: settings[reports] == "true"} if reports in settings else {})


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_the_driver(recorded: Recorder, monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee, tmp_path: Path) -> None:
    spec = job(guarantee, tmp_path)
    driver = sink.for_driver(spec, None)
    asked = topic_ids.reader

    def reader(of: JobSpec, cluster: Cluster | None = None) -> topic_ids.TopicIds:
        assert of is spec
        assert cluster in (None, spec.cluster)
        asked(of)  # its client is an AdminClient without further settings, as that of connection.administrator()
        return lambda topics: dict.fromkeys(topics, "an-id")

    monkeypatch.setattr(topic_ids, "reader", reader)
    assert driver.join([LANE]) == b"member"
    unstable = {"isolation.level": "read_uncommitted"}
    assert spec.sink_of(KafkaSink).positions.uncommitted_reads == unstable
    names = spec.sink_of(KafkaSink).positions
    ids = [names.driver_transactional_id, *(f"ops.flights/slots/{n}" for n in (0, 1))]
    ended = [expected(spec, names.producer, **{"transactional.id": name}) for name in ids]
    joined, handles = recorded.created[:3], [settings for kind, settings in recorded.created[3:] if kind == "Handle"]
    assert joined == [
        ("Consumer", expected(spec, names.member)),
        ("Consumer", expected(spec, spec.positions_consumer, **unstable)),  # waits for no transaction
        ("Consumer", expected(spec, spec.positions_consumer)),
    ]
    assert len(recorded.created) == 6
    assert sorted(handles, key=lambda s: s["transactional.id"]) == sorted(ended, key=lambda s: s["transactional.id"])


@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_MOST_ONCE])
def test_a_task(recorded: Recorder, guarantee: Guarantee, tmp_path: Path) -> None:
    """Under exactly-once its transaction carries rows; under at-most-once a claim carries none, and a plain producer
    does."""
    spec = job(guarantee, tmp_path)
    worker = sink.for_tasks(spec, transactional=guarantee is Guarantee.EXACTLY_ONCE)
    worker.transactions.initialised(transactions.transactional_id(spec, 3))
    rows = spec.producer if guarantee is Guarantee.EXACTLY_ONCE else spec.sink_of(KafkaSink).positions.producer
    assert recorded.created[-1] == ("Handle", expected(spec, rows, **{"transactional.id": "ops.flights/slots/3"}))
    if guarantee is Guarantee.AT_MOST_ONCE:
        worker.plain_writer.producer()
        assert recorded.created[-1] == ("Producer", expected(spec, spec.producer))


def test_readers_of_the_job_and_of_the_audit(
    recorded: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(Guarantee.EXACTLY_ONCE, tmp_path)
    connection.positions_consumer(spec)
    errors: list[Any] = []
    connection.administrator(spec.cluster, errors)
    assert recorded.created == [
        ("Consumer", expected(spec, spec.positions_consumer)),
        ("AdminClient", expected(spec, {}, error_cb=errors.append)),
    ]
    recorded.created.clear()
    for module in (compacted, audit_kafka):
        monkeypatch.setattr(module, "Consumer", _refusing(recorded))
    with pytest.raises(Refused):
        lane_records.records(spec)
    view = object.__new__(audit_kafka.KafkaView)
    view._job, view._timeout = spec, 1.0
    with pytest.raises(Refused):
        view.positions([(LANE.topic, LANE.partition)])
    topics = {spec.sink_of(KafkaSink).positions.lanes_topic: None}
    view._admin = SimpleNamespace(list_topics=lambda **_: SimpleNamespace(topics=topics))  # type: ignore[assignment]
    monkeypatch.setattr(view, "partitions", lambda _: [], raising=False)
    monkeypatch.setattr(view, "decided", lambda _: {}, raising=False)
    with pytest.raises(Refused):
        view.lane_starts()
    with pytest.raises(Refused):
        compacted._hides(spec, TopicPartition("ackwright-lanes", 0, 0), 1, lambda message: False, 0.0)
    soon = {"fetch.wait.max.ms": "10"}  # of the driver, which waits for the end of a topic at its start
    assert [settings for _, settings in recorded.created] == [
        expected(spec, spec.topic_consumer, **soon),
        expected(spec, spec.positions_consumer),
        expected(spec, spec.topic_consumer),
        expected(spec, spec.topic_consumer, **soon, **{"isolation.level": "read_uncommitted"}),
    ]


class Refused(Exception):
    """A client was about to be created; its settings are recorded."""


def _refusing(recorded: Recorder) -> Callable[[Settings], Any]:
    def create(settings: Settings) -> Any:
        recorded.of("Consumer")(settings)
        raise Refused

    return create


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_sparks_reader(guarantee: Guarantee, tmp_path: Path) -> None:
    spec = job(guarantee, tmp_path)
    options = source.reader_options(spec)
    java = {"bootstrap.servers": NOBODY, **spec.cluster.java}
    assert options == {
        **{f"kafka.{name}": value for name, value in java.items()},
        **{name if "." not in name else f"kafka.{name}": value for name, value in spec.consumer.items()},
        "includeHeaders": "true",
    }
    assert options["failOnDataLoss"] == str(guarantee is not Guarantee.AT_MOST_ONCE).lower()


def test_sparks_writer(monkeypatch: pytest.MonkeyPatch, recorded: Recorder, tmp_path: Path) -> None:
    spec = job(Guarantee.AT_LEAST_ONCE, tmp_path)
    written: list[Settings] = []
    monkeypatch.setattr(spark_kafka, "write", lambda *a: written.append(a[2]))
    rows: Any = SimpleNamespace(sparkSession=None, columns=["value"])
    execution: Any = None
    sink.for_driver(spec, None).spark_writer.write(rows, execution, [LANE])
    assert written == [{"bootstrap.servers": NOBODY, **spec.cluster.java, **spec.sink_options}]


@pytest.mark.parametrize("bounded", [False, True])
def test_sparks_query(monkeypatch: pytest.MonkeyPatch, bounded: bool) -> None:
    spec = bounded_job() if bounded else minimal_job()
    assert bool(spec.stream_options) is not bounded
    calls: dict[str, Any] = {}

    class Writer:
        def __getattr__(self, name: str) -> Callable[..., Writer]:
            def call(*arguments: Any, **options: Any) -> Writer:
                calls[name] = options or arguments
                return self

            return call

    written = Output(cast(DataFrame, SimpleNamespace(writeStream=Writer())))
    owned = Ownership({}, 0, cast(Lanes, SimpleNamespace(sink=None)))
    nothing: Any = None
    subject = query.Query(nothing, spec, owned, nothing, nothing)
    subject._start("place", written)
    assert (calls["option"], calls["queryName"]) == (("checkpointLocation", "place"), (spec.name,))
    assert calls["options"] == (spec.stream_options or ())
    assert calls["trigger"] == ({"availableNow": True} if bounded else {"processingTime": "1000 milliseconds"})
    assert calls.keys() == {"foreachBatch", "option", "options", "queryName", "trigger", "start"}


@pytest.mark.parametrize("tls", [False, True])
def test_connections_to_postgres(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tls: bool) -> None:
    job(Guarantee.EXACTLY_ONCE, tmp_path)  # writes the files of the login
    declared = DeclaredPostgres.model_validate(
        {"host": "db", "database": "shop", "credentialsSecret": {"name": "login"}, "table": "orders"}
    )
    sink_spec = replace(declared.to_job("g"), credentials=str(tmp_path), tls=tls, ca="/ca.crt")
    created: list[Settings] = []
    opened: Any = SimpleNamespace(isolation_level=None, limit_s=None)

    def connect(**settings: Any) -> Any:
        created.append(settings)
        return opened

    monkeypatch.setattr(postgres_connection.Connection, "connect", connect)
    assert postgres_connection.connect(sink_spec) is opened
    carried = dict(sink_spec.connection)
    assert opened.isolation_level is psycopg.IsolationLevel[carried.pop("isolation_level")]
    assert carried.pop("prepare_threshold") == "none"
    assert opened.limit_s == float(carried.pop("response_timeout"))
    assert created == [
        {
            **{"host": "db", "port": 5432, "dbname": "shop", "user": "ann", "password": "hunter2"},
            **({"sslmode": "verify-full", "sslrootcert": "/ca.crt"} if tls else {"sslmode": "disable"}),
            **{"prepare_threshold": None, **carried},
        }
    ]
    parsed = psycopg.conninfo.conninfo_to_dict(psycopg.conninfo.make_conninfo(**carried))
    assert parsed == carried, "libpq knows each name"


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("positions_consumer", "isolation.level", "read_uncommitted"),
        ("positions_consumer", "enable.auto.commit", "true"),
        ("positions_consumer", "group.id", "another"),
        ("topic_consumer", "isolation.level", "read_uncommitted"),
        ("sink.positions.member", "group.instance.id", "another"),
        ("sink.positions.member", "group.id", "another"),
        ("sink.positions.member", "enable.auto.commit", "true"),
        ("sink.positions.producer", "enable.idempotence", "false"),
        ("producer", "acks", "1"),
    ],
)
def test_a_jobspec_that_breaks_the_protocol_is_refused(section: str, name: str, value: str) -> None:
    spec = minimal_job(Guarantee.EXACTLY_ONCE)
    field = section.removeprefix("sink.positions.")
    holder: Any = spec if field == section else spec.sink_of(KafkaSink).positions
    changed: dict[str, Any] = {field: {**getattr(holder, field), name: value}}
    change = replace if holder is spec else with_positions
    with pytest.raises(ValueError, match=f"{section}: {name} is '{value}' and must be"):
        change(spec, **changed)


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_jobspec_whose_clients_may_create_topics_is_refused(guarantee: Guarantee) -> None:
    spec = minimal_job(guarantee)
    assert spec.cluster.every_client["allow.auto.create.topics"] == "false"
    for settings in ({}, {"allow.auto.create.topics": "true"}):
        with pytest.raises(ValueError, match=r"cluster.every_client: allow.auto.create.topics is .* must be 'false'"):
            replace(spec, cluster=replace(spec.cluster, every_client=settings))
