"""The records of the lanes topic. On brokers: integration/protocol/test_rules_first_positions.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ackwright_stream.sinks.base import Records
from ackwright_stream.sinks.kafka import lane_records
from ackwright_stream.sinks.kafka.lane_records import driver_key, driver_value


@pytest.mark.parametrize(
    ("value", "number", "addresses"),
    [
        (driver_value("m", "host:1", 7), 7, {"m": "host:1"}),
        (driver_value("m", None, 7), 7, {}),
        ({"member": "m", "address": "host:1"}, 0, {"m": "host:1"}),  # of an earlier release
    ],
)
def test_the_record_of_a_driver(value: Mapping[str, Any], number: int, addresses: Mapping[str, str]) -> None:
    message: Any = SimpleNamespace(key=lambda: driver_key("g"), value=lambda: json.dumps(value).encode())
    records = Records(addresses={"earlier": "host:0"})
    lane_records._apply(records, "g", message)
    assert (records.driver, records.addresses) == (number, addresses)
