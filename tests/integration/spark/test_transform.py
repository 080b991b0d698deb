"""Transforms: their input, what they may do, and the sink's rows. Real Spark; no broker is used."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream import source, transform
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import REFUSED_FUNCTIONS, Format, KafkaSink, Reason, StateSettings, Transform
from ackwright_stream.spark_internals.session import drop_functions
from integration.support.raw_records import JOB, SCHEMA, SINK, job, raw, setting, sink_columns, values
from minimal_job import kafka_sink


def stream(spark: SparkSession) -> DataFrame:
    return source.read_stream(spark, JOB, "earliest")


def refused(spark: SparkSession, sql: str, sink: KafkaSink = SINK) -> JobError:
    with pytest.raises(JobError) as e:
        sink_columns(spark, stream(spark), job(sql, sink))
    assert "\n" not in e.value.message
    return e.value


def json_values(spark: SparkSession, sql: str) -> list[bytes | None]:
    """The values that a JSON sink gets from this SQL over one JSON record."""
    spec = job(sql, kafka_sink("out", Format.JSON), format=Format.JSON, schema=SCHEMA)
    return values(sink_columns(spark, raw(spark, b'{"a":"x"}'), spec))


def test_options_tell_source_options_from_java_settings() -> None:
    cluster = replace(JOB.cluster, bootstrap_servers="b:1", java={"security.protocol": "SSL"})
    got = source.reader_options(
        replace(
            JOB,
            cluster=cluster,
            consumer={"isolation.level": "read_committed", "failOnDataLoss": "true"},
            source=replace(JOB.source, max_offsets_per_trigger=7),
        )
    )
    assert got == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.security.protocol": "SSL",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "7",
    }


def test_binary_passes_bytes_through(spark: SparkSession) -> None:
    [row] = sink_columns(
        spark, raw(spark, b"\xff\x00"), job("SELECT key, value, kafka.headers AS headers FROM source")
    ).collect()
    assert (bytes(row.key), bytes(row.value), row.topic) == (b"k", b"\xff\x00", "out")
    assert [(h.key, bytes(h.value)) for h in row.headers] == [("h", b"1")]


def test_the_columns_are_always_the_same(spark: SparkSession) -> None:
    for sql in ("SELECT value FROM source", "SELECT NULL AS key, value, NULL AS topic, NULL AS headers FROM source"):
        df = sink_columns(spark, raw(spark, b"x"), job(sql))
        assert [(f.name, f.dataType.simpleString()) for f in df.schema.fields] == [
            ("key", "binary"),
            ("value", "binary"),
            ("topic", "string"),
            ("headers", "array<struct<key:string,value:binary>>"),
        ]
        assert df.collect()[0].topic == "out"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT kafka.key AS key, a, n FROM source", b'{"a":"x","n":null}'),
        ("SELECT named_struct('z', a) AS value FROM source", b'{"z":"x"}'),
        ("SELECT map('m', a) AS value FROM source", b'{"m":"x"}'),
        ("SELECT CAST(NULL AS STRUCT<q: INT>) AS value FROM source", None),
        ("SELECT a AS value FROM source", b'{"value":"x"}'),
    ],
)
def test_json_out(spark: SparkSession, sql: str, expected: bytes | None) -> None:
    assert json_values(spark, sql) == [expected]


@pytest.mark.parametrize("formatter", ["CORRECTED", "LEGACY"])
def test_timestamps_in_json_keep_their_microseconds(spark: SparkSession, formatter: str) -> None:
    expected = b'{"t":"2026-01-02T03:04:05.123456Z","n":"2026-01-02T03:04:05.000001","d":"2026-01-02"}'
    sql = (
        "SELECT TIMESTAMP '2026-01-02T03:04:05.123456Z' AS t, TIMESTAMP_NTZ '2026-01-02 03:04:05.000001' AS n, "
        "DATE '2026-01-02' AS d FROM source"
    )
    with setting(spark, "spark.sql.legacy.timeParserPolicy", formatter):
        assert json_values(spark, sql) == [expected]


def test_a_topic_column_routes_and_null_means_the_sinks(spark: SparkSession) -> None:
    sql = "SELECT value, CASE WHEN value = 'b' THEN 'other' END AS topic FROM source"
    assert [r.topic for r in sink_columns(spark, raw(spark, b"a", b"b"), job(sql)).collect()] == [
        "out",
        "other",
    ]
    df = sink_columns(spark, raw(spark, b"a"), job(sql, kafka_sink(None)))
    with pytest.raises(Exception, match="MalformedRecord: the transform returns a record whose topic is null"):
        df.collect()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT key FROM source", "lacks the column value"),
        ("SELECT value, kafka.offset AS o FROM source", "'o' cannot be written"),
        ("SELECT value, kafka.offset AS key FROM source", "CAST(key AS STRING)"),
        ("SELECT kafka.offset AS value FROM source", "CAST(value AS STRING)"),
        ("SELECT value, array('x') AS headers FROM source", "array<struct<key: string, value: binary>>"),
        ("SELECT value, value FROM source", "'value' appears twice"),
        ("SELECT valeu AS value FROM source", "valeu"),
        ("SELEC value FROM source", "SELEC"),
        ("SELECT value FROM sauce", "sauce"),
        ("SELECT 'x' AS value", "does not read the view 'source'"),
        ("DROP TABLE source", "not a query but a command"),
        ("CREATE TABLE x AS SELECT 1", "not a query but a command"),
        ("INSERT INTO x SELECT value FROM source", "not a query but a command"),
        ("SET a = b", "not a query but a command"),
    ],
)
def test_an_invalid_transform_is_refused(spark: SparkSession, sql: str, words: str) -> None:
    error = refused(spark, sql)
    assert error.reason is Reason.INVALID_TRANSFORM
    assert words in error.message


def test_every_error_of_a_transform_is_reported_at_once(spark: SparkSession) -> None:
    message = refused(spark, "SELECT kafka.offset AS key, 1 AS a, 2 AS b FROM source", kafka_sink(None)).message
    for words in ("lacks the column value", "'a'", "'b'", "CAST(key AS STRING)", "sink.kafka.topic"):
        assert words in message


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT key, CAST(count(*) AS STRING) AS value FROM source GROUP BY key", "GROUP BY"),
        ("SELECT max(value) AS value FROM source", "aggregate"),
        ("SELECT DISTINCT value FROM source", "DISTINCT"),
        ("SELECT value FROM source ORDER BY key", "ORDER BY"),
        ("SELECT value FROM source LIMIT 3", "LIMIT"),
        ("SELECT value FROM source UNION ALL SELECT value FROM source", "UNION"),
        ("SELECT a.value FROM source a JOIN source b ON a.key = b.key", "JOIN"),
        (
            "SELECT first_value(value) OVER (PARTITION BY key ORDER BY kafka.offset) AS value FROM source",
            "window function",
        ),
        ("SELECT /*+ REPARTITION(3) */ value FROM source", "repartition"),
        ("SELECT value FROM source TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT value FROM source DISTRIBUTE BY key", "DISTRIBUTE BY"),
        ("SELECT value FROM source WHERE key IN (SELECT key FROM source)", "subquery"),
        ("SELECT value FROM source WHERE key = (SELECT 'x')", "subquery"),
        ("WITH c AS (SELECT value FROM source ORDER BY key) SELECT * FROM c", "ORDER BY"),
    ],
)
def test_a_stateful_transform_is_refused_and_its_operator_named(spark: SparkSession, sql: str, words: str) -> None:
    error = refused(spark, sql)
    assert error.reason is Reason.NOT_STATELESS
    assert words in error.message


@pytest.mark.parametrize(
    "sql",
    [
        "WITH c AS (SELECT * FROM source WHERE kafka.offset > 1) SELECT key, value FROM c",
        "SELECT explode(split(CAST(value AS STRING), ' ')) AS value FROM source",
        "SELECT v AS value FROM source LATERAL VIEW explode(array('a', 'b')) t AS v",
        "SELECT value FROM (SELECT value FROM source WHERE key IS NOT NULL) AS s",
        "SELECT key, aggregate(array(1, 2), 0, (a, b) -> a + b) || '' AS value FROM source",
        "FROM source |> WHERE key IS NOT NULL |> SELECT value",
    ],
)
def test_stateless_is_accepted_as_a_stream(spark: SparkSession, sql: str) -> None:
    assert sink_columns(spark, stream(spark), job(sql)).isStreaming


@pytest.mark.parametrize(
    "function",
    ["now()", "current_timestamp()", "current_date", "localtimestamp()", "uuid()", "rand()", "unix_timestamp()"],
)
def test_nondeterministic_is_recognised(spark: SparkSession, function: str) -> None:
    def of(sql: str) -> DataFrame:
        records = source.parse(raw(spark, b"{}"), replace(JOB.source, format=Format.JSON, schema=SCHEMA))
        return transform.run_transform(spark, records, Transform(sql=sql))

    assert not transform.is_deterministic(of(f"SELECT concat(a, {function}) AS value FROM source"))  # noqa: S608
    assert not transform.is_deterministic(of(f"SELECT a AS value FROM source WHERE cast({function} AS STRING) > '0'"))  # noqa: S608
    assert transform.is_deterministic(of("SELECT concat(a, n) AS value FROM source WHERE n > 1"))


@pytest.mark.parametrize(
    ("sql", "mode", "construct"),
    [
        ("SELECT CAST(count(*) AS STRING) AS value FROM source GROUP BY n", "append", "GROUP BY"),
        ("SELECT CAST(count(*) AS STRING) AS value FROM source GROUP BY date_trunc('DAY', at)", "append", "GROUP BY"),
        ("SELECT DISTINCT n AS value FROM source", "append", "DISTINCT"),
        ("SELECT CAST(count(*) AS STRING) AS value FROM source GROUP BY n", "update", None),
        ("SELECT DISTINCT n AS value FROM source", "update", None),
        ("SELECT DISTINCT n AS value, at FROM source", "append", None),
        ("SELECT CAST(count(*) AS STRING) AS value FROM source GROUP BY n, at", "append", None),
        ("SELECT CAST(count(*) AS STRING) AS value FROM source GROUP BY window(at, '1 minute')", "append", None),
    ],
)
def test_groups_that_no_watermark_ends_are_refused_in_append_mode(
    spark: SparkSession, sql: str, mode: str, construct: str | None
) -> None:
    """Control: Spark accepts in this mode what is not refused, and refuses the rest when the query starts."""
    of_source = replace(JOB.source, format=Format.JSON, schema="n STRING, at TIMESTAMP")
    records = source.parse(stream(spark), of_source)
    state = StateSettings(2, "/nowhere", mode, "at", "5 seconds", 1_000)
    if construct is None:
        output = transform.run_transform(spark, records, Transform(sql=sql), state)
    else:
        with pytest.raises(JobError, match=f"uses {construct} with state.outputMode append") as caught:
            transform.run_transform(spark, records, Transform(sql=sql), state)
        assert caught.value.reason is Reason.INVALID_TRANSFORM
        records.withWatermark("at", "5 seconds").createOrReplaceTempView("source")
        output = spark.sql(sql)
    check = spark._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming
    spark_mode = getattr(spark._jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    with pytest.raises(AnalysisException, match="without watermark") if construct else nullcontext():
        check(output._jdf.queryExecution().analyzed(), spark_mode)


# ------------------------------------------------ Python


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    module_ = types.ModuleType("my_transform")
    sys.modules["my_transform"] = module_
    yield module_
    del sys.modules["my_transform"]


def python(spark: SparkSession, df: DataFrame, function: str = "transform", module: str = "my_transform") -> DataFrame:
    return sink_columns(spark, df, replace(JOB, transform=Transform(module=module, function=function)))


def test_python(spark: SparkSession, module: types.ModuleType) -> None:
    module.transform = lambda df: df.select("key", F.concat(F.lit("<"), F.col("value").cast("string")).alias("value"))  # type: ignore[attr-defined]
    assert values(python(spark, raw(spark, b"a"))) == [b"<a"]


def test_python_that_is_wrong(spark: SparkSession, module: types.ModuleType) -> None:
    module.nothing = lambda df: None  # type: ignore[attr-defined]
    module.crash = lambda df: 1 / 0  # type: ignore[attr-defined]
    module.unknown = lambda df: df.select("nope")  # type: ignore[attr-defined]
    module.own = lambda df: spark.createDataFrame([("x",)], "value STRING")  # type: ignore[attr-defined]
    module.counted = lambda df: df.groupBy("value").count()  # type: ignore[attr-defined]
    for function, words in {
        "nothing": "returned NoneType",
        "crash": "ZeroDivisionError",
        "unknown": "nope",
        "own": "does not read",
        "missing": "it has counted, crash, nothing, own, unknown",
    }.items():
        with pytest.raises(JobError, match=words) as e:
            python(spark, stream(spark), function)
        assert e.value.reason is Reason.INVALID_TRANSFORM
    with pytest.raises(JobError, match=r"No module named .no_such_module.*PYTHONPATH"):
        python(spark, stream(spark), module="no_such_module")
    with pytest.raises(JobError, match="GROUP BY") as e:
        python(spark, stream(spark), "counted")
    assert e.value.reason is Reason.NOT_STATELESS


@pytest.mark.parametrize(("schema", "words"), [(None, "missing"), ("a STRNG", "STRNG"), ("kafka STRING", "metadata")])
def test_a_schema_that_is_wrong(spark: SparkSession, schema: str | None, words: str) -> None:
    with pytest.raises(JobError, match=words) as e:
        sink_columns(spark, stream(spark), job("SELECT 1 AS value FROM source", format=Format.JSON, schema=schema))
    assert e.value.reason is Reason.INVALID_SPEC


# ------------------------------------------------ headers are read where they are used


@pytest.mark.parametrize(
    ("sql", "needed"),
    [
        ("SELECT key, value FROM source", False),
        ("SELECT key, value FROM source WHERE kafka.offset % 2 = 0 AND kafka.topic <> 'x'", False),
        ("SELECT upper(CAST(value AS STRING)) AS value, kafka.topic AS topic FROM source", False),
        ("SELECT value, kafka.headers AS headers FROM source", True),
        ("SELECT value FROM source WHERE size(kafka.headers) > 0", True),
        ("SELECT to_json(kafka) AS value FROM source", True),
        ("SELECT CAST(x.value AS BINARY) AS value FROM source LATERAL VIEW explode(kafka.headers) AS x", True),
    ],
)
def test_headers_are_read_where_they_are_used(spark: SparkSession, sql: str, needed: bool) -> None:
    assert transform.needs_headers(sink_columns(spark, stream(spark), job(sql))) is needed


@pytest.mark.parametrize("sql", ["SELECT key, value FROM source", "SELECT value, kafka.headers AS headers FROM source"])
def test_without_headers_only_the_headers_column_changes(spark: SparkSession, sql: str) -> None:
    records = raw(spark, b"a", None, b"c")
    complete = sink_columns(spark, records, job(sql))
    without = sink_columns(spark, records.drop("headers"), job(sql))
    assert without.schema == complete.schema
    assert without.drop("headers").collect() == complete.drop("headers").collect()
    assert [r.headers for r in without.collect()] == [None] * 3


# -- methods of the JVM ------------------------------------------------------------------------------------------------

CALLS = [f"{name}('java.lang.System', 'getProperty', 'user.dir')" for name in REFUSED_FUNCTIONS]
PLACES = [
    "SELECT {} AS value FROM source",
    "SELECT builtin.{} AS value FROM source",
    "SELECT system.builtin.{} AS value FROM source",
    "SELECT value FROM source WHERE {} IS NOT NULL",
    "FROM source |> SELECT {} AS value",
    "SELECT from_json(CAST(value AS STRING), {}) AS value FROM source",  # the analysis evaluates such an argument
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("place", PLACES)
def test_sql_cannot_call_methods_of_the_jvm(spark: SparkSession, place: str, call: str) -> None:
    refusal = refused(spark, place.format(call))
    assert refusal.reason is Reason.INVALID_TRANSFORM
    # Of `system.builtin` Spark says that its catalog has no such namespace.
    assert "UNRESOLVED_ROUTINE" in refusal.message or "REQUIRES_SINGLE_PART_NAMESPACE" in refusal.message


def test_control_spark_itself_calls_methods_of_the_jvm(spark: SparkSession) -> None:
    """The control of the test above: a session in which nothing was dropped."""
    fresh = spark.newSession()
    for call in CALLS:
        [[text]] = fresh.sql(f"SELECT {call} AS value").collect()
        assert text.startswith("/")


def test_a_cloned_session_has_none_of_these_functions_either(spark: SparkSession) -> None:
    """Spark runs each streaming query in a clone of its session."""
    drop_functions(spark, REFUSED_FUNCTIONS)
    registry = spark._jsparkSession.cloneSession().sessionState().functionRegistry()
    names = {function.funcName() for function in _elements(registry.listFunction())}
    assert len(names) > 300
    assert names.isdisjoint(REFUSED_FUNCTIONS)


def _elements(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
