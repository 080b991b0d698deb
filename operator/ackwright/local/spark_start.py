"""Options that start Spark's JVM from a class archive (class data sharing, JEP 350), in about half the time.

The job's program class_archive.py creates the archive once; it is cached per Java and set of jars. The archive only
saves time: Java starts without it where it is missing or does not match.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ackwright.local import jars

# For processes that run for a minute or two, in which the C2 compiler costs more time than it saves.
SHORT_LIVED = "-XX:TieredStopAtLevel=1"
_TIMEOUT_S = 300.0  # of the creation, which takes 10 s on an idle machine
_UNUSED_S = 30 * 24 * 3600.0


def java_options() -> str:
    """Options for JDK_JAVA_OPTIONS, which `java` 9 and newer reads; creates the class archive if it does not exist."""
    archive = _archive()
    # Java would print a warning about an archive that does not match to stdout, where the program's output belongs.
    quiet = "-Xlog:disable -Xlog:all=error:stderr"
    return f"-XX:+UseSerialGC -Xshare:auto -XX:SharedArchiveFile={archive} {quiet}" if archive.is_file() else ""


def is_prepared() -> bool:
    """Whether jars and class archive are in the cache. Otherwise java_options() takes minutes."""
    return jars.is_cached("spark") and _place(jars.directory("spark")).is_file()


def archive_program() -> Path:
    """The program that loads what a job loads. It runs without the package, in the image before that is installed."""
    return _directory("ackwright_stream") / "spark_internals" / "class_archive.py"


def _directory(package: str) -> Path:
    """The directory of an installed package, which is not imported."""
    return Path(next(iter(importlib.util.find_spec(package).submodule_search_locations or ())))  # type: ignore[union-attr]


@functools.cache  # one attempt for a process: where the archive cannot be created, each takes up to five minutes
def _archive() -> Path:
    spark_jars = jars.directory("spark")
    archive = _place(spark_jars)
    if archive.is_file():
        os.utime(archive)
    else:
        _create_archive(archive_program(), archive, os.pathsep.join(sorted(map(str, spark_jars.glob("*.jar")))))
        remove_unused(archive.parent, time.time())
    return archive


def _place(spark_jars: Path) -> Path:
    """The archive's file, which its Java, jars and program identify."""
    runtime = Path(shutil.which("java") or "java").resolve()
    modified = runtime.stat().st_mtime_ns if runtime.exists() else 0
    spark = _directory("pyspark")
    identity = (
        f"{runtime} {modified} {spark} {importlib.metadata.version('pyspark')} {spark_jars} "
        f"{archive_program().read_text()}"
    )
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return jars.cache_directory() / f"spark-{key}.jsa"


def remove_unused(directory: Path, now: float) -> None:
    """Removes the class archives that no program has used for 30 days. Each virtual environment has a separate one."""
    for archive in directory.glob("spark-*.jsa"):
        with contextlib.suppress(OSError):  # another process has removed it
            if now - archive.stat().st_mtime > _UNUSED_S:
                archive.unlink()


def _create_archive(program: Path, archive: Path, spark_jars: str) -> None:
    """Creates the archive; leaves nothing behind if Spark fails or takes longer than five minutes."""
    with tempfile.TemporaryDirectory(prefix="ackwright-", dir=archive.parent) as directory:
        unfinished = Path(directory, "spark.jsa")
        variables = {
            "JDK_JAVA_OPTIONS": f"-XX:+UseSerialGC -XX:ArchiveClassesAtExit={unfinished}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        argv = [sys.executable, "-P", str(program), spark_jars]
        try:
            completed = subprocess.run(
                argv,
                env={**os.environ, **variables},
                cwd=directory,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return
        if completed.returncode == 0 and unfinished.is_file():
            unfinished.rename(archive)


def main() -> int:
    options = java_options()
    missing = f"no class archive after at most {_TIMEOUT_S:.0f} s; Spark starts slower"
    sys.stderr.write(f"  spark: {'class archive' if options else missing}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
