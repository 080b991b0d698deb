"""What the audit reads of topics as a sink, on the source's cluster or another, as a read_committed consumer."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream import audit_compare, audit_fractions, audit_limits, audit_schemas, dead_letters, source
from ackwright_stream.audit_kafka import KafkaView, Lane, LaneStart, Offsets
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_partitions import Layout
from ackwright_stream.audit_report import Comparison
from ackwright_stream.audit_sinks import letter_topic
from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.jobspec import Format, JobSpec, KafkaSink
from ackwright_stream.sinks.kafka import columns


class KafkaReader:
    """The topics that a pipeline writes, up to where they ended at fix_content()."""

    precedes_positions = False
    writes_apart = True

    def __init__(self, spark: SparkSession, job: JobSpec, view: KafkaView, routes: Iterable[str]) -> None:
        self._spark, self._routes = spark, routes
        self._sink = job.sink_of(KafkaSink)
        # Of the sink's cluster. If that is not the source's, positions are offsets of topics with this prefix.
        self._job, self._view, self._prefix = job, view, ""
        if self._sink.cluster:
            self._job = replace(job, cluster=self._sink.cluster)
            self._view = KafkaView(self._job)
            self._prefix = self._sink.positions.markers(view.cluster_id())
        self._topics: set[str] = set()
        # The partitions' offsets from which and up to which they are compared.
        self._begin: Offsets = {}
        self._end: Offsets = {}

    def lane_starts(self) -> Mapping[Lane, LaneStart]:
        return self._view.lane_starts()

    def positions(self, lanes: Collection[Lane]) -> Mapping[Lane, int | None]:
        return self._view.positions(lanes, self._prefix)

    def decisions(self) -> Sequence[str]:
        return self._view.decisions()

    def tolerances(self, output: DataFrame, rounded: Mapping[str, float]) -> Mapping[str, float] | None:
        """That of the value, if its text has the numbers as Spark writes them."""
        of_value = {field.name for field in columns.value_columns(output)}
        if self._sink.output_schema is not None or not of_value.issuperset(rounded):
            return None
        return {"value": max(rounded.values())}

    def without(self, rows: DataFrame, columns: Collection[str]) -> DataFrame | None:
        """The value without the fields of these columns; null if the value is one of them."""
        if {name.lower() for name in columns}.intersection(("key", "topic", "headers")):
            return None
        return _without_fields(rows, columns)

    def has_decided(self) -> bool:
        """Whether a batch was decided. The topic keeps the last decision of each pipeline."""
        return bool(self.decisions())

    def key_columns(self, *, last_of_key: bool) -> Sequence[str]:
        return ("topic", "key") if last_of_key else ()

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        if schema := self._sink.output_schema:
            fields = columns.value_columns(output)
            content = audit_schemas.with_text_values(output, fields, self._sink.format, schema.text)
            return columns.to_sink_columns(content, replace(self._sink, format=Format.BINARY, output_schema=None))
        return columns.to_sink_columns(output, self._sink)

    def dead_letters(self) -> LetterReader | None:
        letters = self._sink.dead_letters
        return LetterReader(self._spark, self._job, self._view, letters.topic) if letters else None

    def fix_content(self, required: Output, starts: Mapping[Lane, LaneStart]) -> tuple[list[Doubt], list[str]]:
        view, topic = self._view, self._sink.topic
        self._topics = self._topics_with_output(required)
        partitions = view.partitions(self._topics) if self._topics else []
        earliest, self._end = view.earliest(partitions), view.decided(partitions)
        self._begin, of_old_topic, notes = audit_limits.output_of_old_topic(
            topic, view.topic_id(topic) if topic else "", len(self._job.source.topics), starts, earliest
        )
        removals = audit_limits.removals_from_sink(view.compacted(self._topics), earliest, self._begin, self._end)
        return of_old_topic + removals, notes

    def compare(self, required: Output, late: Output | None, doubts: Sequence[Doubt], counted: int) -> Comparison:
        layout = Layout(
            source=required.source,
            sink=sorted(self._end),
            preserve=self._sink.preserve_partition,
            incomplete={lane for doubt in doubts for lane in doubt.lanes},
            trimmed={topic for doubt in doubts for topic in doubt.topics},
        )
        records = _keys(required.records) if required.keys_only else required.records
        if required.tolerances:  # it is read for them, too, and its records are counted once
            records = records.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return self._compared(replace(required, records=records), late, layout, counted)
        finally:
            if required.tolerances:
                records.unpersist()

    def _compared(self, required: Output, late: Output | None, layout: Layout, counted: int) -> Comparison:
        records = required.records
        expected = [audit_compare.expected_rows(records, required.lanes, layout, late=False)]
        if late is not None:
            expected.append(audit_compare.expected_rows(late.records, late.lanes, layout, late=True))
        actual = self._actual_rows(layout, required)
        counts = audit_compare.compare(expected, actual, layout)
        counts = counts if required.ordered else counts.without_order()
        # A source record that Spark did not read may explain what is not expected.
        return counts if counts.metrics["sent"]["records"] == counted else counts.without_surplus()

    def _actual_rows(self, layout: Layout, required: Output) -> DataFrame | None:
        if not self._end:
            return None
        records = source.read_batch(
            self._spark, self._job, self._topics, self._begin, self._end, **letter_topic.COMMITTED
        )
        if (schema := self._sink.output_schema) is not None:
            format_, registry = self._sink.format, self._job.schema_registry
            records = audit_schemas.with_decoded_values(records, format_, registry, schema.subject)
        relevant = self._relevant(records)
        if required.keys_only:
            first = F.min_by(F.struct(*relevant.columns), "offset").alias("first")
            relevant = _keys(relevant.groupBy("topic", "key").agg(first).select("first.*"))
        if required.last_of_key:
            counted = relevant.observe("sink", F.count(F.lit(1)).alias("records"))
            relevant = _last_of_keys(counted)
        if required.left_out and not required.keys_only:
            relevant = _without_fields(relevant, required.left_out)
        if required.tolerances and not required.keys_only:
            relevant = audit_fractions.with_expected_numbers(
                relevant, required.records, required.tolerances, required.records.columns
            )
        return audit_compare.actual_rows(relevant, layout)

    def _relevant(self, records: DataFrame) -> DataFrame:
        """Those of the records that are compared: not dead letters, if the transform routes output to their topic."""
        letters = self._sink.dead_letters
        if letters is None or letters.topic not in self._topics:
            return records
        return records.filter((F.col("topic") != letters.topic) | ~_has_header(dead_letters.GROUP))

    def _topics_with_output(self, required: Output) -> set[str]:
        """Where the output belongs, and where else records of the pipeline may be."""
        declared = {self._sink.topic} if self._sink.topic else set()
        if not columns.chooses_topic(required.records):
            return declared
        named = {row["topic"] for row in required.records.select("topic").distinct().collect()}
        letters = {self._sink.dead_letters.topic} if self._sink.dead_letters else set()
        others = {*self._job.source.topics, self._sink.positions.lanes_topic, *letters}
        possible = self._view.existing(self._routes) - others
        return declared | named | possible


class LetterReader(KafkaReader):
    """The dead letters of a pipeline, in a topic that it may share with others."""

    def __init__(self, spark: SparkSession, job: JobSpec, view: KafkaView, topic: str) -> None:
        """job: with the brokers of the sink."""
        sink = replace(
            job.sink_of(KafkaSink),
            topic=topic,
            format=Format.BINARY,
            output_schema=None,
            preserve_partition=False,
            cluster=None,
            dead_letters=None,
        )
        super().__init__(spark, replace(job, sink=sink), view, ())

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        headers = letter_topic.with_headers(letter_topic.place_headers(self._job.group))
        return output.select("key", "value", F.lit(self._sink.topic).alias("topic"), headers.alias("headers"))

    def dead_letters(self) -> None:
        return None

    def fix_content(self, required: Output, starts: Mapping[Lane, LaneStart]) -> tuple[list[Doubt], list[str]]:
        # Where this topic ended when a source topic was recreated is not recorded.
        unknown = {lane: replace(start, sink_id="") for lane, start in starts.items()}
        return super().fix_content(required, unknown)

    def _relevant(self, records: DataFrame) -> DataFrame:
        own = records.filter(letter_topic.is_of(self._job.group))
        return own.withColumn("headers", letter_topic.without_reason())

    def _topics_with_output(self, required: Output) -> set[str]:
        return {self._sink.topic} if self._sink.topic else set()


def _last_of_keys(records: DataFrame) -> DataFrame:
    """The last record of each key in each topic.

    A key may be in several partitions: those from before partitions were added, and any if it is null. Offsets say
    which record of a partition is the last, and times which one of several partitions.
    """
    row = F.struct(*records.columns)
    of_partitions = records.groupBy("topic", "partition", "key").agg(F.max_by(row, "offset").alias("last"))
    newest = F.max_by("last", "last.timestamp").alias("last")
    return of_partitions.groupBy("topic", "key").agg(newest).select("last.*")


def _keys(records: DataFrame) -> DataFrame:
    """The records with their keys alone."""
    nothing = {name: F.lit(None).cast(records.schema[name].dataType) for name in ("value", "headers")}
    return records.withColumns(nothing)


def _without_fields(records: DataFrame, names: Collection[str]) -> DataFrame:
    """The records with values that are null if the value is one of the fields, and otherwise lack these fields."""
    if any(name.lower() == "value" for name in names):
        return records.withColumn("value", F.lit(None).cast("binary"))
    fields = frozenset(names)
    return records.withColumn("value", F.arrow_udf(lambda values: without_fields(values, fields), "binary")("value"))


def without_fields(values: pa.Array, names: Collection[str]) -> pa.Array:
    """Texts of JSON without these fields of their objects. Any other text is as it was."""
    return pa.array([None if text is None else _text_without(text, names) for text in values.to_pylist()], pa.binary())


def _text_without(text: bytes, names: Collection[str]) -> bytes:
    try:
        record = json.loads(text, parse_float=str)
    except ValueError:
        return text
    if not isinstance(record, dict):
        return text
    return json.dumps({name: value for name, value in record.items() if name not in names}).encode()


def _has_header(name: str) -> Column:
    return F.coalesce(F.exists("headers", lambda h: h["key"] == name), F.lit(False))
