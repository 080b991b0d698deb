"""Which partition a key belongs to, by the audit's calculation and by a client that did not write it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2 as reference

from ackwright.api.spec import parse
from ackwright.planning.plan import plan
from ackwright_stream.audit_partitions import Layout, murmur2
from ackwright_stream.jobspec import Guarantee

LAYOUT = Layout([("in", 0), ("in", 1)], [("a", 0), ("a", 1), ("b", 0)])


def test_the_hash_of_a_key_is_that_of_the_java_client() -> None:
    numbers = random.Random(7)
    keys = [b"", *(numbers.randbytes(n % 23) for n in range(500))]
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [reference(key) & 0x7FFFFFFF for key in keys]


def test_a_slice_of_a_column_and_keys_without_bytes() -> None:
    column = pa.array([b"first", None, b"second", b"third"], pa.binary())
    assert murmur2(column.slice(2)).tolist() == [reference(key) & 0x7FFFFFFF for key in (b"second", b"third")]
    assert len(murmur2(pa.array([None, b""], pa.binary()))) == 2
    assert murmur2(pa.array([], pa.binary())).tolist() == []


def test_partitions_have_names_and_topics_their_number_of_partitions() -> None:
    assert LAYOUT.source_names == ["in-0", "in-1"]
    assert LAYOUT.sink_names == ["a-0", "a-1", "b-0"]
    assert LAYOUT.widths == {"a": 2, "b": 1}


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_every_producer_of_rows_uses_the_partitioner_that_the_audit_verifies(guarantee: Guarantee) -> None:
    """Java's default is murmur2 for keys, so Spark's sink must not set another one."""
    document = {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "flights", "namespace": "ops"},
        "spec": {
            "guarantee": guarantee.value,
            "kafka": {"bootstrapServers": "k:9092"},
            "source": {"topics": ["in"]},
            "transform": {"sql": "SELECT key, value FROM source"},
            "sink": {"kafka": {"topic": "out"}},
        },
    }
    delivery = plan(parse(document))
    producer = {s.name: s.value for s in delivery.producer}
    options = {s.name: s.value for s in delivery.sink_options}
    assert producer or options
    if producer:
        assert producer["partitioner"] == "murmur2_random"
    assert not {name for name in options if name.startswith("partitioner")}
