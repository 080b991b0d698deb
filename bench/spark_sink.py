"""What the job is compared with: the same copy from topic to topic as a user of Spark writes it, with Spark's own Kafka sink.

A program of its own, run by the benchmark: `spark_sink.py SETTINGS`, a JSON file with bootstrapServers, source, sink,
maxOffsetsPerTrigger, checkpoint, trigger, spark (configuration), consumer (settings of reading; these and how the checkpoint is written
are as our job has them, so that it is the sinks that are compared). Nothing of the project is in it. The producer's settings are the Java
client's defaults: acks=all, idempotence.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

given = json.loads(Path(sys.argv[1]).read_text())
builder = SparkSession.builder.appName("spark-sink")
for name, value in given["spark"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
(
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", given["bootstrapServers"])
    .option("subscribe", given["source"])
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", given["maxOffsetsPerTrigger"])
    .options(**{f"kafka.{name}": value for name, value in given["consumer"].items()})
    .load()
    .selectExpr("key", "value")
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", given["bootstrapServers"])
    .option("topic", given["sink"])
    .option("checkpointLocation", given["checkpoint"])
    .trigger(**given["trigger"])
    .start()
    .awaitTermination()
)
spark.stop()
