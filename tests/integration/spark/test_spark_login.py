"""A driver accepts only executors that know its secret.

The connection settings are the operator's; the executor is Spark's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyspark

from ackwright.local.watch import Watch
from ackwright.render.executors import spark_settings
from unit.render.pipelines import MINIMAL, SETTINGS, declared
from waiting import wait_until

SECONDS = 120
RENDERED = spark_settings(declared(MINIMAL), SETTINGS, template_file="/x")
LOGIN = {name: RENDERED[name] for name in ("spark.authenticate", "spark.network.crypto.enabled")}
# Prints its port and its secret, and waits.
DRIVER = """
import signal, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1")
for setting in sys.argv[1:]:
    builder = builder.config(*setting.split("=", 1))
context = builder.getOrCreate().sparkContext
secret = context._jvm.org.apache.spark.SparkEnv.get().securityManager().getSecretKey()
print(context.getConf().get("spark.driver.port"), secret, flush=True)
signal.pause()
"""
ACCEPTED = "Cannot find endpoint"  # of executors: a driver without any has none


@contextmanager
def driver(directory: Path, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The port and the secret of a driver that runs with these settings."""
    output = directory / "driver.out"
    with Watch() as watch, output.open("wb") as out, (directory / "driver.err").open("wb") as err:
        process = watch.start(
            [sys.executable, "-c", DRIVER, *(f"{k}={v}" for k, v in settings.items())], stdout=out, stderr=err
        )
        wait_until(lambda: process.poll() is not None or output.read_text().endswith("\n"), "the driver listens")
        assert process.poll() is None, (directory / "driver.err").read_text()
        port, secret = output.read_text().split()
        yield port, secret


def executor(port: str, settings: Mapping[str, str], secret: str | None = None) -> str:
    """The output of an executor that connects to the driver at this port."""
    where = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(where),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_EXECUTOR_OPTS": " ".join(f"-D{name}={value}" for name, value in settings.items()),
        **({"_SPARK_AUTH_SECRET": secret} if secret else {}),
    }
    command = [str(where / "bin/spark-class"), "org.apache.spark.executor.CoarseGrainedExecutorBackend"]
    command += [
        "--driver-url",
        f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
        "--executor-id",
        "1",
        "--hostname",
        "127.0.0.1",
    ]
    command += ["--cores", "1", "--app-id", "stranger", "--resourceProfileId", "0"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode, ended.stderr
    return ended.stdout + ended.stderr


def test_a_driver_accepts_only_executors_with_its_secret(tmp_path: Path) -> None:
    with driver(tmp_path, LOGIN) as (port, secret), ThreadPoolExecutor() as pool:
        secrets = {"none": None, "another": "0" * len(secret), "its own": secret}
        executors = {
            name: pool.submit(executor, port, LOGIN if secret_ else {}, secret_) for name, secret_ in secrets.items()
        }
        outputs = {name: ended.result() for name, ended in executors.items()}
    assert {secret_ for secret_, output in outputs.items() if ACCEPTED in output} == {"its own"}, outputs


def test_control_without_authentication_a_driver_accepts_any_executor(tmp_path: Path) -> None:
    """The control."""
    with driver(tmp_path, {}) as (port, _):
        assert ACCEPTED in executor(port, {})
