"""Fields of JSON that the audit leaves out of a comparison."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ackwright_stream.audit_sinks.kafka import without_fields


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"n":2,"latest":"x"}', b'{"n": 2}'),
        (b'{"latest":{"a":[1]},"n":2.50}', b'{"n": "2.50"}'),  # the digits as they are
        (b'{"n":123456789012345678901}', b'{"n": 123456789012345678901}'),
        (b'{"n":null}', b'{"n": null}'),
        (b"[1]", b"[1]"),
        (b"no JSON", b"no JSON"),
        (b"\xff", b"\xff"),
        (None, None),
    ],
)
def test_other_fields_and_other_texts_stay(text: bytes | None, expected: bytes | None) -> None:
    assert without_fields(pa.array([text], pa.binary()), {"latest"}).to_pylist() == [expected]
