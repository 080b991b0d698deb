"""Malformed records are skipped and counted, or fail the batch, whatever the transform does. No broker is used."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright_stream import source
from ackwright_stream.jobspec import Format
from integration.support.raw_records import RAW, SCHEMA, job, raw, setting, sink_columns, values

MALFORMED = [
    b'{"a":"x","n":1',
    b'{"n":"1"}',
    b'{"n":1.5}',
    b'{"n":99999999999}',
    b'{"o":{"x":"q"}}',
    b'{"o":1}',
    b"[]",
    b'[{"a":"x"}]',
    b"null",
    b"1",
    b"",
    b'{"a":"x"} trailing',
    b'{"a":"x"}{"a":"y"}',
    b'{"a":"x"},{"a":"y"}',
    b"{'a':'x'}",
    b'{"n":NaN}',
    b'{"a":"\xff"}',
    b'{"a":"x"}],"z":[{"a":"y"}',
    b'{"a":"x"}],"record":[{"a":"y"}',
    b'{"a":"x"}],"record":[{"a":"y"}],"record":[{"a":"z"}',
    b'{"a":"x"}]} trailing',
    b'{"a":"x"}]}{"record":[{"a":"y"}',
    b'{"a":"x"}]}]}{"record":[[{"a":"y"}',
    b'{"a":"x"},{}]} trailing',
    b'{"a":"x"},{}],"record":[{"a":"y"}',
    b'{"record":[{"a":"x"}]},{"record":[{"a":"y"}]}',
    b'[{"a":"x"}],"z":[{"a":"y"}]',
    b'{"a":"x"}]',
    b'{"a":"x"}}',
    b'{"a":"x"},',
    b',{"a":"x"}',
    b'{"a":"x"}\x00',
    b'{"a":"x\x00"}',
    b'\x00{"a":"x"}',
    b"\x00",
    b" \t\r\n",
    b'{"a":"x"}/* comment */',
    b'{"a":"x"},{"a":"',
    b'\xef\xbb\xbf{"a":"x"}',
    b"}",
    b"{}}",
    b"{,}",
    b'{"a"}',
    b'{"a":}',
    b'{"a":"}',
    b'{"o":{}',
    b'[{"a":"x"}',
    b"[}",
    b"null}",
    b"1}",
    b'{"a":"x"]',
    b'{"a":"x"} \x0b',
    b'\x0b {"a":"x"} ',
    b' {"a":"x"',
    b'{"a":"x"\n',
    '{"a":"x"}\u00a0'.encode(),
    b"plain text",
    b'{"a":"x"}\xff',
]


def test_malformed_json_is_left_out(spark: SparkSession) -> None:
    good = (
        b'{"a":"x","n":2,"o":{"x":3},"other":true}',
        b"{}",
        b' \t\r\n{"a": "\\u00e9", "n": null}\n ',
        b'{"o":{"x":1}}\t',
        b'\r{"o":{"x":1}}\r',
        b'{"a":"}],{","record":[{"a":"y"}],"z":[[{"a":"]}"}]]}',
        None,
    )
    skipping = job("SELECT a AS value, 'k' AS key FROM source", format=Format.JSON, schema=SCHEMA, skip_malformed=True)
    df = sink_columns(spark, raw(spark, *MALFORMED, *good), skipping)
    assert values(df) == [b"x", None, "é".encode(), None, None, b"}],{", None]


def test_random_names_that_resemble_numbers_are_read_as_names(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ackwright_stream.formats.json.secrets.token_hex", lambda _: "484240318051961d")
    skipping = job("SELECT a AS value, 'k' AS key FROM source", format=Format.JSON, schema=SCHEMA, skip_malformed=True)
    df = sink_columns(spark, raw(spark, b'{"a":"x"}', b'{"a":"y"} ', b"{}}"), skipping)
    assert values(df) == [b"x", b"y"]


def test_an_object_is_read_alike_with_and_without_something_behind_it(spark: SparkSession) -> None:
    """Behind its only closing brace nothing can follow, so it is parsed in another way than other texts."""
    alone = [
        b'{"a":"x","n":2,"other":true}',
        b'{"a":{"x":[1, 2.50]},"n":null}',
        b'{"a":"\\ud800","a":"second"}',
        b'{"A":"x","N":1}',
        '{"a":"\u00e9\U0001f600","n":-2147483648}'.encode(),
        b'{"o":null,"a":1e400}',
        b'{"a": [ ] }',
        *(value for value in MALFORMED if value.startswith(b"{") and value.find(b"}") == len(value) - 1),
    ]
    skipping = job(
        "SELECT to_json(struct(a, n, o)) AS value FROM source", format=Format.JSON, schema=SCHEMA, skip_malformed=True
    )
    read = {
        end: values(sink_columns(spark, raw(spark, *(value + end for value in alone)), skipping)) for end in (b"", b" ")
    }
    assert read[b""] == read[b" "]
    assert len(read[b""]) == 7


@pytest.mark.parametrize("value", [MALFORMED[0], MALFORMED[1], MALFORMED[-1]])
def test_malformed_json_fails(spark: SparkSession, value: bytes) -> None:
    failing = job("SELECT a AS value FROM source", format=Format.JSON, schema=SCHEMA)
    with pytest.raises(Exception, match=r"MalformedRecord: in-3@1 is not a JSON object"):
        sink_columns(spark, raw(spark, b"{}", value), failing).collect()


def test_malformed_records_are_counted_in_the_progress_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Counts are read from the progress, because the DataFrame of foreachBatch is cut off from the counting plan."""
    raw(spark, b'{"a":"b"}', b'{"a":"c"}', b"[", b'{"n":"x"}').write.parquet(str(tmp_path / "in"))
    records = spark.readStream.schema(RAW).parquet(str(tmp_path / "in"))
    skipping = job(
        "SELECT a AS value FROM source WHERE a > 'b'", format=Format.JSON, schema=SCHEMA, skip_malformed=True
    )
    rows: list[int] = []
    out = sink_columns(spark, records, skipping)
    query = out.writeStream.foreachBatch(lambda batch, _: rows.append(len(batch.collect())))
    running = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert running.awaitTermination(120)
    assert rows == [1]
    assert running.lastProgress is not None
    assert running.lastProgress.observedMetrics[source.METRICS].asDict() == {"records": 4, "malformed": 2}


def test_a_malformed_record_fails_even_if_the_transform_would_filter_it_away_or_reads_no_column(
    spark: SparkSession,
) -> None:
    for sql in (
        "SELECT a AS value FROM source WHERE n > 0",
        "SELECT kafka.key AS value FROM source WHERE kafka.key = 'zz'",
    ):
        df = sink_columns(spark, raw(spark, b'{"n":"x"}'), job(sql, format=Format.JSON, schema=SCHEMA))
        with pytest.raises(Exception, match="MalformedRecord: in-3@0"):
            df.collect()


MANY = ", ".join(f"c{i} INT" for i in range(120))


@pytest.mark.parametrize(
    ("sql", "schema", "compiled"),
    [
        ("SELECT a AS value FROM source WHERE n > 0", SCHEMA, "false"),
        ("SELECT a AS value FROM source WHERE n > 0", f"{SCHEMA}, {MANY}", "true"),  # more columns than Spark compiles
        (
            "SELECT a AS value FROM source WHERE n > 0 AND exists(items, i -> i = 'x')",
            f"{SCHEMA}, items ARRAY<STRING>",
            "true",
        ),
    ],
)
def test_a_malformed_record_fails_also_where_spark_does_not_compile_the_filter(
    spark: SparkSession, sql: str, schema: str, compiled: str
) -> None:
    """Without compilation Spark first evaluates an inferred condition, which is null for text that is not JSON."""
    with setting(spark, "spark.sql.codegen.wholeStage", compiled):
        df = sink_columns(spark, raw(spark, MALFORMED[0]), job(sql, format=Format.JSON, schema=schema))
        with pytest.raises(Exception, match="MalformedRecord: in-3@0"):
            df.collect()


def test_the_message_of_a_malformed_record_is_one_short_line(spark: SparkSession) -> None:
    df = sink_columns(
        spark,
        raw(spark, b"broken\nline " + b"x" * 500),
        job("SELECT a AS value FROM source", format=Format.JSON, schema=SCHEMA),
    )
    with pytest.raises(Exception, match="MalformedRecord") as e:
        df.collect()
    line = next(x for x in str(e.value).splitlines() if "MalformedRecord:" in x)
    assert "broken line xxx" in line
    assert line.count("x" * 10) < 20


def test_string_must_be_utf8(spark: SparkSession) -> None:
    skipping = job("SELECT upper(value) AS value FROM source", format=Format.STRING, skip_malformed=True)
    assert values(sink_columns(spark, raw(spark, "aé".encode(), b"\xff", None), skipping)) == [
        "AÉ".encode(),
        None,
    ]
    assert values(sink_columns(spark, raw(spark, b"a", key=b"\xff"), skipping)) == []
    with pytest.raises(Exception, match="MalformedRecord: in-3@0 is not UTF-8"):
        sink_columns(spark, raw(spark, b"\xff"), job(format=Format.STRING)).collect()
