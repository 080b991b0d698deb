"""Reading: Spark's options for the source topics, and the view `source` that a transform sees.

The job reads a stream and the audit reads the same records as a batch; both come through parse(), so a record means the same to either.
Options: Spark's Structured Streaming + Kafka Integration Guide.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Format, JobSpec, Reason, Source

METRICS = (
    "ackwright_source"  # the name of parse()'s metrics in StreamingQueryProgress.observedMetrics: records, malformed
)
HEADERS = "array<struct<key:string,value:binary>>"  # the type of a record's headers
METADATA = "kafka"  # the column of the view that holds the record as it is in Kafka

_SHOWN = 200  # characters of a malformed record in the message
_FIELDS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
# Spark's defaults accept 'single quotes' and NaN; a record that other readers refuse is malformed here too.
_STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def reader_options(job: JobSpec) -> dict[str, str]:
    """The Kafka source's options but for what is read: connection, consumer settings, limits. A key of job.consumer without a dot is an
    option of Spark's source (failOnDataLoss), any other a setting of the Java consumer, which Spark wants with the prefix "kafka."."""
    java = {"bootstrap.servers": job.cluster.bootstrap_servers, **job.cluster.java}
    options = {f"kafka.{name}": value for name, value in java.items()}
    options["includeHeaders"] = "true"
    if job.source.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(job.source.max_offsets_per_trigger)
    for name, value in job.consumer.items():
        options[f"kafka.{name}" if "." in name else name] = value
    return options


def read_stream(
    spark: SparkSession, job: JobSpec, starting_offsets: str, *, headers: bool = True, limit: int | None = None
) -> DataFrame:
    """The source topics as a stream. starting_offsets: JSON {"topic": {"0": 23, …}} that names every partition, or "earliest". headers: the
    column of that name; without it a record of 100 bytes took 13 µs of the JVM's time in place of 14. limit: offsets a batch, in place of
    the job's."""
    options = {**reader_options(job), "subscribe": ",".join(job.source.topics), "startingOffsets": starting_offsets}
    options["includeHeaders"] = str(headers).lower()
    if limit is not None:
        options["maxOffsetsPerTrigger"] = str(limit)
    return spark.readStream.format("kafka").options(**options).load()


def read_batch(
    spark: SparkSession,
    job: JobSpec,
    topics: Iterable[str],
    starting: Mapping[tuple[str, int], int],
    ending: Mapping[tuple[str, int], int],
    **more: str,
) -> DataFrame:
    """The records [starting, ending) of the given topics' partitions; Spark partitions are in one order with source partitions, rows in the
    order of their offsets. starting and ending hold the same partitions, at least one. more: further options, which win."""
    wanted = sorted(lane for lane in ending if lane[0] in set(topics))
    options = {name: value for name, value in reader_options(job).items() if name not in _STREAM_ONLY}
    # assign, not subscribe: a partition that is added meanwhile must not make Spark refuse the offsets.
    options |= {
        "assign": json.dumps({t: [p for (topic, p) in wanted if topic == t] for t in sorted({t for t, _ in wanted})}),
        "startingOffsets": _offsets({lane: starting[lane] for lane in wanted}),
        "endingOffsets": _offsets({lane: ending[lane] for lane in wanted}),
        "failOnDataLoss": "true",
    }
    return spark.read.format("kafka").options(**{**options, **more}).load()


def _offsets(positions: Mapping[tuple[str, int], int]) -> str:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in positions.items():
        found.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(found)


def parse(raw: DataFrame, source: Source, metrics: str = METRICS) -> DataFrame:
    """The view `source`, from the columns of Spark's Kafka source; without a column headers they are null.

    binary: key BINARY, value BINARY. string: key STRING, value STRING. json: the columns of the schema, the key is in kafka.key. In every
    format also a struct `kafka` with the record as it is: key BINARY, value BINARY, topic, partition, offset, timestamp, headers.

    Malformed is, for string, a key or value that is not UTF-8; for json, a value that is not exactly one JSON object, or in which a value
    does not fit its column (a STRING column takes any JSON value, as its text; a field that is missing is null). A tombstone (value null)
    is well-formed: its columns are null. A malformed record fails the query with a message that begins with "MalformedRecord:", or is left
    out (skip_malformed). Either way the counts `records` and `malformed` are observed under the name `metrics`; for a stream they are in
    the progress of each batch (StreamingQueryProgress.observedMetrics), not in the frame that foreachBatch is given, which is cut off from
    the plan. Raises JobError(INVALID_SPEC) for a schema that Spark cannot read.
    """
    if "headers" not in raw.columns:
        raw = raw.withColumn("headers", F.lit(None).cast(HEADERS))
    records = raw.select(F.struct(*_FIELDS).alias(METADATA))
    key, value = F.col(f"{METADATA}.key"), F.col(f"{METADATA}.value")
    if source.format is Format.BINARY:
        return records.select(key, value, METADATA)
    if source.format is Format.STRING:
        read = records.select(METADATA, key.cast("string").alias("key"), value.cast("string").alias("value"))
        malformed = ~(_utf8("key") & _utf8("value"))
        return _checked(read.withColumn("malformed", malformed), source, metrics).select("key", "value", METADATA)
    schema = _schema(source.schema)
    # Spark's parser stops after the first value of a text, so {"a": 1} {"a": 2} would pass as the first. In an array, what follows shows.
    wrapped = StructType([StructField("record", ArrayType(schema)), StructField("corrupt", StringType())])
    text = F.concat(F.lit('{"record":['), value.cast("string"), F.lit("]}"))
    read = records.select(
        METADATA, value.cast("string").alias("text"), F.from_json(text, wrapped, _STRICT).alias("read")
    )
    whole = F.col("read.corrupt").isNull() & (F.size("read.record") == 1) & F.col("read.record")[0].isNotNull()
    malformed = F.col("text").isNotNull() & ~(_utf8("text") & F.coalesce(whole, F.lit(False)))
    checked = _checked(read.withColumn("malformed", malformed), source, metrics)
    return checked.select(F.col("read.record")[0].alias("record"), METADATA).select("record.*", METADATA)


def _utf8(column: str) -> Column:
    return F.coalesce(F.is_valid_utf8(F.col(column)), F.lit(True))


def _checked(read: DataFrame, source: Source, metrics: str) -> DataFrame:
    """Counts, then leaves out or fails. Spark pushes no filter of the transform through the counting node, so every record that was read is
    counted and checked, also one that the transform would drop.

    A malformed record fails while it is counted. In a filter it need not: Spark puts the transform's conditions, and what it infers from
    them, into the same one, and where that is not compiled (many columns, some expressions) a condition in front hides what follows."""
    malformed, records = F.col("malformed"), F.count(F.lit(1)).alias("records")
    if source.skip_malformed:
        return read.observe(metrics, records, F.count_if(malformed).alias("malformed")).filter(~malformed)
    shown = F.substring(F.make_valid_utf8(F.col(f"{METADATA}.value").cast("string")), 1, _SHOWN)
    said = F.concat(
        F.lit("MalformedRecord: "),
        F.col(f"{METADATA}.topic"),
        F.lit("-"),
        F.col(f"{METADATA}.partition").cast("string"),
        F.lit("@"),
        F.col(f"{METADATA}.offset").cast("string"),
        F.lit(
            f" is not {'UTF-8 text' if source.format is Format.STRING else 'a JSON object that fits source.schema'}; "
        ),
        F.lit("correct its producer, or set source.onMalformed: skip. It begins: "),
        F.coalesce(F.regexp_replace(shown, r"[\r\n]+", " "), F.lit("(null)")),
    )
    refused = F.when(malformed, F.raise_error(said).cast("boolean")).otherwise(F.lit(False))
    return read.observe(metrics, records, F.count_if(refused).alias("malformed"))


def _schema(ddl: str | None) -> StructType:
    if not ddl:
        raise JobError(
            Reason.INVALID_SPEC,
            'source.format is json but source.schema is missing; add one, such as "id BIGINT, name STRING"',
        )
    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as e:
        said = (e.getMessage() or "").strip().splitlines()[0]
        raise JobError(
            Reason.INVALID_SPEC, f"source.schema = {ddl!r} is not a list of columns in Spark's DDL: {said}"
        ) from e
    if not isinstance(schema, StructType):
        raise JobError(
            Reason.INVALID_SPEC, f'source.schema = {ddl!r} is one type; give columns, such as "id BIGINT, name STRING"'
        )
    if any(name.lower() == METADATA for name in schema.names):
        raise JobError(
            Reason.INVALID_SPEC, f"source.schema has a column {METADATA!r}, which is the record's metadata; rename it"
        )
    return schema
