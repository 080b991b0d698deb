"""Names and types of topic settings."""

from __future__ import annotations

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
    spec = {
        "guarantee": "exactly-once",
        "kafka": {"bootstrapServers": "k:1"},
        "source": {"topics": ["in"]},
        "transform": {"sql": "SELECT value FROM source"},
        "sink": {"kafka": {"topic": "out"}},
        "topics": [{"name": "out", "partitions": 1, "config": {name: value}}],
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
