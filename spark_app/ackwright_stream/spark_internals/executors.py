"""Asks Spark for executors and releases executors, while Spark's dynamic allocation is off.

Works with a cluster's scheduler (Kubernetes, local-cluster): a local master has no executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DRIVER = "driver"


def active(spark: SparkSession) -> tuple[str, ...]:
    """Spark's ids of the executors that are connected to the driver, the oldest first."""
    summaries = spark._jsc.sc().statusStore().executorList(True)
    ids = (str(summaries.apply(i).id()) for i in range(summaries.size()))
    return tuple(sorted((id_ for id_ in ids if id_ != _DRIVER), key=int))


def ended(spark: SparkSession) -> frozenset[str]:
    """Spark's ids of the executors that have ended, or that it counts as lost; of the last hundred at least."""
    summaries = spark._jsc.sc().statusStore().executorList(False)
    executors = map(summaries.apply, range(summaries.size()))
    return frozenset(str(executor.id()) for executor in executors if not executor.isActive())


def request_total(spark: SparkSession, total: int) -> None:
    """Asks for this number of executors altogether. More are started when the cluster has room for them.

    A smaller number alone ends no executor that is connected.
    """
    jvm = spark._jvm
    spark._jsc.sc().requestTotalExecutors(total, 0, jvm.PythonUtils.toScalaMap({}))


def release(spark: SparkSession, surplus: Sequence[str], remaining: int) -> None:
    """Ends these executors, whatever they run. Returns when Spark gives them no task any more.

    Some of them may have ended already: the status store learns of it later. remaining: the number that stays
    requested. Spark lowers its total by each executor that it ends, from 0 if nothing was requested before.
    """
    spark._jsc.sc().killExecutors(spark._jvm.PythonUtils.toSeq(list(surplus)))
    request_total(spark, remaining)
