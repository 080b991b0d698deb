"""Documents for property tests. About half of them are valid; the others are wrong in every way that a check knows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_NAMES = ("in", "out", "in.a", "in_a", "more")
_TOPIC = st.sampled_from([*_NAMES * 4, "..", "__consumer_offsets", "ackwright-lanes", "x y"])
_FORMAT = st.sampled_from(["binary", "string", "json"])
_MEMORY = st.sampled_from(["1g", "512m", "2048m", "511m", "1Gi"])


def _rarely(wrong: Any, *right: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([*right * 8, wrong])


def _fields(
    required: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


_SERVERS = _rarely("k", "k:9092", "k-0:9092, k-1:9093", "[::1]:9092", "k:09092") | _rarely("k:65536", "k:65535")
_PYTHON = st.fixed_dictionaries({"module": _rarely("my-app", "my_app.transform"), "function": st.just("transform")})
_COUNT = st.sampled_from([1, 2, 3, 6])

_SOURCE = _fields(
    {"topics": st.lists(_TOPIC, min_size=1, max_size=2)},
    startingOffsets=_rarely("now", "earliest", "latest"),
    maxOffsetsPerTrigger=_rarely(0, 1, 2**63 - 1),
    onMalformed=st.sampled_from(["fail", "skip", "deadLetter"]),
    groupId=_rarely("a b", "mine"),
).flatmap(
    lambda source: st.sampled_from(
        [
            *[source, source | {"format": "string"}, source | {"format": "json", "schema": "a INT"}] * 4,
            source | {"format": "json"},
        ]
    )
)
_TOPICS = st.lists(
    _fields(
        {"name": _TOPIC, "partitions": _COUNT},
        replicationFactor=st.sampled_from([2, 3, 3, 5, 5]),
        config=_fields(
            {},
            **{
                "min.insync.replicas": _rarely("x", "1", "2", "3", "02") | st.sampled_from(["2", "0", "40000"]),
                "unclean.leader.election.enable": st.sampled_from(["false", " False", "false", "true"]),
                "cleanup.policy": _rarely("none", "compact", "delete, compact"),
            },
        ),
        deletionPolicy=st.sampled_from(["Retain", "Delete"]),
        driftPolicy=_rarely("ignore", "repair", "alert", "pause"),
    ),
    max_size=3,
)
_SINKS = st.fixed_dictionaries(
    {
        "kafka": _fields(
            {},
            topic=_TOPIC,
            format=_FORMAT,
            acks=st.sampled_from(["all", "all", "all", "1", "0"]),
            preservePartition=st.booleans(),
            bootstrapServers=_SERVERS,
            deadLetter=_fields({"topic": _TOPIC}, maxFraction=_rarely(0, 0.5, 1)),
        )
    },
)
_SPEC = _fields(
    {
        "guarantee": _rarely("once", "at-most-once", "at-least-once", "exactly-once"),
        "kafka": _fields(
            {"bootstrapServers": _SERVERS},
            auth=st.just({"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "user"}}),
            tls=st.sampled_from([{}, {"caSecret": {"name": "ca"}}]),
        ),
        "source": _SOURCE,
        "transform": st.sampled_from([{"sql": "SELECT * FROM source"}] * 8 + [{"sql": "  "}, {}])
        | _PYTHON.map(lambda p: {"python": p}),
        "sink": _SINKS.flatmap(
            lambda sink: st.sampled_from([sink] * 10 + [{}, {"delta": {"path": "/x"}}, sink | {"iceberg": {}}])
        ),
    },
    tolerate=_fields({}, brokerFailures=_rarely(-1, 0, 1, 2)),
    topics=_TOPICS,
    trigger=st.sampled_from(
        [
            *({}, {"interval": "1s"}, {"availableNow": True}, {"interval": "1s", "availableNow": False}),
            {"availableNow": True, "schedule": "0 3 * * *"},
        ]
    ),
    checkpoint=st.sampled_from(
        [{"volume": {"size": "1Gi"}}, {"uri": "file:///x"}, {"uri": "/x"}] * 3 + [{}, {"uri": "s3a://x"}, {"uri": "x"}]
    ),
    spark=_fields(
        {},
        image=_rarely(" ", "image:1"),
        driver=_fields({}, cores=_COUNT, memory=_MEMORY),
        executor=_fields(
            {},
            instances=_COUNT,
            cores=_COUNT,
            memory=_MEMORY,
            autoscaling=_fields({"maxInstances": _COUNT}, drainTarget=st.sampled_from(["0s", "30s", "5m", "x"])),
        ),
        conf=st.sampled_from([{}, {"spark.sql.ansi.enabled": "true"}] * 3 + [{"spark.kubernetes.x": "y"}]),
    ),
    suspend=st.booleans(),
)


def documents() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just("ackwright.io/v1alpha1"),
            "kind": st.just("DeliveryPipeline"),
            "metadata": st.fixed_dictionaries({"name": _rarely("a.b", "p", "n" * 52)}),
            "spec": _SPEC,
        }
    )
