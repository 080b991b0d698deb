"""A namespace with a running pipeline is deleted, in a cluster with Kubernetes' namespace controller."""

from __future__ import annotations

from ackwright.clients.kafka import Kafka
from ackwright_stream.jobspec import Cluster
from e2e.pipelines import NAMESPACE, Installation, pipeline, wait_until

GOING = "going"


def test_a_namespace_with_a_pipeline_that_deletes_its_topics_is_deleted(installed: Installation) -> None:
    kafka = Kafka(Cluster(installed.kafka))
    installed.create_namespace(GOING)
    installed.install(watchNamespaces=[NAMESPACE, GOING])
    try:
        with pipeline(installed, "at-least-once", create=False) as p:
            topics = [p.source, p.sink]
            spec = p.document["spec"] | {
                "topics": [{"name": t, "partitions": 3, "deletionPolicy": "Delete"} for t in topics]
            }
            document = p.document | {"metadata": {"name": p.name, "namespace": GOING}, "spec": spec}
            installed.apply(document)
            ready = ("wait", "--for=condition=Ready", f"deliverypipeline/{p.name}", "--timeout=300s")
            installed.cluster.kubectl("--namespace", GOING, *ready, timeout=310)
            p.produce_flights(2_000)
            assert set(kafka.topics(topics)) == set(topics)
            installed.cluster.kubectl("delete", "namespace", GOING, "--timeout=240s", timeout=250)
            wait_until(lambda: not kafka.topics(topics), "the topics are deleted", 30)
    finally:
        installed.install()
