"""`ackwright plan` prints every value of the jobspec, and the jobspec has no value that is not printed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from rich.console import Console

from ackwright.api.spec import ACCEPTED_POSITIONS_ANNOTATION
from ackwright.cli import plan as command
from ackwright.planning.guarantees import Setting, Settings
from ackwright.planning.plan import DeliveryPlan, plan
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import (
    INSTANCE_ID,
    Autoscaling,
    Cluster,
    DeltaSink,
    FilesSink,
    Guarantee,
    IcebergSink,
    JobSpec,
    KafkaSink,
    PostgresSink,
    from_json,
    to_json,
)
from ackwright_stream.jobspec_versions import ADDED, NEWEST, OLDEST
from unit.render.pipelines import EXAMPLES, MINIMAL, declared, pipelines

SECRETS = "/secrets"
Document = Mapping[str, Any]


def values(listed: list[Document]) -> dict[str, str]:
    """The settings of a printed section."""
    by_name = {s["name"]: s["value"] for s in listed}
    assert len(by_name) == len(listed)
    return by_name


def _commit(name: str) -> Callable[[Document], Any]:
    return lambda d: values(d["commit"])[name]


def _restart(d: Document) -> Document:
    printed = values(d["batches"])
    names = {"initial_ms": "initial.ms", "max_ms": "max.ms", "forgive_after_ms": "forgive.after.ms"}
    return {field: int(printed[f"restart.{n}"]) for field, n in (names | {"max_attempts": "max.attempts"}).items()}


def _source(d: Document) -> Document:
    data, limits = values(d["data"]), values(d["sourceOptions"])
    chosen, each = limits.get("maxOffsetsPerTrigger"), limits.get("offsets per transaction")
    smallest = limits.get("smallest limit")
    return {
        "topics": data["source.topics"].split(", "),
        "starting_offsets": limits["startingOffsets"],
        "max_offsets_per_trigger": None if chosen is None else int(chosen),
        "offsets_per_transaction": None if each is None else int(each),
        "smallest_batch": None if smallest is None else int(smallest),
        "format": data["source.format"],
        "schema": data.get("source.schema"),
        "subject": data.get("source.subject"),
        "schema_version": None if (version := data.get("source.schemaVersion", "latest")) == "latest" else int(version),
        "writer_schemas": {},  # the driver reads them
        "skip_malformed": data["source.onMalformed"] == "skip",
        "dead_letter_fraction": (
            float(data["sink.deadLetter.maxFraction"]) if data["source.onMalformed"] == "deadLetter" else None
        ),
    }


def _transform(d: Document) -> Document:
    data = values(d["data"])
    module, _, function = data.get("transform.python", "").partition(":")
    return {"sql": data.get("transform.sql"), "module": module or None, "function": function or None}


def _sections(d: Document) -> dict[str, dict[str, str]]:
    """The settings of the sink's sections, by their fields."""
    return {section["field"]: values(section["settings"]) for section in d["sinkSections"]}


def _sink(d: Document) -> Document:
    if "sink.path" in values(d["data"]):
        return _delta(d) if "sink.createTable" in values(d["data"]) else _files(d)
    if "sink.catalog" in values(d["data"]):
        return _iceberg(d)
    return _postgres(d) if "sink.table" in values(d["data"]) else _kafka(d)


def _kafka(d: Document) -> Document:
    data, commit, sections = values(d["data"]), values(d["commit"]), _sections(d)
    return {
        "topic": None if data["sink.topic"] == "from the column topic" else data["sink.topic"],
        "format": data["sink.format"],
        "output_schema": _output_schema(data),
        "preserve_partition": data["sink.preservePartition"] == "true",
        "positions": {
            "lanes_topic": commit["lanes topic"],
            "decisions_topic": None,
            "driver_transactional_id": commit["transactional.id"],
            "slot_transactional_id_prefix": commit["transactional.id of a slot"].removesuffix("<number>"),
            "lane_transactional_id_prefix": commit["transactional.id of a lane"].removesuffix("<topic>-<partition>"),
            **{name: sections[f"positions.{name}"] for name in ("producer", "member", "uncommitted_reads")},
            "marker_prefix": values(d["commit"]).get("marker topic", "").partition("<")[0],
            "lag_consumer": sections.get("positions.lag_consumer", {}),
        },
        "cluster": None,  # compared apart
        "dead_letters": _letter_topic(d),
        "kind": "kafka",
    }


def _letter_topic(d: Document) -> Document | None:
    topic = values(d["data"]).get("sink.deadLetter.topic")
    return {"topic": topic, "producer": _sections(d)["dead_letters.producer"]} if topic else None


def _output_schema(data: Mapping[str, str]) -> Document | None:
    if "sink.subject" not in data:
        return None
    declared = data["sink.schema"] if not data["sink.schema"].startswith("derived from") else None
    return {"subject": data["sink.subject"], "text": declared, "id": None}  # the driver resolves the id


def _postgres(d: Document) -> Document:
    data, sections = values(d["data"]), _sections(d)
    host, _, port = data["sink.server"].rpartition(":")
    schema, _, table = data["sink.table"].partition(".")
    return {
        **{"host": host, "port": int(port), "database": data["sink.database"], "schema": schema, "table": table},
        **{"credentials": "", "ca": None},  # paths of the place
        "tls": data["sink.tls"] == "verify-full",
        "upsert": data["sink.mode"] == "upsert",
        "key": data["sink.key"].split(", ") if "sink.key" in data else [],
        "version_column": data.get("sink.versionColumn"),
        "deleted_column": data.get("sink.deletedColumn"),
        "create_table": data["sink.createTable"] == "true",
        "dead_letter_table": data.get("sink.deadLetter.table"),
        **{name: sections[name] for name in ("connection", "session")},
        "kind": "postgres",
    }


def _delta(d: Document) -> Document:
    data = values(d["data"])
    return {
        "path": data["sink.path"].removeprefix("file://"),
        "partition_columns": data["sink.partitionColumns"].split(", ") if "sink.partitionColumns" in data else [],
        "create_table": data["sink.createTable"] == "true",
        "endpoint": data.get("sink.s3.endpoint"),
        "region": data.get("sink.s3.region"),
        "credentials": "",  # a path of the place
        "commit": _sections(d)["commit"],
        "dead_letters": _letter_topic(d),
        "kind": "delta",
    }


def _iceberg(d: Document) -> Document:
    data = values(d["data"])
    in_file, warehouse = data["sink.catalog"].startswith("sqlite:"), data.get("sink.catalog.warehouse")
    return {
        "catalog": "sql" if in_file else "rest",
        "uri": data["sink.catalog"],
        "warehouse": warehouse.removeprefix("file://") if warehouse and in_file else warehouse,
        **{"catalog_credentials": "", "ca": None, "credentials": ""},  # paths of the place
        "token_uri": data.get("sink.catalog.tokenUri"),
        "token": None,
        "signing_service": data.get("sink.catalog.sigv4.service"),
        "signing_region": data.get("sink.catalog.sigv4.region"),
        "scope": data.get("sink.catalog.scope"),
        "table": data["sink.table"],
        "partition_columns": data["sink.partitionColumns"].split(", ") if "sink.partitionColumns" in data else [],
        "create_table": data["sink.createTable"] == "true",
        "endpoint": data.get("sink.s3.endpoint"),
        "region": data.get("sink.s3.region"),
        "commit": _sections(d)["commit"],
        "dead_letters": _letter_topic(d),
        "kind": "iceberg",
    }


def _files(d: Document) -> Document:
    data = values(d["data"])
    return {
        "path": data["sink.path"].removeprefix("file://"),
        "endpoint": data.get("sink.s3.endpoint"),
        "region": data.get("sink.s3.region"),
        "credentials": "",  # a path of the place
        "commit": _sections(d)["commit"],
        "dead_letters": _letter_topic(d),
        "kind": "files",
    }


def _schema_registry(d: Document) -> Document | None:
    url = values(d["data"]).get("schemaRegistry")
    limit = int(values(d["commit"])["operation.timeout.ms"])
    # Paths of the place are None here.
    return None if url is None else {"url": url, "credentials": None, "ca": None, "timeout_ms": limit}


def _standby(d: Document) -> Document | None:
    batches = values(d["batches"])
    if batches.get("standby") != "true":
        return None
    return {name: int(batches[f"standby.{name.replace('_', '.')}"]) for name in ("silent_ms", "silent_max_ms")}


def _autoscaling(d: Document) -> Document | None:
    batches = values(d["batches"])
    if "autoscaling.window.ms" not in batches:
        return None
    names = [f.name for f in fields(Autoscaling) if f.name != "cores"]
    numbers = {name: int(batches[f"autoscaling.{name.replace('_', '.')}"]) for name in names}
    return {**numbers, "cores": int(values(d["spark"])["spark.executor.cores"])}


# The printed value of each field of JobSpec that comes from the plan. A field in neither table fails the test.
PRINTED: Mapping[str, Callable[[Document], Any]] = {
    "name": lambda d: d["name"],
    "namespace": lambda d: d["namespace"],
    "guarantee": lambda d: {"before": "at-most-once", "together": "exactly-once", "after": "at-least-once"}[
        values(d["commit"])["advance"]
    ],
    "group": _commit("group.id"),
    "schema_registry": _schema_registry,
    "source": _source,
    "transform": _transform,
    "sink": _sink,
    "slots": lambda d: int(_commit("slots")(d)),
    "autoscaling": _autoscaling,
    "state": lambda _: None,  # no spec has a stateful transform
    "producer": lambda d: values(d["producer"]),
    "positions_consumer": lambda d: values(d["positionsConsumer"]),
    "topic_consumer": lambda d: values(d["topicConsumer"]),
    "stream_options": lambda d: values(d["streamOptions"]),
    "sink_options": lambda d: values(d["sinkOptions"]),
    "consumer": lambda d: values(d["consumer"]),
    "accepted_losses": lambda d: values(d["acceptedLosses"]),
    "accepted_positions": lambda d: values(d["acceptedPositions"]).get("fingerprint"),
    "accepted_state_loss": lambda d: values(d["acceptedStateLoss"]).get("fingerprint"),
    "trigger_interval_ms": lambda d: None if (v := values(d["batches"]).get("trigger.interval.ms")) is None else int(v),
    "available_now": lambda d: values(d["batches"]).get("trigger.availableNow") == "true",
    "standby": _standby,
    "checkpoint": lambda d: values(d["batches"]).get("checkpoint"),
    "operation_timeout_ms": lambda d: int(_commit("operation.timeout.ms")(d)),
    "restart": _restart,
}
OF_THE_PLACE = {
    "cluster",
    "spark",
    "identity",
    "expects_positions",
    "progress_host",
    "progress_port",
}  # check() compares the first two separately
FOR_OTHERS = {"topics", "upstream", "downstream", "brokerFailures"}  # printed, but not part of the jobspec


def printed(delivery_plan: DeliveryPlan) -> Document:
    """The sections that the table shows, by their names in the JSON document."""
    document: dict[str, Any] = json.loads(json.dumps(command.described(delivery_plan)))
    shown = {
        "data": delivery_plan.data,
        "connection": delivery_plan.connection.settings,
        "acceptedLosses": tuple(Setting(t, old, "-") for t, old in delivery_plan.accepted_losses.items()),
        "acceptedPositions": dict(command.sections(delivery_plan))["Accepted positions"],
        "acceptedStateLoss": dict(command.sections(delivery_plan))["Accepted state loss"],
    }
    return document | {n: [{"name": s.name, "value": s.value} for s in section] for n, section in shown.items()}


def of(delivery_plan: DeliveryPlan) -> JobSpec:
    return jobspec(delivery_plan, master="k8s://here", secrets=SECRETS)


def check(delivery_plan: DeliveryPlan) -> None:
    document, job = printed(delivery_plan), of(delivery_plan)
    carried = json.loads(to_json(job))
    assert {f.name for f in fields(JobSpec)} == PRINTED.keys() | OF_THE_PLACE
    own = carried["sink"].get("cluster")
    carried["sink"] |= {
        name: None if name in ("ca", "cluster") else ""
        for name in ("credentials", "catalog_credentials", "ca", "cluster")
        if name in carried["sink"]
    }
    if carried["schema_registry"]:
        carried["schema_registry"] |= {"credentials": None, "ca": None}
    assert {name: PRINTED[name](document) for name in PRINTED} == {name: carried[name] for name in PRINTED}
    assert carried["spark"] == values(document["spark"]) | {"spark.master": "k8s://here"}
    assert carried["cluster"]["every_client"] == values(document["everyClient"])
    check_connection(document["connection"], carried["cluster"])
    assert (own is None) == (delivery_plan.sink_connection is None)
    if delivery_plan.sink_connection:
        check_connection([vars(s) for s in delivery_plan.sink_connection.settings], own)
        assert own["every_client"] == carried["cluster"]["every_client"]


def check_connection(declared: Any, carried: Any) -> None:
    connection = values(declared)
    assert carried["bootstrap_servers"] == connection.pop("bootstrap.servers")
    for client in ("librdkafka", "java"):
        assert carried[client].items() >= connection.items()
        assert all(
            SECRETS in v or "config" in n or n.endswith("type") for n, v in carried[client].items() - connection.items()
        )
    assert carried["credentials"] is None or SECRETS in carried["credentials"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.metadata.name)
def test_the_printed_plan_and_the_jobspec_agree_for_every_example(example: Any) -> None:
    check(plan(example))


@settings(max_examples=60)
@given(pipelines)
def test_the_printed_plan_and_the_jobspec_agree_for_every_pipeline(pipeline: Any) -> None:
    check(plan(pipeline))


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_plan_and_jobspec_agree_with_a_limit_an_accepted_loss_and_a_bounded_run(guarantee: Guarantee) -> None:
    source = {"topics": ["in", "more"], "maxOffsetsPerTrigger": 7, "startingOffsets": "latest"}
    pipeline = declared(MINIMAL, guarantee=guarantee.value, source=source, trigger={"availableNow": True})
    delivery_plan = replace(
        plan(pipeline),
        accepted_losses={"in": "old-id"},
        accepted_positions="0123456789ab",
        accepted_state_loss="ba9876543210",
    )
    check(delivery_plan)
    assert of(delivery_plan).source.offsets_per_transaction is None


def test_every_printed_section_is_used() -> None:
    """A section that no reader of PRINTED reads would be display only."""
    read: set[str] = set()

    class Recorded(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            read.add(name)
            return super().__getitem__(name)

    for guarantee in Guarantee:
        document = Recorded(printed(plan(declared(MINIMAL, guarantee=guarantee.value))))
        for reader in PRINTED.values():
            reader(document)
        compared_apart = {"spark", "everyClient", "connection", "sinkConnection"}
        # Typed values whose printed form is in `data`, `commit`, `sourceOptions` or `batches`.
        shown_elsewhere = {
            *("guarantee", "group", "source", "transform", "state", "stateSecret", "sink", "slots", "schemaRegistry"),
            *(
                "triggerIntervalMs",
                "availableNow",
                "schedule",
                "standby",
                "checkpoint",
                "operationTimeoutMs",
                "restart",
            ),
            "autoscaling",
        }
        assert document.keys() == read | compared_apart | shown_elsewhere | FOR_OTHERS


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.metadata.name)
def test_the_details_show_every_section(example: Any) -> None:
    delivery_plan = plan(example)
    out = io.StringIO()
    command._print_details(delivery_plan, Console(file=out, width=100_000))
    lines = [line.split() for line in out.getvalue().splitlines()]
    of_topics = [t.config for t in delivery_plan.topics]
    shown: list[Settings] = [*(section for _, section in command.sections(delivery_plan)), *of_topics]
    for section in shown:
        for s in section:
            words = [*s.name.split(), *s.value.split()]
            assert any(line[: len(words)] == words for line in lines), s
    sections = [section for _, section in command.sections(delivery_plan)]
    for name in ("producer", "positions_consumer", "topic_consumer", "sink_options", "consumer", "stream_options"):
        assert getattr(delivery_plan, name) in sections
    for name in ("spark", "every_client", "commit", "batches", "source_options", "data"):
        assert getattr(delivery_plan, name) in sections
    for of_sink in delivery_plan.sink.sections:
        assert of_sink.settings in sections


KAFKAS_OWN = ("Producers that commit positions", "membership in the group", "open transactions count")


def test_each_sink_supplies_the_sections_of_its_store_and_no_other() -> None:
    of_kafka = plan(declared(MINIMAL))
    (of_postgres,) = (plan(example) for example in EXAMPLES if example.spec.sink.postgres)
    titles = {p.sink.job.kind: [title for title, _ in command.sections(p)] for p in (of_kafka, of_postgres)}
    for words in KAFKAS_OWN:
        assert any(words in title for title in titles["kafka"])
        assert not any(words in title for title in titles["postgres"])
    names = {s.name for _, section in command.sections(of_postgres) for s in section}
    assert names >= {"connect_timeout", "keepalives_idle", "tcp_user_timeout", "isolation_level", "lock_timeout"}
    assert not names & {"transactional.id", "group.instance.id", "transaction.timeout.ms", "acks"}


def test_a_pipeline_with_a_standby_prints_when_it_takes_over() -> None:
    delivery_plan = plan(declared(MINIMAL, standby=True))
    check(delivery_plan)
    member = of(delivery_plan).sink_of(KafkaSink).positions.member
    assert delivery_plan.standby is not None
    assert str(delivery_plan.standby.silent_max_ms) == member["session.timeout.ms"]


# -- what no user may change -----------------------------------------------------------------------------------

_TRANSACTIONAL = {"acks": "all", "enable.idempotence": "true", "transaction.timeout.ms": "60000"}
_READ = {"isolation.level": "read_committed", "enable.auto.commit": "false"}


@settings(max_examples=60)
@given(pipelines)
def test_no_spec_changes_a_setting_that_the_guarantee_depends_on(pipeline: Any) -> None:
    job = of(plan(pipeline))
    positions = job.sink_of(KafkaSink).positions
    assert positions.producer.items() >= _TRANSACTIONAL.items()
    for consumer in (job.positions_consumer, job.topic_consumer):
        assert consumer.items() >= (_READ | {"group.id": job.group}).items()
    member = {"group.id": job.group, "group.instance.id": INSTANCE_ID, "enable.auto.commit": "false"}
    assert positions.member.items() >= member.items()
    assert job.consumer["isolation.level"] == "read_committed"
    assert job.consumer["failOnDataLoss"] == str(job.guarantee is not Guarantee.AT_MOST_ONCE).lower()
    assert (positions.driver_transactional_id, positions.lane_transactional_id_prefix) == (job.group, f"{job.group}/")
    assert positions.slot_transactional_id_prefix == f"{job.group}/slots/"
    if job.guarantee is Guarantee.EXACTLY_ONCE:
        assert job.producer.items() >= _TRANSACTIONAL.items()
    elif job.guarantee is Guarantee.AT_MOST_ONCE:
        assert (job.producer["retries"], job.producer["enable.idempotence"]) == ("0", "false")
    for name in ("spark.speculation", "spark.sql.adaptive.enabled", "spark.sql.adaptive.streaming.stateless.enabled"):
        assert job.spark[name] == "false"
    assert job.spark["spark.task.maxFailures"] == ("1" if job.guarantee is Guarantee.AT_MOST_ONCE else "4")


@pytest.mark.parametrize(("instances", "cores"), [(1, 1), (1, 2), (3, 4)])
def test_a_batch_has_a_slot_for_each_core_of_the_executors(instances: int, cores: int) -> None:
    job = of(plan(declared(MINIMAL, spark={"executor": {"instances": instances, "cores": cores}})))
    assert job.slots == instances * cores


def test_autoscaling_has_the_slots_of_the_largest_number_of_executors() -> None:
    executor = {"instances": 2, "cores": 3, "autoscaling": {"maxInstances": 5, "drainTarget": "30s"}}
    delivery_plan = plan(declared(MINIMAL, spark={"executor": executor}))
    check(delivery_plan)
    job = of(delivery_plan)
    assert job.slots == 15
    assert job.spark["spark.executor.instances"] == "2"
    assert job.spark["spark.executor.maxNumFailures"] == "10"
    assert job.autoscaling == Autoscaling(2, 5, 3, drain_target_ms=30_000, window_ms=10_000, cool_down_ms=300_000)
    assert from_json(to_json(job)) == job
    # A local master has no executors.
    assert [jobspec(delivery_plan, master=m, secrets=None).autoscaling for m in ("local", "local[2]")] == [None, None]
    assert jobspec(delivery_plan, master="local-cluster[2,1,1024]", secrets=None).autoscaling == job.autoscaling


def test_accepted_positions_come_from_the_annotation_alone() -> None:
    pipeline = declared(MINIMAL)
    annotated = pipeline.metadata.model_copy(update={"annotations": {ACCEPTED_POSITIONS_ANNOTATION: "0123456789ab"}})
    assert of(plan(pipeline)).accepted_positions is None
    assert of(plan(pipeline.model_copy(update={"metadata": annotated}))).accepted_positions == "0123456789ab"


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_every_producer_has_the_same_transaction_timeout(guarantee: Guarantee) -> None:
    job = of(plan(declared(MINIMAL, guarantee=guarantee.value)))
    assert job.transaction_timeout_ms == 60_000
    assert job.producer.get("transaction.timeout.ms") == ("60000" if guarantee is Guarantee.EXACTLY_ONCE else None)


# -- fields and versions of the jobspec ------------------------------------------------------------------------


def test_only_fields_of_later_versions_of_the_jobspec_have_a_default() -> None:
    optional = {f.name for f in fields(JobSpec) if f.default is not f.default_factory}
    assert optional == {f.name for f in fields(JobSpec) if ADDED in f.metadata}
    for sink in (KafkaSink, PostgresSink, DeltaSink, IcebergSink, FilesSink):
        assert {f.name for f in fields(sink) if f.default is not f.default_factory} == {"kind"}
    assert set(Cluster.__dataclass_fields__) == {
        "bootstrap_servers",
        "librdkafka",
        "java",
        "credentials",
        "every_client",
    }


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (("version",), 4, f"version 4, and this job reads versions {OLDEST} to {NEWEST}"),
        (("version",), NEWEST + 1, f"version {NEWEST + 1}, and this job reads versions {OLDEST} to {NEWEST}"),
        (("colour",), "red", "unknown fields: colour;"),
        (("source", "colour"), "red", "unknown fields: source.colour;"),
        (("cluster", "password"), "red", "unknown fields: cluster.password;"),
        (("restart", "colour"), "red", "unknown fields: restart.colour;"),
        (("transform", "colour"), "red", "unknown fields: transform.colour;"),
        (("sink", "colour"), "red", "unknown fields: sink.colour;"),
        (("sink", "positions", "colour"), "red", "unknown fields: sink.positions.colour;"),
        (("sink", "cluster"), None, "missing fields: sink.cluster;"),
        (("sink", "positions", "producer"), None, "missing fields: sink.positions.producer;"),
        (("topic_consumer",), None, "missing fields: topic_consumer;"),
        (("source", "offsets_per_transaction"), None, "missing fields: source.offsets_per_transaction;"),
    ],
)
def test_a_jobspec_of_another_release_is_refused_with_the_field_named(
    at: tuple[str, ...], value: object, message: str
) -> None:
    data = json.loads(to_json(of(plan(declared(MINIMAL)))))
    *path, last = at
    holder = data
    for name in path:
        holder = holder[name]
    if value is None:
        del holder[last]
    else:
        holder[last] = value
    with pytest.raises(ValueError, match=message):
        from_json(json.dumps(data))
