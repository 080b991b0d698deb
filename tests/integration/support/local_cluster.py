"""Drivers whose executors are processes: Spark's master local-cluster, which starts and ends them on request."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ackwright.api.spec import parse
from ackwright.local.supervise import spark_settings
from ackwright.planning.plan import plan
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import JobSpec
from integration.support.processes import naming

EXECUTORS = 3  # that the machine has room for; without a request, all of them start
_MEMORY_MB = 512  # of each


def clustered_job(document: Mapping[str, Any], directory: Path, **autoscaling: int) -> JobSpec:
    """The jobspec of a pipeline on a local cluster. autoscaling: its limits in place of the plan's."""
    extra = spark_settings(directory)
    extra["spark.executor.extraClassPath"] = extra["spark.driver.extraClassPath"]
    master = f"local-cluster[1,{EXECUTORS},{EXECUTORS * _MEMORY_MB}]"
    job = jobspec(plan(parse(document)), master=master, identity="tests", secrets=None, spark_extra=extra)
    assert job.autoscaling is not None
    return replace(job, autoscaling=replace(job.autoscaling, **autoscaling))


def executors(directory: Path) -> list[int]:
    """The ids of the executors' processes of drivers below this directory."""
    return [p for p in naming(directory) if b"CoarseGrainedExecutorBackend" in _command(p)]


def _command(process: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def spark_home(directory: Path) -> dict[str, str]:
    """The environment with which the cluster's worker writes below this directory, and not into the installed Spark."""
    installed = importlib.util.find_spec("pyspark")
    assert installed is not None
    assert installed.submodule_search_locations is not None
    home = directory / "spark-home"
    home.mkdir(parents=True)
    for entry in Path(installed.submodule_search_locations[0]).iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return {"SPARK_HOME": str(home)}
