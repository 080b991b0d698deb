"""The autoscaling of executors in a plan. Pure."""

from __future__ import annotations

from ackwright.api.job_fields import Executor
from ackwright.api.quantities import duration_ms
from ackwright.planning.guarantees import Setting, Settings
from ackwright_stream.jobspec import Autoscaling

_WINDOW_MS = 10_000  # three measurements decide, so half a minute of load is enough for more executors
_COOL_DOWN_MS = 300_000  # the start of an executor takes a minute and more in a cluster


def processors(executor: Executor) -> int:
    """The processors of all executors, with autoscaling of the largest number of them: the pipeline has a slot each."""
    instances = executor.autoscaling.max_instances if executor.autoscaling else executor.instances
    return instances * executor.cores


def autoscaling(executor: Executor) -> Autoscaling | None:
    """Between which limits, and how, the driver scales; None: the number of executors is fixed."""
    declared = executor.autoscaling
    if declared is None:
        return None
    return Autoscaling(
        min_executors=executor.instances,
        max_executors=declared.max_instances,
        cores=executor.cores,
        drain_target_ms=duration_ms(declared.drain_target),
        window_ms=_WINDOW_MS,
        cool_down_ms=_COOL_DOWN_MS,
    )


def printed(limits: Autoscaling) -> Settings:
    """What `ackwright plan` prints of them, with reasons."""
    return (
        Setting("autoscaling.min.executors", str(limits.min_executors), "spec.spark.executor.instances"),
        Setting("autoscaling.max.executors", str(limits.max_executors), "while there is a lag; slots are for them"),
        Setting("autoscaling.drain.target.ms", str(limits.drain_target_ms), "the time in which a lag is delivered"),
        Setting("autoscaling.window.ms", str(limits.window_ms), "of one measurement; three in a row decide"),
        Setting("autoscaling.cool.down.ms", str(limits.cool_down_ms), "from a change to the end of executors"),
    )


def spark_settings(executor: Executor) -> Settings:
    """How many executors may fail before Spark ends: Spark's own number, for the largest number of executors."""
    if executor.autoscaling is None:
        return ()
    number = max(3, 2 * executor.autoscaling.max_instances)
    return (Setting("spark.executor.maxNumFailures", str(number), "twice autoscaling.maxInstances, and at least 3"),)
