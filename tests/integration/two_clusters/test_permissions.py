"""A permission of the sink's cluster is withdrawn while a driver delivers, and granted again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright.planning.acls import Kind, Operation, Resource
from ackwright.planning.clusters import ClusterRole
from ackwright_stream.jobspec import KafkaSink
from integration.support.guarded import grant, guarded_brokers, login, required_of_job, withdraw_one
from integration.support.lane_pipeline import assert_guaranteed, lane_pipeline, watched
from integration.support.pipelines import job_of
from integration.support.two_clusters import TwoClusters
from waiting import wait_until


@pytest.fixture(scope="module")
def guarded_sink() -> Iterator[TwoClusters]:
    """Two clusters; that of the sink has access rules."""
    with EmbeddedKafka(brokers=1) as source, guarded_brokers(1) as sink:
        yield TwoClusters(source, sink)


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_write_on_the_output_is_withdrawn_and_granted_while_a_driver_delivers(
    guarded_sink: TwoClusters, tmp_path: Path, guarantee: str
) -> None:
    servers = guarded_sink.source.bootstrap_servers
    with (
        lane_pipeline(servers, tmp_path, guarantee, 2, 600, to=guarded_sink) as pipeline,
        watched(pipeline) as watcher,
    ):
        name = pipeline.source.removesuffix("-in")
        declared = guarded_sink.document(name, guarantee, pipeline.source, pipeline.sink)
        declared["spec"]["sink"]["kafka"] |= login(guarded_sink.sink, "job", tmp_path)
        needed = required_of_job(declared)[ClusterRole.SINK]
        grant(guarded_sink.sink, "job", needed)
        spec = job_of(declared, tmp_path, secrets=str(tmp_path / "secrets"))
        connection = spec.sink_of(KafkaSink).cluster
        assert connection is not None
        pipeline.connect(connection)

        driver = pipeline.drive(step=50, again=True)
        wait_until(lambda: min(pipeline.positions().values(), default=0) >= 100, "the driver delivers")
        driver.arm("mid-produce", "hang")
        driver.arrived("mid-produce")
        before = pipeline.positions()
        withdraw_one(guarded_sink.sink, "job", Resource(Kind.TOPIC, pipeline.sink), Operation.WRITE)
        if guarantee == "at-most-once":  # nobody acknowledges its rows, so it continues, and they are lost
            driver.release("mid-produce")
            wait_until(lambda: sum(pipeline.positions().values()) > sum(before.values()), "it claims further ranges")
        else:
            driver.arm("taken", "hang")
            driver.release("mid-produce")
            driver.arrived("taken")  # after a batch has failed
        grant(guarded_sink.sink, "job", needed)
        driver.release("taken")
        result = driver.result()
        assert result.code == 0, result
        assert guarantee == "at-most-once" or result.failed.keys() & {"AuthorizationFailed", "BatchFailed"}, result
        assert_guaranteed(pipeline, watcher)
