"""Kafka's admin client, safe from the garbage collector."""

from __future__ import annotations

import threading
from collections import deque

from confluent_kafka import admin

_ended: deque[admin.AdminClient] = deque()  # no thread of librdkafka's takes anything out of here


class AdminClient(admin.AdminClient):  # type: ignore[misc] # confluent-kafka types it as Any
    """An admin client that is never closed by a thread of librdkafka's, but then when the next one is made or Python ends.

    librdkafka runs Python in a thread of its own to hand an answer over. If the garbage collector happens to run there and finds this very
    client in a cycle (an exception and its traceback make one), then that thread would close the client it belongs to, and librdkafka ends
    the process: "rd_kafka_destroy() called from librdkafka owned thread".
    """

    def __init__(self, settings: dict[str, object]) -> None:
        _ended.clear()
        super().__init__(settings)

    def __del__(self) -> None:
        if isinstance(threading.current_thread(), threading._DummyThread):  # one that Python did not start
            _ended.append(self)
