"""The partitions of an audit: which one of the sink a record belongs to, and of which ones records no longer exist."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Partition = tuple[str, int]  # topic, number

_SEED, _M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)
_BYTES = np.array([0, 8, 16, 24], np.uint32)  # how far each byte of a word is shifted


@dataclass(frozen=True)
class Layout:
    """The partitions of source and sink, in the order of their numbers in the rows of audit_compare."""

    source: Sequence[Partition]
    sink: Sequence[Partition]
    # A record belongs to the sink partition with the number of its source partition. False: a key belongs to the
    # partition that the producers' partitioner chooses, and a record without a key to any.
    preserve: bool = True
    incomplete: Collection[Partition] = frozenset()  # of the source: some of their records no longer exist
    trimmed: Collection[str] = frozenset()  # topics of the sink: some of their records may no longer exist

    @property
    def source_names(self) -> list[str]:
        return [f"{topic}-{number}" for topic, number in self.source]

    @property
    def sink_names(self) -> list[str]:
        return [f"{topic}-{number}" for topic, number in self.sink]

    @property
    def widths(self) -> Mapping[str, int]:
        """The number of partitions of each topic of the sink."""
        topics = [topic for topic, _ in self.sink]
        return {topic: topics.count(topic) for topic in topics}

    def destination(self, lane: Column) -> Column:
        """The sink partition of an expected record; null: the one that the partitioner chooses.

        lane: the number of its source partition.
        """
        if not self.preserve:
            return F.lit(None).cast("int")
        return F.array(*[F.lit(number) for _, number in self.source])[lane.cast("int")]

    def with_place(self, sink: DataFrame) -> DataFrame:
        """The records of the sink with a column `place`, their partition in the terms of destination(), and `excused`.

        excused: another partition than place's may be right as well, or the record may come from source records that
        no longer exist. Kafka does not record when partitions were added, so that a key may be where the partitioner
        put it when there were fewer.
        """
        number = F.col("partition")
        if self.preserve:
            return sink.withColumns({"place": number, "excused": self.may_be_of_incomplete()})
        if all(width == 1 for width in self.widths.values()):
            return sink.withColumns({"place": F.lit(None).cast("int"), "excused": F.lit(False)})
        hashed = sink.withColumn("hash", F.arrow_udf(_hashes, "long")("key"))
        width = F.coalesce(*(F.when(F.col("topic") == topic, F.lit(n)) for topic, n in self.widths.items()))
        fewer = F.when(number + 1 < width, F.sequence(number + 1, width - 1))
        before = F.exists(fewer, lambda n: F.pmod("hash", n) == number)
        elsewhere = F.pmod("hash", width) != number
        return hashed.withColumns(
            {"place": F.when(elsewhere, number), "excused": F.when(elsewhere, F.coalesce(before, F.lit(False)))}
        )

    def is_incomplete(self, lane: Column) -> Column:
        """Whether records of a source partition no longer exist. lane: its number."""
        return lane.isin([i for i, partition in enumerate(self.source) if partition in self.incomplete])

    def may_be_of_incomplete(self) -> Column:
        """Whether a record in the sink may come from source records that no longer exist."""
        if self.preserve:
            return F.col("partition").isin([number for _, number in self.incomplete])
        return F.lit(bool(self.incomplete))


def _hashes(keys: pa.Array) -> pa.Array:
    return pa.array(murmur2(keys), mask=keys.is_null().to_numpy(zero_copy_only=False))


def murmur2(keys: pa.Array) -> npt.NDArray[np.int64]:
    """Kafka's hash of each key of a binary Arrow array, 31 bits; modulo the partitions, it is the key's partition.

    That of the Java producer's default partitioner (Utils.murmur2 and toPositive) and of librdkafka's murmur2_random,
    which all producers of the job use. Of a null key it means nothing.
    """
    keys = keys.cast(pa.large_binary())
    _, offsets, data = keys.buffers()
    ends = (
        np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
        if len(keys)
        else np.zeros(1, np.int64)
    )
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    starts, lengths = ends[:-1], np.diff(ends)
    words = lengths // 4
    state = _SEED ^ lengths.astype(np.uint32)
    for i in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > i)
        word = _words(text, starts[rows] + 4 * i, 4) * _M
        state[rows] = (state[rows] * _M) ^ ((word ^ (word >> np.uint32(24))) * _M)
    for rest in (1, 2, 3):
        rows = np.flatnonzero(lengths % 4 == rest)
        state[rows] = (state[rows] ^ _words(text, starts[rows] + 4 * words[rows], rest)) * _M
    state = (state ^ (state >> np.uint32(13))) * _M
    return ((state ^ (state >> np.uint32(15))) & np.uint32(0x7FFFFFFF)).astype(np.int64)


def _words(text: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint32]:
    """The numbers of `size` bytes that begin at these places, the first byte the least significant."""
    parts = text[starts[:, None] + np.arange(size)].astype(np.uint32) << _BYTES[:size]
    numbers: npt.NDArray[np.uint32] = np.bitwise_or.reduce(parts, axis=1)
    return numbers
