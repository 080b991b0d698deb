"""Prints nothing and writes the answers to SQL queries as Arrow files. Run as `spark_reader.py SETTINGS DIRECTORY`.

SETTINGS is a JSON file with spark (configuration) and queries. This program imports nothing of the project.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.master("local[2]").appName("reader")
    for name, value in settings["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for number, query in enumerate(settings["queries"]):
        answer = spark.sql(query).toArrow()
        with pa.ipc.new_file(str(Path(sys.argv[2]) / f"{number}.arrow"), answer.schema) as file:
            file.write_table(answer)
    spark.stop()


if __name__ == "__main__":
    main()
