"""Kafka's admin client, safe from the garbage collector."""

from __future__ import annotations

import threading
from collections import deque

from confluent_kafka import admin

# Clients whose collection began in a thread of librdkafka. No such thread takes anything out of here.
_postponed: deque[admin.AdminClient] = deque()


class AdminClient(admin.AdminClient):  # type: ignore[misc] # confluent-kafka types it as Any
    """An admin client that no thread of librdkafka ever closes.

    librdkafka passes answers to Python in a separate thread. If the garbage collector runs there and finds this
    client in a cycle (an exception and its traceback make one), that thread would close the client that it belongs
    to, and librdkafka would end the process: "rd_kafka_destroy() called from librdkafka owned thread". The next
    client, or the end of Python, closes it instead."""

    def __init__(self, settings: dict[str, object]) -> None:
        _postponed.clear()
        super().__init__(settings)

    def __del__(self) -> None:
        if isinstance(threading.current_thread(), threading._DummyThread):  # Python did not start this thread
            _postponed.append(self)
