"""Options that start Spark's JVM from a class archive (class data sharing, JEP 350), in about half the time.

A small Spark program creates the archive once; it is cached per Java and set of jars. The archive only saves time: Java
starts without it where it is missing or does not match.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ackwright.local import jars

# Loads the classes that a job loads, without brokers: a stream with foreachBatch, JSON, Arrow to Python workers and
# back, and Kafka's clients, which poll an address without a listener for 0.2 seconds.
ARCHIVE_PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "1")
spark = builder.config("spark.driver.extraClassPath", sys.argv[1]).getOrCreate()

def same(batches):
    yield from batches

def deliver(batch, number):
    partitions = batch._jdf.queryExecution().toRdd().partitions()
    assert len(partitions) == batch.mapInArrow(same, batch.schema).groupBy().count().count()

text = F.to_json(F.struct(F.col("value").alias("a")))
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
read = stream.select(F.from_json(text, "a int").alias("r"), text.cast("binary").alias("value"))
read = read.observe("m", F.count(F.lit(1)).alias("n"))
out = read.filter("r.a >= 0").select("r.*", "value").mapInArrow(same, "a int, value binary")
writer = out.writeStream.foreachBatch(deliver).option("checkpointLocation", "checkpoint")
for name in ("asyncProgressTrackingEnabled", "_asyncProgressTrackingOverrideSinkSupportCheck"):
    writer = writer.option(name, "true")
query = writer.start()
while query.isActive and not query.recentProgress:
    query.awaitTermination(0.1)
query.stop()
assert query.exception() is None

kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
kafka = kafka.option("subscribe", "none").load()
kafka.selectExpr("CAST(value AS STRING)").createOrReplaceTempView("source")
spark.sql("SELECT * FROM source")._jdf.queryExecution().analyzed()
java = spark._jvm.java
settings = java.util.Properties()
settings.setProperty("bootstrap.servers", "127.0.0.1:1")
settings.setProperty("group.id", "none")
for kind in ("key", "value"):
    settings.setProperty(kind + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer")
consumer = spark._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
partition = spark._jvm.org.apache.kafka.common.TopicPartition("none", 0)
consumer.assign(java.util.List.of(partition))
consumer.seek(partition, 0)
consumer.poll(java.time.Duration.ofMillis(200))
consumer.close(java.time.Duration.ofMillis(0))
spark._jvm.org.apache.kafka.clients.admin.AdminClient.create(settings).close(java.time.Duration.ofMillis(0))
loader = java.lang.Thread.currentThread().getContextClassLoader()
for name in ("KafkaBatchPartitionReader", "consumer.KafkaDataConsumer", "consumer.FetchedData",
             "consumer.InternalKafkaConsumerPool", "KafkaOffsetReaderAdmin", "KafkaMicroBatchStream",
             "KafkaWriter", "KafkaDataWriter"):
    loader.loadClass("org.apache.spark.sql.kafka010." + name)
for name in ("record.DefaultRecordBatch", "record.DefaultRecord", "record.MemoryRecords",
             "message.FetchResponseData", "message.ListOffsetsResponseData", "message.MetadataResponseData",
             "requests.FetchResponse"):
    loader.loadClass("org.apache.kafka.common." + name)
spark.stop()
"""


# For processes that run for a minute or two, in which the C2 compiler costs more time than it saves.
SHORT_LIVED = "-XX:TieredStopAtLevel=1"


def java_options() -> str:
    """Options for JDK_JAVA_OPTIONS, which `java` 9 and newer reads; creates the class archive if it does not exist."""
    archive = _archive()
    # Java would print a warning about an archive that does not match to stdout, where the program's output belongs.
    quiet = "-Xlog:disable -Xlog:all=error:stderr"
    return f"-XX:+UseSerialGC -Xshare:auto -XX:SharedArchiveFile={archive} {quiet}" if archive.is_file() else ""


def _archive() -> Path:
    spark_jars = jars.directory("spark")
    runtime = Path(shutil.which("java") or "java").resolve()
    modified = runtime.stat().st_mtime_ns if runtime.exists() else 0
    spark = next(iter(importlib.util.find_spec("pyspark").submodule_search_locations or ()))  # type: ignore[union-attr]
    identity = f"{runtime} {modified} {spark} {importlib.metadata.version('pyspark')} {spark_jars} {ARCHIVE_PROGRAM}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    archive = jars.cache_directory() / f"spark-{key}.jsa"
    if not archive.is_file():
        _create_archive(archive, os.pathsep.join(sorted(map(str, spark_jars.glob("*.jar")))))
    return archive


def _create_archive(archive: Path, spark_jars: str) -> None:
    """Creates the archive; leaves nothing behind if Spark fails or takes longer than five minutes."""
    with tempfile.TemporaryDirectory(prefix="ackwright-", dir=archive.parent) as directory:
        unfinished = Path(directory, "spark.jsa")
        variables = {
            "JDK_JAVA_OPTIONS": f"-XX:+UseSerialGC -XX:ArchiveClassesAtExit={unfinished}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        argv = [sys.executable, "-c", ARCHIVE_PROGRAM, spark_jars]
        try:
            completed = subprocess.run(
                argv, env={**os.environ, **variables}, cwd=directory, capture_output=True, timeout=300, check=False
            )
        except subprocess.TimeoutExpired:
            return
        if completed.returncode == 0 and unfinished.is_file():
            unfinished.rename(archive)


def main() -> int:
    options = java_options()
    sys.stderr.write(f"  spark: {'class archive' if options else 'no class archive; Spark starts slower'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
