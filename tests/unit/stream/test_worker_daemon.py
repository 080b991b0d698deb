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
    print(json.dumps({"took": took, "otherwise": time.thread_time() - begun, "modules": sorted(sys.modules)}))
pyspark.daemon.manager = manager
runpy.run_module("ackwright_stream.worker_daemon", run_name="__main__")
"""


def test_what_is_imported_is_imported_before_the_fork_and_left_out_by_the_collector() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(done.stdout)
    assert {"pandas", "pyarrow", "confluent_kafka.admin", "ackwright_stream.lanes"} <= set(found["modules"])
    assert found["took"] < found["otherwise"] / 10
