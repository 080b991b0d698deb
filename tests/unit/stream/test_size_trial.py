"""Which rows are larger than a producer of Kafka sends. No broker."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.kafka.trial import java_size, size_trial
from ackwright_stream.topic_limits import LARGEST_RECORD, LARGEST_REQUEST

LIMIT = 2000
PRODUCERS = {LARGEST_RECORD: ({LARGEST_RECORD: str(LIMIT)}, {}), LARGEST_REQUEST: ({}, {LARGEST_REQUEST: str(LIMIT)})}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows(value: bytes | None, key: bytes | None = None, header: bytes | None = None) -> pa.Table:
    """One row, as the sink has it."""
    headers = None if header is None else [{"key": "h", "value": header}]
    columns = {"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())}
    return pa.table({**columns, "topic": pa.array(["out"]), "headers": pa.array([headers], HEADERS)})


@pytest.mark.parametrize("setting", PRODUCERS)
def test_the_key_the_value_and_the_headers_count(setting: str) -> None:
    large = b"x" * (LIMIT + 1)
    with size_trial(*PRODUCERS[setting]) as trial:
        for refused in (rows(large), rows(None, large), rows(b"", None, large), rows(large[:1000], large[:1000])):
            refusal = trial.refusal(pa.concat_tables([rows(b"small"), refused]))
            assert refusal is not None
            assert refusal.reason is Reason.ROW_REFUSED
            assert f"is too large for {setting}={LIMIT}, the limit with which this driver started" in refusal.message
            assert "start the driver again" in refusal.message
        for accepted in (rows(None), rows(b"x" * 1800), rows(b"x" * 900, b"y" * 900)):
            assert trial.refusal(accepted) is None, "a refusal leaves nothing behind"


@pytest.mark.parametrize("setting", PRODUCERS)
def test_the_topic_of_a_row_decides(setting: str) -> None:
    """A limit of a topic counts before that of the producer; one that is not known does not count."""
    limits = {"out": 400, "small": 300}
    with size_trial(*PRODUCERS[setting], limits.get, "small") as trial:
        refusal = trial.refusal(rows(b"x" * 400))
        assert refusal is not None
        assert refusal.reason is Reason.ROW_REFUSED
        assert refusal.message == "its row of 470 bytes is too large for topic out, whose max.message.bytes is 400"
        assert trial.refusal(rows(b"x" * 330)) is None
        nameless = trial.refusal(rows(b"x" * 330).drop_columns("topic"))
        assert nameless is not None
        assert "topic small, whose max.message.bytes is 300" in nameless.message
        unknown = rows(b"x" * 1000).drop_columns("topic").append_column("topic", pa.array(["unknown"]))
        assert trial.refusal(unknown) is None


def test_a_transform_without_key_and_headers() -> None:
    with size_trial(*PRODUCERS[LARGEST_REQUEST]) as trial:
        assert trial.refusal(pa.table({"value": [b"x"]})) is None
        assert trial.refusal(pa.table({"value": [b"x" * LIMIT]})) is not None


@pytest.mark.parametrize(
    ("key", "value", "headers", "size"),
    [
        (None, None, [], 61 + 21 + 1 + 1 + 1),
        (b"", b"", [], 61 + 21 + 1 + 1 + 1),
        (b"k" * 63, b"v" * 64, [], 61 + 21 + 64 + 66 + 1),
        (None, b"v" * 8192, [("h", None), ("\u00fc", b"12")], 61 + 21 + 1 + 8195 + 1 + (2 + 1) + (3 + 3)),
    ],
)
def test_the_size_that_the_java_producer_compares(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], size: int
) -> None:
    assert java_size(key, value, headers) == size
