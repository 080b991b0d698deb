"""librdkafka's mock brokers, which run in this process, answer as a test asks for, and record their requests."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from ackwright_stream.jobspec import JobSpec, KafkaSink
from ackwright_stream.sinks.kafka.librdkafka import library, pointer
from minimal_job import minimal_job

LIST_OFFSETS, METADATA, OFFSET_FETCH = 2, 3, 9  # requests' numbers (Kafka's protocol, api keys)
DISCONNECTED = -195  # in place of an answer the connection is closed (librdkafka's _TRANSPORT)
_SECONDS = 20
_NUMBERS = ctypes.POINTER(ctypes.c_int)


class MockBrokers:
    """They live as long as this object. A topic is created by the first request for it, with four partitions."""

    def __init__(self, number: int = 1) -> None:
        self._host = Producer({"test.mock.num.brokers": number, "log_level": 0})
        self._cluster = _call("rd_kafka_handle_mock_cluster", ctypes.c_void_p, pointer(self._host))
        self.servers = bytes(_call("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, self._cluster)).decode()

    def job(self, sink: KafkaSink) -> JobSpec:
        """From the topic `in` to the sink, by these brokers."""
        return minimal_job(group="ops.orders", bootstrap=self.servers, sink=sink, operation_timeout_ms=_SECONDS * 1000)

    def topic(self, name: str) -> str:
        self._host.list_topics(name, timeout=_SECONDS)
        return name

    def keys(self, topic: str) -> list[bytes]:
        """The keys of all records of a topic."""
        conf = {"bootstrap.servers": self.servers, "group.id": "keys", "enable.partition.eof": True, "log_level": 0}
        consumer = Consumer(conf)
        remaining = set(consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in remaining])
        keys: list[bytes] = []
        while remaining:
            message = consumer.poll(_SECONDS)
            assert message is not None
            if message.error():
                remaining.discard(message.partition() or 0)
            else:
                keys.append(bytes(message.key() or b""))
        consumer.close()
        return keys

    def refuse(self, request: int, *errors: int) -> None:
        """The next requests of this kind get these answers."""
        codes = (ctypes.c_int * len(errors))(*errors)
        _call(
            "rd_kafka_mock_push_request_errors_array",
            None,
            self._cluster,
            ctypes.c_int16(request),
            ctypes.c_size_t(len(errors)),
            codes,
        )

    def refuse_topic(self, name: str, error: int) -> None:
        """From now on metadata has this error of the topic."""
        code = ctypes.c_int(error)
        _call("rd_kafka_mock_topic_set_error", None, self._cluster, ctypes.c_char_p(name.encode()), code)

    def listen(self) -> None:
        """From now on requests are counted."""
        _call("rd_kafka_mock_start_request_tracking", None, self._cluster)
        _call("rd_kafka_mock_clear_requests", None, self._cluster)

    def asked(self) -> Counter[tuple[int, int]]:
        """How often each request came to each broker: (request, broker)."""
        number = ctypes.c_size_t()
        requests = _call(
            "rd_kafka_mock_get_requests", ctypes.POINTER(ctypes.c_void_p), self._cluster, ctypes.byref(number)
        )
        return Counter(
            (_of(requests[i], "api_key", ctypes.c_int16), _of(requests[i], "id", ctypes.c_int32))
            for i in range(number.value)
        )


def _of(request: int, what: str, kind: Any) -> int:
    return int(_call(f"rd_kafka_mock_request_{what}", kind, request))


def _call(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library(), name)
    function.restype = result
    return function(*(ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments))
