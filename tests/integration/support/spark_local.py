"""One local Spark session for all tests of this process: starting one takes longer than most tests."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from ackwright.local import jars, spark_start

SETTINGS = {
    "spark.master": "local[2,2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "768m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateless.adaptiveExecution.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session() -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JDK_JAVA_OPTIONS"] = f"{spark_start.SHORT_LIVED} {spark_start.java_options()}"
    builder = SparkSession.builder.appName("tests")
    jars_on_path = os.pathsep.join(str(p) for p in sorted(jars.directory("spark").glob("*.jar")))
    for name, value in {**SETTINGS, "spark.driver.extraClassPath": jars_on_path}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
