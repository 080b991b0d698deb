"""Names and types of topic settings."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from ackwright.api.spec import parse
from ackwright.planning.topic_settings import SETTINGS, resembling
from ackwright.planning.validation import check

BASE = {
    "apiVersion": "ackwright.io/v1alpha1",
    "kind": "DeliveryPipeline",
    "metadata": {"name": "x"},
}


def refusals(name: str, value: str) -> list[str]:
    return of_topics({name: value})


def of_topics(*configs: dict[str, str]) -> list[str]:
    """The refusals of a spec with these settings, each of another topic."""
    spec = {
        "guarantee": "exactly-once",
        "kafka": {"bootstrapServers": "k:1"},
        "source": {"topics": ["in"]},
        "transform": {"sql": "SELECT value FROM source"},
        "sink": {"kafka": {"topic": "out"}},
        "topics": [{"name": f"t{i}", "partitions": 1, "config": config} for i, config in enumerate(configs)],
    }
    return [str(v) for v in check(parse({**BASE, "spec": spec}))]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retentionms", "1", "did you mean retention.ms?"),
        ("retention_ms", "1", "did you mean retention.ms?"),
        ("Retention.Ms", "1", "did you mean retention.ms?"),
        ("cleanup-policy", "delete", "did you mean cleanup.policy?"),
        ("max.mesage.bytes", "1", "did you mean max.message.bytes?"),
        ("retention.ms", "7d", 'write "604800000"'),
        ("retention.bytes", "1GiB", 'write "1073741824"'),
        ("segment.bytes", "3000000000", "at most 32 bits"),
        ("retention.ms", "", "a whole number"),
        ("retention.ms", "9223372036854775808", "a whole number"),
        ("min.cleanable.dirty.ratio", "half", "a number"),
        ("preallocate", "yes", "true or false"),
    ],
)
def test_what_a_broker_refuses(name: str, value: str, words: str) -> None:
    [refusal] = refusals(name, value)
    assert f"spec.topics[0].config['{name}']" in refusal
    assert words in refusal


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", " 604800000 "),
        ("min.cleanable.dirty.ratio", ".5"),
        ("preallocate", "TRUE"),
        ("compression.type", "zstd"),
        ("confluent.value.schema.validation", "true"),
        ("redpanda.remote.read", "true"),
        ("write.caching", "true"),
        ("flush.bytes", "1"),
        ("retention.local.target.bytes", "1"),
    ],
)
def test_what_a_broker_may_accept(name: str, value: str) -> None:
    assert refusals(name, value) == []


def test_no_setting_is_taken_for_another() -> None:
    assert [name for name in SETTINGS if resembling(name)] == []


def test_few_names_are_compared_however_many_a_spec_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison takes 0.2 ms, and every pipeline that shares a topic with this one reads its spec."""
    compared: list[str] = []
    nearest = difflib.get_close_matches

    def compare(name: str, *arguments: Any, **options: Any) -> list[str]:
        compared.append(name)
        return nearest(name, *arguments, **options)

    monkeypatch.setattr(difflib, "get_close_matches", compare)
    same = {f"vendor{n}": "1" for n in range(60)}
    assert of_topics(*({**same, f"topic{i}": "1"} for i in range(99))) == []
    assert len(compared) == 100
    compared.clear()
    assert len(of_topics(*({"retentionms": "1"} for _ in range(100)))) == 100, "an equal name is compared once"
    assert of_topics({"x" * 1_000_000: "1"}) == []
    assert compared == ["retentionms"]
