"""Which numbers of a text the audit compares within a tolerance: those that stand alone, or are values of JSON."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ackwright_stream.audit_fractions import text_parts


@pytest.mark.parametrize(
    ("text", "rest", "numbers"),
    [
        (b"0.6000000000000001", b"\0", [0.6000000000000001]),
        (b"-1.5E-7", b"\0", [-1.5e-7]),
        (b'{"mean":3.5,"max":[1.0,2.25E10],"n":7}', b'{"mean":\0,"max":[\0,\0],"n":7}', [3.5, 1.0, 2.25e10]),
        (b'{"mean": 3.5 , "text": "4.5"}', b'{"mean": \0 , "text": "\0"}', [3.5, 4.5]),
        ("größe 1.5 m".encode(), "größe \0 m".encode(), [1.5]),
        # No number as Spark writes it: whole, with zeros at its end, a version, a part of a name, a time.
        *((text, text, []) for text in (b"7", b"1.50", b"01.5", b"1.2.3", b"v1.5", b"1.5kg", b"00:00:01.500Z", b"NaN")),
        (None, None, None),
    ],
)
def test_numbers_are_taken_out_of_a_text(text: bytes | None, rest: bytes | None, numbers: list[float] | None) -> None:
    assert text_parts(pa.array([text], pa.binary())).to_pylist() == [{"rest": rest, "numbers": numbers}]
