"""Starts Spark's JVM from an archive of its classes (class data sharing, JEP 350): about half of the time until a job is up.

Made once, by a Spark that does a little of what a job does, and cached outside of the tree, keyed by Java and the jars. Only a matter of
time: where it cannot be made or does not fit, Java goes on without.
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

_MAKE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[1]).config("spark.ui.enabled", "false").getOrCreate()
frame = spark.range(10).selectExpr("id", "to_json(struct(id)) j", "from_json('{}', 'a int') k").filter("id > 3")
assert len(frame.collect()) == 6
stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "none").load()
stream.selectExpr("CAST(value AS STRING)").createOrReplaceTempView("source")
spark.sql("SELECT * FROM source")._jdf.queryExecution().analyzed()
spark.stop()
"""


def java_options() -> str:
    """Options for JDK_JAVA_OPTIONS, which every `java` from 9 on reads; makes the archive first if it is not there."""
    archive = _archive()
    # An archive that does not fit is worth no line on stdout, which belongs to the program.
    quiet = "-Xlog:disable -Xlog:all=error:stderr"
    return f"-XX:+UseSerialGC -Xshare:auto -XX:SharedArchiveFile={archive} {quiet}" if archive.is_file() else ""


def _archive() -> Path:
    spark_jars = jars.directory("spark")
    runtime = Path(shutil.which("java") or "java").resolve()
    built = runtime.stat().st_mtime_ns if runtime.exists() else 0
    spark = next(iter(importlib.util.find_spec("pyspark").submodule_search_locations or ()))  # type: ignore[union-attr]
    identity = f"{runtime} {built} {spark} {importlib.metadata.version('pyspark')} {spark_jars} {_MAKE}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    archive = jars.cache_directory() / f"spark-{key}.jsa"
    if not archive.is_file():
        _make(archive, ",".join(sorted(map(str, spark_jars.glob("*.jar")))))
    return archive


def _make(archive: Path, spark_jars: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ackwright-", dir=archive.parent) as place:
        fresh = Path(place, "spark.jsa")
        own = {
            "JDK_JAVA_OPTIONS": f"-XX:+UseSerialGC -XX:ArchiveClassesAtExit={fresh}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        argv = [sys.executable, "-c", _MAKE, spark_jars]
        try:
            subprocess.run(argv, env={**os.environ, **own}, cwd=place, capture_output=True, timeout=300, check=False)
        except subprocess.TimeoutExpired:
            return
        if fresh.is_file():
            fresh.rename(archive)


def main() -> int:
    options = java_options()
    sys.stderr.write(f"  spark: {'class archive' if options else 'no class archive; Spark starts slower'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
