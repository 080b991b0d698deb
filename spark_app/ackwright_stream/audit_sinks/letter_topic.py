"""What the audit reads of a compacted dead-letter topic beside a sink outside Kafka, and how dead letters look there.

Such a dead letter is there once if its key is: what a repeated batch writes again has the same key, and compaction
keeps the last record of a key. So only that one is compared, whether the brokers have removed the others yet or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ackwright_stream import audit_limits, dead_letters, source
from ackwright_stream.audit_kafka import KafkaView, Lane, LaneStart, Offsets
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison
from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.audit_sinks.tables import TableRows, compare
from ackwright_stream.jobspec import DeadLetterTopic, JobSpec

COMMITTED = {"kafka.isolation.level": "read_committed"}


def reader(spark: SparkSession, job: JobSpec, view: KafkaView, to: DeadLetterTopic | None) -> LetterTopicReader | None:
    """The reader of a pipeline's dead letters on the source's brokers. to: None for a pipeline without."""
    return LetterTopicReader(spark, job, view, to.topic) if to else None


class LetterTopicReader:
    """The dead letters of a pipeline, in a topic that it may share with others, up to its end at fix_content()."""

    precedes_positions = True

    def __init__(self, spark: SparkSession, job: JobSpec, view: KafkaView, topic: str) -> None:
        self._spark, self._job, self._view, self._topic = spark, job, view, topic
        self._starts: dict[Lane, int] = {}  # where the audit counts from
        self._is_trimmed = False
        # The partitions' offsets from which and up to which they are compared.
        self._begin: Offsets = {}
        self._end: Offsets = {}

    def lane_starts(self) -> Mapping[Lane, LaneStart]:
        """None: the sink has them."""
        return {}

    def positions(self, lanes: Collection[Lane]) -> Mapping[Lane, int | None]:
        """None: the sink has them."""
        return dict.fromkeys(lanes)

    def dead_letters(self) -> None:
        return None

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        """Key, value, and headers without the reason."""
        group = self._job.group
        partition, offset = F.col("partition").cast("string"), F.col("offset").cast("string")
        key = F.concat(F.lit(f"{group}/"), "topic", F.lit("-"), partition, F.lit("@"), offset)
        own = (*place_headers(group), (dead_letters.KEY, F.col("key")))
        return output.select(key.cast("binary").alias("key"), "value", with_headers(own).alias("headers"))

    def fix_content(self, required: Output, starts: Mapping[Lane, LaneStart]) -> tuple[list[Doubt], list[str]]:
        """What cannot be judged: dead letters that retention has removed, or that come from an old source topic."""
        self._starts = {lane: start.start for lane, start in starts.items()}
        partitions = self._view.partitions([self._topic])
        self._begin, self._end = self._view.earliest(partitions), self._view.decided(partitions)
        _, doubts, notes = audit_limits.output_of_old_topic(None, "", len(self._job.source.topics), starts, {})
        removals = audit_limits.removals_from_sink((), self._begin, self._begin, self._end)
        self._is_trimmed = bool(removals)
        return doubts + removals, notes

    def compare(self, required: Output, late: Output | None, doubts: Sequence[Doubt], counted: int) -> Comparison:
        """Counts equal dead letters, of each key the last one."""
        counts = compare(TableRows(self._topic, StructType(), self._last_of_each_key), required, late, doubts, counted)
        if not self._is_trimmed:
            return counts
        offending = tuple(replace(o, kind="missing") if o.kind == "lost" else o for o in counts.offending)
        return replace(counts, lost=0, missing=counts.missing + counts.lost, offending=offending)

    def _last_of_each_key(self, names: Sequence[str]) -> DataFrame:
        records = source.read_batch(self._spark, self._job, [self._topic], self._begin, self._end, **COMMITTED)
        own = records.filter(is_of(self._job.group) & ~self._is_before_the_audit())
        last = F.max_by(F.struct("value", "headers"), F.struct("offset", "partition")).alias("last")
        rows = own.groupBy("key").agg(last).select("key", "last.value", "last.headers")
        return rows.withColumn("headers", without_reason()).select(*names)

    def _is_before_the_audit(self) -> Column:
        """Whether a record is of a source offset from which on the audit does not count."""
        before = F.lit(False)
        for (topic, partition), start in self._starts.items():
            lane = (_header(dead_letters.TOPIC) == topic) & (_header(dead_letters.PARTITION) == str(partition))
            before |= lane & (_header(dead_letters.OFFSET).try_cast("bigint") < start)
        return F.coalesce(before, F.lit(False))


def place_headers(group: str) -> tuple[tuple[str, Column], ...]:
    """The headers of a dead letter with its pipeline and its place, of a malformed record of the source."""
    place = (
        (dead_letters.GROUP, F.lit(group)),
        (dead_letters.TOPIC, F.col("topic")),
        (dead_letters.PARTITION, F.col("partition").cast("string")),
        (dead_letters.OFFSET, F.col("offset").cast("string")),
    )
    return tuple((name, value.cast("binary")) for name, value in place)


def with_headers(own: Sequence[tuple[str, Column]]) -> Column:
    """The headers of a malformed record of the source, and those of its dead letter. The reason is left out."""
    added = F.array(*(F.struct(F.lit(name).alias("key"), value.alias("value")) for name, value in own))
    headers = F.concat(F.coalesce("headers", F.array().cast(source.HEADERS)), added.cast(source.HEADERS))
    return F.filter(headers, lambda h: h["key"] != dead_letters.REASON)


def without_reason() -> Column:
    """The headers without a dead letter's reason, which the job's decoder words."""
    return F.filter("headers", lambda h: h["key"] != dead_letters.REASON)


def is_of(group: str) -> Column:
    """Whether a record is a dead letter of this pipeline."""
    value = F.encode(F.lit(group), "utf-8")
    return F.coalesce(
        F.exists("headers", lambda h: (h["key"] == dead_letters.GROUP) & (h["value"] == value)), F.lit(False)
    )


def _header(name: str) -> Column:
    """The last header of this name, as text: a dead letter's own ones follow those of its record."""
    of_name = F.filter("headers", lambda h: h["key"] == name)
    return F.try_element_at(of_name, F.lit(-1))["value"].cast("string")
