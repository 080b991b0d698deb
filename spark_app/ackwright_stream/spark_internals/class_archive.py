"""A program that loads the classes that a job loads, so that Java can write them to a class archive at exit (JEP 350).

python -P class_archive.py JARS, where JARS is the class path of Spark's connector. It needs no brokers, and imports
PySpark alone: the image of the job runs it before the package is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

_CONNECTOR = "org.apache.spark.sql.kafka010"
_CONNECTOR_CLASSES = (
    "KafkaBatchPartitionReader",
    "consumer.KafkaDataConsumer",
    "consumer.FetchedData",
    "consumer.InternalKafkaConsumerPool",
    "KafkaOffsetReaderAdmin",
    "KafkaMicroBatchStream",
    "KafkaWriter",
    "KafkaDataWriter",
)
_KAFKA = "org.apache.kafka.common"
_KAFKA_CLASSES = (
    "record.DefaultRecordBatch",
    "record.DefaultRecord",
    "record.MemoryRecords",
    "message.FetchResponseData",
    "message.ListOffsetsResponseData",
    "message.MetadataResponseData",
    "requests.FetchResponse",
)
_NO_BROKER = "127.0.0.1:1"  # an address without a listener


def main(argv: Sequence[str]) -> int:
    """Runs a small Spark job; argv: the class path of Spark's connector."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1")
    spark = builder.config("spark.driver.extraClassPath", argv[0]).getOrCreate()
    _run_stream(spark)
    _analyse_kafka_source(spark)
    _call_kafka_clients(spark)
    _load_connector(spark)
    spark.stop()
    return 0


def _run_stream(spark: SparkSession) -> None:
    """One batch of a stream with foreachBatch, JSON, and Arrow to a Python worker and back."""

    def unchanged(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    def deliver(batch: DataFrame, _: int) -> None:
        partitions = batch._jdf.queryExecution().toRdd().partitions()
        counts = batch.mapInArrow(unchanged, batch.schema).groupBy().count()
        if len(partitions) != counts.count():
            raise RuntimeError("a batch has one partition")

    text = F.to_json(F.struct(F.col("value").alias("a")))
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
    parsed = stream.select(F.from_json(text, "a int").alias("r"), text.cast("binary").alias("value"))
    observed = parsed.observe("m", F.count(F.lit(1)).alias("n"))
    output = observed.filter("r.a >= 0").select("r.*", "value").mapInArrow(unchanged, "a int, value binary")
    writer = output.writeStream.foreachBatch(deliver).option("checkpointLocation", "checkpoint")
    for name in ("asyncProgressTrackingEnabled", "_asyncProgressTrackingOverrideSinkSupportCheck"):
        writer = writer.option(name, "true")
    query = writer.start()
    while query.isActive and not query.recentProgress:
        query.awaitTermination(0.1)
    query.stop()
    if (error := query.exception()) is not None:
        raise error


def _analyse_kafka_source(spark: SparkSession) -> None:
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", _NO_BROKER).option("subscribe", "none")
    kafka.load().selectExpr("CAST(value AS STRING)").createOrReplaceTempView("source")
    spark.sql("SELECT * FROM source")._jdf.queryExecution().analyzed()


def _call_kafka_clients(spark: SparkSession) -> None:
    """Polls the address without a listener for 0.2 seconds."""
    java, clients = spark._jvm.java, spark._jvm.org.apache.kafka.clients
    settings = java.util.Properties()
    settings.setProperty("bootstrap.servers", _NO_BROKER)
    settings.setProperty("group.id", "none")
    for kind in ("key", "value"):
        settings.setProperty(kind + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer")
    consumer = clients.consumer.KafkaConsumer(settings)
    partition = spark._jvm.org.apache.kafka.common.TopicPartition("none", 0)
    consumer.assign(java.util.List.of(partition))
    consumer.seek(partition, 0)
    consumer.poll(java.time.Duration.ofMillis(200))
    consumer.close(java.time.Duration.ofMillis(0))
    clients.admin.AdminClient.create(settings).close(java.time.Duration.ofMillis(0))


def _load_connector(spark: SparkSession) -> None:
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for package, names in ((_CONNECTOR, _CONNECTOR_CLASSES), (_KAFKA, _KAFKA_CLASSES)):
        for name in names:
            loader.loadClass(f"{package}.{name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
