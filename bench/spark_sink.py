"""The baseline of the benchmarks: copies a topic with Spark's own Kafka sink, as a user of Spark writes it.

Run as `spark_sink.py SETTINGS`. SETTINGS is a JSON file with bootstrapServers, source, sink, maxOffsetsPerTrigger,
checkpoint, trigger, query (options), spark (configuration), consumer (settings), and each of these or null:

    target      format, options and number of tasks of a copy to a table, in place of the topic
    stateful    schema of JSON values, event time, watermark, SQL and output mode of a query, in place of a copy

The consumer and the checkpoint are configured as in our job, so that only the sinks differ. The producer has the Java
client's defaults: acks=all and idempotence. This program imports nothing of the project.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery


def start_query(spark: SparkSession, settings: Mapping[str, Any]) -> StreamingQuery:
    """The started copy."""
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings["bootstrapServers"])
        .option("subscribe", settings["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings["maxOffsetsPerTrigger"])
        .options(**{f"kafka.{name}": value for name, value in settings["consumer"].items()})
        .load()
    )
    rows = _output(spark, rows, settings["stateful"])
    target = settings["target"]
    if target and target["tasks"]:
        rows = rows.coalesce(target["tasks"])
    writer = (
        rows.writeStream.option("checkpointLocation", settings["checkpoint"])
        .options(**settings["query"])
        .trigger(**settings["trigger"])
    )
    if settings["stateful"]:
        writer = writer.outputMode(settings["stateful"]["output_mode"])
    if target is None:
        kafka = writer.format("kafka").option("kafka.bootstrap.servers", settings["bootstrapServers"])
        return kafka.option("topic", settings["sink"]).start()
    if target["format"] != "jdbc":
        return writer.format(target["format"]).options(**target["options"]).start()

    def write(rows: DataFrame, _: int) -> None:
        """Spark's JDBC sink has no streams."""
        rows.write.format("jdbc").options(**target["options"]).mode("append").save()

    return writer.foreachBatch(write).start()


def _output(spark: SparkSession, records: DataFrame, stateful: Mapping[str, str] | None) -> DataFrame:
    """What the query writes: key and value of the records, or of a stateful query."""
    if stateful is None:
        return records.selectExpr("key", "value")
    value = F.from_json(F.col("value").cast("string"), stateful["schema"])
    columns = records.select(value.alias("columns")).select("columns.*")
    columns.withWatermark(stateful["event_time"], stateful["watermark"]).createOrReplaceTempView("source")
    return spark.sql(stateful["sql"])


def main() -> None:
    """Runs the copy until it ends."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.appName("spark-sink")
    for name, value in settings["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    start_query(spark, settings).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
