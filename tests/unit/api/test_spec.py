"""The spec: everything that is wrong is reported at once, in YAML spelling, and only InvalidSpec is ever raised."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ackwright.api import violations
from ackwright.api.quantities import duration_ms, memory_mib
from ackwright.api.spec import DeliveryPipeline, load, parse
from ackwright.errors import AckwrightError, InvalidSpec, Place
from ackwright_stream.jobspec import ExitCode, Format, Guarantee, Reason
from unit.documents import EXAMPLES

MINIMAL: dict[str, Any] = {
    "apiVersion": "ackwright.io/v1alpha1",
    "kind": "DeliveryPipeline",
    "metadata": {"name": "p"},
    "spec": {
        "guarantee": "exactly-once",
        "kafka": {"bootstrapServers": "k:9092"},
        "source": {"topics": ["in"]},
        "transform": {"sql": "SELECT key, value FROM source"},
        "sink": {"kafka": {"topic": "out"}},
    },
}


def edited(path: str, value: Any) -> dict[str, Any]:
    """MINIMAL with one field set."""
    document = copy.deepcopy(MINIMAL)
    holder = document
    *parents, last = path.split(".")
    for name in parents:
        holder = holder.setdefault(name, {})
    holder[last] = value
    return document


def refused(document: object) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as caught:
        parse(document)
    return caught.value


def test_defaults() -> None:
    pipeline = parse(MINIMAL)
    assert pipeline.group == "default.p"
    assert pipeline.spec.broker_failures == 1
    assert pipeline.spec.source.format is Format.BINARY
    assert parse(edited("spec.guarantee", "at-most-once")).spec.broker_failures == 0
    assert parse(edited("spec.source.groupId", "mine")).group == "mine"


def test_the_whole_resource_is_read() -> None:
    document = edited(
        "spec.source",
        {"topics": ["a"], "format": "json", "schema": "x INT", "onMalformed": "skip", "maxOffsetsPerTrigger": 5},
    )
    document["spec"] |= {
        "tolerate": {"brokerFailures": 2},
        "topics": [
            {
                "name": "a",
                "partitions": 3,
                "replicationFactor": 5,
                "config": {"retention.ms": "1"},
                "deletionPolicy": "Delete",
            }
        ],
        "trigger": {"availableNow": True},
        "checkpoint": {"volume": {"size": "1Gi"}},
        "spark": {
            "image": "i",
            "driver": {"cores": 1, "memory": "1g"},
            "executor": {"instances": 2, "cores": 1, "memory": "512m"},
            "conf": {},
        },
        "suspend": True,
    }
    document["spec"]["kafka"] |= {
        "auth": {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "kafka-user"}},
        "tls": {"caSecret": {"name": "kafka-ca", "key": "ca.crt"}},
    }
    document["spec"]["sink"] = {"kafka": {"topic": "o", "format": "string", "acks": "all", "preservePartition": True}}
    spec = parse(document).spec
    assert spec.guarantee is Guarantee.EXACTLY_ONCE
    assert spec.source.schema_ddl == "x INT"
    assert spec.topics[0].replication_factor == 5
    assert spec.topics[0].deletion_policy == "Delete"
    assert spec.suspend


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_valid(example: Path) -> None:
    name = load(example).metadata.name
    assert name == example.stem or example.parent.name != "examples"


def test_an_object_of_the_api_server_is_a_spec() -> None:
    document = copy.deepcopy(MINIMAL) | {"status": {"conditions": []}}
    document["metadata"] |= {
        "uid": "u",
        "resourceVersion": "1",
        "generation": 3,
        "creationTimestamp": "now",
        "managedFields": [],
    }
    assert parse(document) == parse(MINIMAL)


def test_every_violation_is_reported_at_once() -> None:
    document = edited("spec.guarantee", "exactly_once")
    document["spec"]["topics"] = [{"name": "x y", "partitions": "6", "config": {"retention.ms": 1}}]
    document["spec"]["trigger"] = {"interval": "1 s"}
    document["spec"]["transform"] = {}
    document["spec"]["sparc"] = {}
    fields = [v.field for v in refused(document).violations]
    assert sorted(fields) == sorted(
        [
            "spec.guarantee",
            "spec.topics[0].name",
            "spec.topics[0].partitions",
            "spec.topics[0].config['retention.ms']",
            "spec.trigger.interval",
            "spec.transform",
            "spec.sparc",
        ]
    )


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.guarantee", "exactly_once", "did you mean exactly-once?"),
        ("spec.tolerate.brokerFailure", 1, "did you mean brokerFailures?"),
        ("spec.source.topic", ["a"], "did you mean topics?"),
        ("spec.source.max_offsets_per_trigger", 5, "did you mean maxOffsetsPerTrigger?"),
        ("spec.sink.kafka.topc", "a", "did you mean topic?"),
        ("metadata.nam", "a", "did you mean name?"),
        ("spec.bootstrapServers", "a:1", "it belongs below spec.kafka"),
        ("spec.zzz", 1, "remove it; known here: guarantee"),
        ("spec.source.minPartitions", 8, "split the batch of one partition"),
        ("spec.source.lanes", 8, "a lane is a partition of the source; remove it; add partitions to the topic"),
        ("spec.stateful", True, "declare spec.state"),
        ("spec.sink.kafka.acks", 1, 'put it in quotes: "1"'),
        ("spec.suspend", "yes", "must be true or false"),
        ("spec.tolerate.brokerFailures", -1, "must be at least 0"),
        ("spec.tolerate.brokerFailures", True, "must be a whole number"),
        ("spec.source.topics", [], "must have at least one entry"),
        ("spec.source.topics", "in", "must be a list; write [in]"),
        ("spec.source.topics", {}, "must be a list; write [a, b]"),
        (
            "spec.trigger",
            {"interval": 1},
            "spec.trigger.interval = 1: must be text; write for instance 500ms, 1s or 5m",
        ),
        ("spec.spark", {"driver": {"memory": 2}}, "must be text; write for instance 512m or 1g"),
        ("spec.source.topics", [".."], "must not be '.' or '..'"),
        ("spec.source.topics", ["a" * 250], "1 to 249"),
        ("spec.source.schema", "a INT", "a schema belongs to the format json only"),
        ("spec.source.format", "json", "spec.source.schema: the format json needs a schema"),
        (
            "spec.transform",
            {"sql": "x", "python": {"module": "m", "function": "f"}},
            "must have exactly one of sql, python, and has sql and python",
        ),
        ("spec.transform.sql", "  ", "must not be empty"),
        ("spec.sink", {}, "must have exactly one of kafka, postgres, delta, iceberg, files, and has none"),
        ("spec.sink.delta", {"path": "/x"}, "kafka and delta"),
        ("spec.trigger", {"interval": "1s", "availableNow": True}, "at most one of interval, availableNow"),
        ("spec.trigger", {"availableNow": True, "schedule": "0 3 * *"}, "must be a cron expression of five fields"),
        ("spec.trigger", {"availableNow": True, "schedule": "@daily"}, "must be a cron expression of five fields"),
        ("spec.trigger", {"availableNow": True, "schedule": "0 3 * * *", "timeZone": "+2"}, "the name of a time zone"),
        ("spec.spark", {"driver": {"memory": "1Gi"}}, "512m or 1g"),
        ("spec.spark", {"driver": {"memory": "100m"}}, "at least 512m"),
        ("spec.kafka.bootstrapServers", "kafka", "must be host:port"),
        ("spec.kafka.bootstrapServers", "kafka:0", "a port is 1 to 65535"),
        ("spec.kafka.bootstrapServers", "kafka:1,kafka:65536", "'kafka:65536' is not: a port is 1 to 65535"),
        ("metadata.name", "Flights", "must be lower-case"),
        ("metadata.name", "a.b", "must be lower-case"),
    ],
)
def test_one_violation_one_sentence_with_a_remedy(path: str, value: Any, expected: str) -> None:
    error = refused(edited(path, value))
    assert len(error.violations) == 1, error.message
    assert expected in error.message
    assert error.violations[0].field.startswith(path.rpartition(".")[0])
    assert error.violations[0].problem
    assert error.violations[0].remedy
    assert error.exit_code is ExitCode.INVALID


def test_a_typo_is_not_also_reported_as_missing() -> None:
    document = copy.deepcopy(MINIMAL)
    document["spec"]["sorce"] = document["spec"].pop("source")
    assert refused(document).message == "spec.sorce: unknown field; did you mean source?"


def test_passwords_are_not_repeated() -> None:
    document = edited(
        "spec.kafka.auth", {"mechanism": "PLAIN", "credentialsSecret": {"name": "s"}, "password": "hunter2"}
    )
    message = refused(document).message
    assert "hunter2" not in message
    assert "credentialsSecret" in message


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "must be a mapping"),
        (None, "must be a mapping"),
        ({}, "apiVersion: is required"),
        (MINIMAL | {"kind": "Pod"}, "kind = 'Pod': must be DeliveryPipeline"),
        (MINIMAL | {"apiVersion": "v1"}, "apiVersion = 'v1': must be ackwright.io/v1alpha1"),
    ],
)
def test_a_document_of_another_kind(document: object, expected: str) -> None:
    assert expected in refused(document).message
    assert "spec." not in refused(document).message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"a: [", "not valid YAML: "),
        (b"a: 1\n---\nb: 2\n", "holds 2 YAML documents"),
        (b"\xff\xfe\x00", "UTF-16 text; save it as UTF-8"),
        (b"a: 1\nb: \xe4", "not UTF-8 text: it has the byte 0xe4"),
        (b"\x7fELF\0\xff", "not text"),
        (b"a:\n\tb: 1", "indent with spaces"),
        (b"a: {{ .Values.b }}", "render the template first"),
        (b"a: 1\n  b: 2", "align the fields of one level"),
        (b"a:\n  b: 1\n c: 2", "align this line with the other lines"),
        (b"a: 1\n- b", "align this line with the other lines"),
        (b"a: 'b' c", "put quotes around the complete value"),
        (b"a:\n  {b: 1\nc: 2", "close the bracket of line 2"),
        (b"a: [b\nc: 2", "close the bracket of line 1"),
        (b"a: 1\nb: 'c\nd: 2", "close the quote of line 2"),
        (b"a: `b`", "put the value in quotes"),
        (b'a: "\\d"', "use single quotes"),
        (b"a: 1\na: 2\n", "the key 'a' appears more than once"),
        (b"a: 2024-13-45\n", "not valid YAML"),
        (b'a: !!int ""', "not valid YAML: the value is not a valid int"),
        (b'a: !!float ""', "the value is not a valid float"),
        (b"a:\n  !!bool x", "not valid YAML: the value is not a valid bool"),
        (b"a: !!timestamp x", "the value is not a valid timestamp"),
        (b"a: !!map [b]", "the value is not a map"),
        (b"!!map ab", "the value is not a map"),
        (b"!!python/object/apply:os.system [ls]", "not valid YAML"),
        (b"[" * 100_000, "nested more than 100 levels deep"),
        (b"a: " + b"9" * 5_000, "not valid YAML"),
        (b" " * (1 << 20) + b"a", "larger than 1 MiB"),
    ],
    ids=lambda v: None if isinstance(v, str) else str(v[:12]),
)
def test_unreadable_files(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes(content)
    with pytest.raises(InvalidSpec, match=expected) as caught:
        load(file)
    assert len(caught.value.message.splitlines()) == 1
    assert str(file) in caught.value.message


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"# nothing\n", (1, 1)),
        (b"---\n---\na: 1\n---\n# none\n---\nb: 2\n", (6, 1)),
        ("ä: 1\nü: ".encode() + b"\xe4", (2, 4)),
    ],
)
def test_unreadable_files_have_a_place(tmp_path: Path, content: bytes, place: tuple[int, int]) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes(content)
    with pytest.raises(InvalidSpec) as caught:
        load(file)
    [violation] = caught.value.violations
    assert violation.place == Place(str(file), *place)


def test_missing_files_and_directories(tmp_path: Path) -> None:
    for path, expected in (
        (tmp_path, "is a directory"),
        (tmp_path / "x", "no such file"),
        (Path("a\0b"), "cannot be read"),
    ):
        with pytest.raises(AckwrightError, match=expected) as caught:
            load(path)
        assert caught.value.reason is Reason.FILE_UNREADABLE


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.booleans().map(lambda _: 10**5_000)
)
_NAMES = st.sampled_from(
    ["spec", "source", "topics", "sink", "kafka", "conf", "name", "config", "sql", "schema", "format"]
) | st.text(max_size=5)
_JUNK = st.recursive(
    _SCALARS, lambda c: st.lists(c, max_size=3) | st.dictionaries(_NAMES | st.integers(), c, max_size=4), max_leaves=12
)
_PATHS = st.sampled_from(
    [
        *(
            "metadata",
            "metadata.name",
            "metadata.labels",
            "spec",
            "spec.guarantee",
            "spec.tolerate",
            "spec.kafka",
            "spec.other",
        ),
        *(
            "spec.kafka.bootstrapServers",
            "spec.kafka.auth",
            "spec.source",
            "spec.source.topics",
            "spec.source.format",
            "spec.source.schema",
        ),
        *(
            "spec.transform",
            "spec.transform.python",
            "spec.sink",
            "spec.sink.kafka",
            "spec.sink.delta",
            "spec.sink.files",
            "spec.topics",
            "spec.trigger",
        ),
        *("spec.checkpoint", "spec.spark", "spec.spark.conf", "spec.suspend"),
    ]
)


@settings(max_examples=300)
@given(_JUNK, _PATHS)
def test_parse_raises_nothing_but_invalid_spec(junk: Any, path: str) -> None:
    for document in (junk, edited(path, junk)):
        result = outcome(document)
        assert isinstance(result, DeliveryPipeline) or (result.violations and result.message)


def outcome(document: object) -> DeliveryPipeline | InvalidSpec:
    try:
        return parse(document)
    except InvalidSpec as e:
        return e


@settings(max_examples=100)
@given(
    st.sampled_from(
        ["guarantee", "kafka", "source", "transform", "sink", "topics", "trigger", "checkpoint", "tolerate", "suspend"]
    ),
    st.data(),
)
def test_a_dropped_letter_is_recognised(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 1))
    document = copy.deepcopy(MINIMAL)
    document["spec"][name[:at] + name[at + 1 :]] = document["spec"].pop(name, None)
    assert f"did you mean {name}?" in refused(document).message


def test_a_parsed_pipeline_is_frozen_and_survives_yaml() -> None:
    pipeline = parse(MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        pipeline.kind = "Pod"  # type: ignore[assignment]
    assert (
        parse(yaml.safe_load(yaml.safe_dump(pipeline.model_dump(mode="json", by_alias=True, exclude_none=True))))
        == pipeline
    )


@given(st.integers(0, 999_999_999), st.sampled_from([("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)]))
def test_durations(n: int, unit: tuple[str, int]) -> None:
    assert duration_ms(f"{n}{unit[0]}") == n * unit[1]


def test_quantities_refuse_anything_else() -> None:
    assert memory_mib("2g") == 2048
    for wrong in ("", "1", "1d", "-1s", "1s\n"):
        with pytest.raises(ValueError, match="not a duration"):
            duration_ms(wrong)
    with pytest.raises(ValueError, match="not an amount"):
        memory_mib("1Gi")


def test_unknown_fields_take_little_time_however_many_or_long_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree of all models is walked once, and no long name is compared."""
    walks: list[int] = []
    tree = violations._tree

    def walked(*model: Any) -> Any:
        walks.append(len(model))
        return tree(*model)

    monkeypatch.setattr(violations, "_tree", walked)
    monkeypatch.setattr(violations, "_models", functools.cache(violations._models.__wrapped__))
    monkeypatch.setattr(violations, "_places", functools.cache(violations._places.__wrapped__))
    document = copy.deepcopy(MINIMAL)
    document["spec"] |= {f"unknown{n}": 1 for n in range(200)} | {"guarantees" * 9: 1}
    refused_ = refused(document)
    assert len(refused_.violations) == 201
    assert refused_.violations[-1].remedy.startswith("remove it; known here: ")
    assert walks.count(1) == 2
