"""The jobspec of a small pipeline, for tests that need one and change nothing in it."""

from __future__ import annotations

from ackwright_stream.jobspec import Cluster, Guarantee, JobSpec, KafkaSink, Source, Transform

JOB = JobSpec(
    name="flights",
    namespace="ops",
    guarantee=Guarantee.EXACTLY_ONCE,
    group="ops.flights",
    cluster=Cluster("127.0.0.1:1"),
    source=Source(("in",)),
    transform=Transform(sql="SELECT key, value FROM source"),
    sink=KafkaSink("out"),
    lanes_topic="lanes",
)
