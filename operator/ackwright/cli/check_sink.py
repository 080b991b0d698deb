"""Whether a sink outside Kafka takes the pipeline's output, whether the schema registry has what its formats need, and
whether the bucket of the state answers, for `ackwright check`: the job's own check, in a process with Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ackwright.cli.foreground import working_directory
from ackwright.errors import AckwrightError
from ackwright.local.supervise import CHECK_SINK, CHECK_TRANSFORM, Job, spark_settings
from ackwright.local.watch import Watch
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.readiness import Check, Verdict
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import Reason

TIMEOUT_S = 180.0  # Spark's start on a busy machine, and the limits of two connections


def sink_check(plan: DeliveryPlan, secrets: Path | None) -> Check:
    """Starts the job only to check schemas, transform, a sink outside Kafka and the bucket of state, and waits for it.

    Changes nothing.

    A warning if it cannot be started here: without Spark, or without the Secrets.
    """
    name, target, good = plan.sink.link.name, plan.sink.link.subject, "takes the columns of the transform"
    if plan.sink.in_kafka and plan.schema_registry:
        name, target, good = "schemas", plan.schema_registry.url, "has the schemas, and takes that of the output"
    elif plan.sink.in_kafka and plan.state:
        name, target, good = "state", plan.state.checkpoint, "answers, and its objects may be listed"
    with working_directory(None, keep=False) as place, Watch() as watch:
        try:
            job = jobspec(
                plan,
                master="local[1]",
                secrets=str(secrets.resolve()) if secrets else None,
                spark_extra=spark_settings(place),
            )
        except AckwrightError as e:
            return Check(name, Verdict.WARNING, f"{target}, not checked", e.message)
        process = Job(job, place, watch, command=CHECK_TRANSFORM if plan.sink.in_kafka else CHECK_SINK)
        try:
            code = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return Check(name, Verdict.WARNING, f"{target}, not checked: no answer in {TIMEOUT_S:.0f} s")
        failure = process.failure()
    if code == 0:
        return Check(name, Verdict.OK, f"{target} {good}")
    if failure is None:
        return Check(name, Verdict.WARNING, f"{target}, not checked: its job ended with exit code {code}")
    if failure.reason is Reason.STATE_UNREACHABLE and plan.state:
        target = plan.state.checkpoint
    return Check(name, Verdict.FAILED, f"{failure.reason}: {target}", failure.message)
