"""Reading Kafka: the options of Spark's source, and the view `source` that a transform reads.

The job reads a stream and the audit reads the same records as a batch. Both use parse(), so a record means the same to
either. The options are those of Spark's Structured Streaming + Kafka Integration Guide.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.dead_letters import RECORD_FIELDS, text_of
from ackwright_stream.formats import format_of
from ackwright_stream.formats.base import METADATA, Parsed
from ackwright_stream.jobspec import JobSpec, SchemaRegistry, Source

# The name of parse()'s metrics `records` and `malformed` in StreamingQueryProgress.observedMetrics.
METRICS = "ackwright_source"
HEADERS = "array<struct<key:string,value:binary>>"  # the type of a record's headers

# Passes on dead letters, the column that dead_letters.text_of() returns; returns whether there is one.
Keep = Callable[[Column], Column]
# Where a kind of sink writes malformed records: the field below its deadLetter.
_DEAD_LETTERS = {"delta": "topic", "files": "topic", "iceberg": "topic", "kafka": "topic", "postgres": "table"}

_FETCH = "max.partition.fetch.bytes"
_SHARE = 8  # of the memory of a process: the fetches of all its lanes have one part, if each lane holds one
_SMALLEST_FETCH = 16 * 1024  # bytes; Kafka returns a record that is larger all the same (KIP-74)
_SHOWN = 200  # characters of a malformed record in the message
_FIELDS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


def reader_options(job: JobSpec) -> dict[str, str]:
    """The Kafka source's options for connection, consumer and limits, without those that name what to read.

    A key of job.consumer without a dot is an option of Spark's source (failOnDataLoss). Any other is a setting of the
    Java consumer, to which Spark's options add the prefix "kafka.".
    """
    java = {"bootstrap.servers": job.cluster.bootstrap_servers, **job.cluster.java}
    options = {f"kafka.{name}": value for name, value in java.items()}
    options["includeHeaders"] = "true"
    if job.source.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(job.source.max_offsets_per_trigger)
    for name, value in job.consumer.items():
        options[f"kafka.{name}" if "." in name else name] = value
    return options


def fetch_limit(job: JobSpec, lanes: int) -> int | None:
    """Bytes of one fetch of a lane's consumer (max.partition.fetch.bytes): the job's setting, or less with many lanes.

    Spark keeps a consumer for each lane. Each may hold two fetches between batches: the records beyond the last batch,
    and what the consumer has requested in advance. A backlog of 256 lanes with 2 MiB each fills a heap of 1 GiB.
    """
    declared = job.consumer.get(_FETCH)
    executors = int(job.spark.get("spark.executor.instances", 0))
    is_local = not executors or job.spark.get("spark.master", "local").startswith("local")
    memory = job.spark.get("spark.driver.memory" if is_local else "spark.executor.memory")
    if declared is None or memory is None:
        return None if declared is None else int(declared)
    share = _bytes(memory) // _SHARE // math.ceil(lanes / (1 if is_local else executors))
    return min(int(declared), max(share, _SMALLEST_FETCH))


def _bytes(memory: str) -> int:
    """Of a size as Spark's settings for a JVM's memory have it: 512m, 1g."""
    return int(memory[:-1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[memory[-1].lower()]


def read_stream(
    spark: SparkSession, job: JobSpec, starting_offsets: str, *, headers: bool = True, limit: int | None = None
) -> DataFrame:
    """The source topics as a stream.

    starting_offsets: JSON {"topic": {"0": 23, …}} that names every partition, or "earliest". headers: whether to read
    the records' headers; without them a record of 100 bytes takes 13 µs of the JVM's time in place of 14. limit:
    offsets per batch, in place of the job's.
    """
    options = {**reader_options(job), "subscribe": ",".join(job.source.topics), "startingOffsets": starting_offsets}
    options["includeHeaders"] = str(headers).lower()
    if limit is not None:
        options["maxOffsetsPerTrigger"] = str(limit)
    if starting_offsets != "earliest":
        options |= _limited(job, sum(map(len, json.loads(starting_offsets).values())))
    return spark.readStream.format("kafka").options(**options).load()


def read_batch(
    spark: SparkSession,
    job: JobSpec,
    topics: Iterable[str],
    starting: Mapping[tuple[str, int], int],
    ending: Mapping[tuple[str, int], int],
    **more: str,
) -> DataFrame:
    """The records [starting, ending) of the topics' partitions, rows in the order of their offsets.

    starting and ending name the same partitions, at least one. more: further options, which override the job's. Spark
    decides the order of Spark's partitions (spark_internals.execution.source_partitions).
    """
    lanes = sorted(lane for lane in ending if lane[0] in set(topics))
    options = {name: value for name, value in reader_options(job).items() if name not in _STREAM_ONLY}
    # assign, not subscribe: a partition that is added meanwhile must not make Spark refuse the offsets.
    options |= {
        "assign": json.dumps({t: [p for (topic, p) in lanes if topic == t] for t in sorted({t for t, _ in lanes})}),
        "startingOffsets": _offsets({lane: starting[lane] for lane in lanes}),
        "endingOffsets": _offsets({lane: ending[lane] for lane in lanes}),
        "failOnDataLoss": "true",
        **_limited(job, len(lanes)),
    }
    return spark.read.format("kafka").options(**{**options, **more}).load()


def _limited(job: JobSpec, lanes: int) -> dict[str, str]:
    limit = fetch_limit(job, max(1, lanes))
    return {} if limit is None else {f"kafka.{_FETCH}": str(limit)}


def _offsets(positions: Mapping[tuple[str, int], int]) -> str:
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in positions.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(offsets)


def parse(
    raw: DataFrame,
    source: Source,
    metrics: str = METRICS,
    *,
    registry: SchemaRegistry | None = None,
    keep: Keep | None = None,
    sink: str = "",
) -> DataFrame:
    """The view `source`, from the columns of Spark's Kafka source; without a column `headers` they are null.

    The view has the columns of the source's format and a struct `kafka` with the record as it is: key BINARY, value
    BINARY, topic, partition, offset, timestamp, headers.

    A malformed record fails the query with a message that begins with "MalformedRecord:", or is left out
    (skip_malformed), or is left out and passed to `keep` as a dead letter. In each case the counts `records` and
    `malformed` are observed under the name `metrics`. For a stream they are in the progress of each batch
    (StreamingQueryProgress.observedMetrics), not in foreachBatch's frame, which does not contain the counting node.
    sink: the kind of the job's sink, whose field for dead letters the message names; empty: none.
    Raises JobError(INVALID_SPEC) for a schema that Spark cannot read.
    """
    parsed = format_of(source.format).parse(with_metadata(raw), source, registry)
    return parsed.view(checked(parsed, source, metrics, keep, sink))


def with_metadata(raw: DataFrame) -> DataFrame:
    """The records as the column METADATA alone."""
    if "headers" not in raw.columns:
        raw = raw.withColumn("headers", F.lit(None).cast(HEADERS))
    return raw.select(F.struct(*_FIELDS).alias(METADATA))


def malformed(parsed: Parsed) -> DataFrame:
    """The malformed records as they are: key, value, topic, partition, offset, timestamp, headers."""
    none = F.lit(False)
    return parsed.rows.filter(none if parsed.malformed is None else parsed.malformed).select(f"{METADATA}.*")


def dead_letters(raw: DataFrame, source: Source, registry: SchemaRegistry | None = None) -> DataFrame:
    """The malformed records as dead letters, with dead_letters.COLUMNS, from the columns of Spark's Kafka source."""
    parsed = format_of(source.format).parse(with_metadata(raw), source, registry)
    malformed = F.lit(False) if parsed.malformed is None else parsed.malformed
    record = (F.col(f"{METADATA}.{name}").alias(name) for name in RECORD_FIELDS)
    return parsed.rows.filter(malformed).select(*record, _reason(parsed).alias("reason"))


def malformed_remedy(sink: str) -> str:
    """What to do about a malformed record. sink: as parse() takes it."""
    place = _DEAD_LETTERS.get(sink)
    if place is None:
        return "correct its producer, or set source.onMalformed: skip"
    created = "" if place == "table" else " (it must exist or be listed under spec.topics)"
    return (
        f"correct its producer, or set source.onMalformed: deadLetter and sink.{sink}.deadLetter.{place}{created}, "
        "or source.onMalformed: skip"
    )


def checked(parsed: Parsed, source: Source, metrics: str, keep: Keep | None = None, sink: str = "") -> DataFrame:
    """The parsed rows, whose malformed ones are counted, and then left out or failed at. sink: as parse() takes it.

    Spark pushes no filter of the transform through the counting node. So it counts and checks every record that was
    read, also one that the transform would drop. A malformed record fails while it is counted. In a filter it need not:
    Spark adds the transform's conditions, and what it infers from them, to that filter, and where that is not compiled
    (many columns, some expressions) an earlier condition hides the later ones.
    """
    if parsed.malformed is None:
        return parsed.rows
    rows = parsed.rows.withColumn("malformed", parsed.malformed)
    malformed, records = F.col("malformed"), F.count(F.lit(1)).alias("records")
    if keep is not None:
        rows = rows.withColumn("malformed", keep(text_of(malformed, _reason(parsed))))
    if keep is not None or source.skip_malformed:
        return rows.observe(metrics, records, F.count_if(malformed).alias("malformed")).filter(~malformed)
    text = F.substring(F.make_valid_utf8(F.col(f"{METADATA}.value").cast("string")), 1, _SHOWN)
    shown = text if parsed.shown is None else parsed.shown
    message = F.concat(
        F.lit("MalformedRecord: "),
        F.col(f"{METADATA}.topic"),
        F.lit("-"),
        F.col(f"{METADATA}.partition").cast("string"),
        F.lit("@"),
        F.col(f"{METADATA}.offset").cast("string"),
        F.lit(" "),
        _reason(parsed),
        F.lit(f"; {malformed_remedy(sink)}. It begins: "),
        F.coalesce(F.regexp_replace(shown, r"[\r\n]+", " "), F.lit("(null)")),
    )
    refused = F.when(malformed, F.raise_error(message).cast("boolean")).otherwise(F.lit(False))
    return rows.observe(metrics, records, F.count_if(refused).alias("malformed"))


def _reason(parsed: Parsed) -> Column:
    """Why a row is malformed, in a clause."""
    expected = F.lit(f"is not {parsed.expected}")
    return expected if parsed.problem is None else F.concat(expected, F.lit(": "), parsed.problem)
