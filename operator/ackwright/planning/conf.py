"""The Spark settings that a pipeline may set: an allow-list, because any of Spark's hundreds of settings may run code,
leak data or split a lane's range.

Deliberately not allowed, among others: spark.kubernetes.* and spark.submit* (other users' pods), *.extraJavaOptions,
spark.jars*, plugins, listeners and serializers (code in the driver), spark.python.* and spark.speculation (the
guarantee depends on them).
"""

from __future__ import annotations

import difflib

from ackwright.api import spark_conf
from ackwright.api.violations import Problem
from ackwright.errors import Violation

ALLOWED = spark_conf.ALLOWED
NOT_ALLOWED = "is not among the Spark settings that a pipeline may set"
REMEDY = "remove it; the operator sets what the guarantee needs"
_ELSEWHERE = {
    "spark.driver.cores": "spec.spark.driver.cores",
    "spark.driver.memory": "spec.spark.driver.memory",
    "spark.executor.cores": "spec.spark.executor.cores",
    "spark.executor.instances": "spec.spark.executor.instances",
    "spark.executor.memory": "spec.spark.executor.memory",
    "spark.app.name": "metadata.name",
}


def refuse(key: str) -> Violation | None:
    """The violation if a key of spec.spark.conf is refused, else None. The value is omitted: it may be a credential."""
    if key in ALLOWED:
        return None
    field = f"spec.spark.conf[{key!r}]"
    if key in _ELSEWHERE:
        return Problem.without_value(field, NOT_ALLOWED, f"use {_ELSEWHERE[key]}")
    near = difflib.get_close_matches(key, sorted(ALLOWED), n=1, cutoff=0.9)
    return Problem.without_value(field, NOT_ALLOWED, f"did you mean {near[0]}?" if near else REMEDY)
