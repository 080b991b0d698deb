"""Delta's and Iceberg's own readers and writers for Spark: the settings of a session that has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from ackwright.local import jars
from ackwright.local.supervise import spark_environment, spark_settings

DELTA_JARS, ICEBERG_JARS = "delta-spark", "iceberg-spark"  # kinds of ackwright.local.jars
CATALOG = "lake"  # the name in Spark of an Iceberg catalog
_CLASS_PATH = "spark.driver.extraClassPath"

DELTA: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def iceberg(uri: str) -> Mapping[str, str]:
    """uri: of a REST catalog."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    return {catalog: "org.apache.iceberg.spark.SparkCatalog", f"{catalog}.type": "rest", f"{catalog}.uri": uri}


def answers(
    queries: Sequence[str], kind: str, settings: Mapping[str, str], directory: Path, timeout: float = 300.0
) -> list[pa.Table]:
    """The answers of a separate Spark session to SQL queries.

    kind: of the jars that it needs. settings: of the session. directory: a new one, for its files. timeout: seconds.
    """
    directory.mkdir()
    file = directory / "settings.json"
    ours = spark_settings(directory)
    path = os.pathsep.join((ours[_CLASS_PATH], *(str(jar) for jar in jars.directory(kind).glob("*.jar"))))
    file.write_text(json.dumps({"spark": {**ours, **settings, _CLASS_PATH: path}, "queries": list(queries)}))
    # -P keeps the script's directory out of the module path.
    command = [sys.executable, "-P", str(Path(__file__).with_name("spark_reader.py")), str(file), str(directory)]
    environment = spark_environment(os.environ, directory)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, "\n".join(
        line for line in done.stderr.splitlines() if not line.lstrip().startswith("at ")
    )[-5000:]
    return [pa.ipc.open_file(directory / f"{number}.arrow").read_all() for number in range(len(queries))]
