"""Spark's daemon of Python workers, up to the moment at which it would begin to fork them."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import gc, json, runpy, sys, time
import pyspark.daemon
def manager():
    begun = time.thread_time()
    gc.collect()
    took = time.thread_time() - begun
    gc.unfreeze()
    begun = time.thread_time()
    gc.collect()
    main = pyspark.daemon.worker_main.__module__
    otherwise = time.thread_time() - begun
    print(json.dumps({"took": took, "otherwise": otherwise, "modules": sorted(sys.modules), "main": main}))
pyspark.daemon.manager = manager
runpy.run_module("ackwright_stream.worker_daemon", run_name="__main__")
"""


def test_imports_are_done_before_the_fork_and_left_out_by_the_collector_and_tasks_know_where_they_read() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    state = json.loads(done.stdout)
    assert {
        "pandas",
        "pyarrow",
        "confluent_kafka.admin",
        "ackwright_stream.lanes",
        "ackwright_stream.sinks.kafka.sink",
    } <= set(state["modules"])
    assert state["took"] < state["otherwise"] / 10
    assert state["main"] == "ackwright_stream.spark_internals.worker"
