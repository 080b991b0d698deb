"""The librdkafka that confluent_kafka is linked with, for functions that confluent_kafka does not offer.

They are producing rows from an Arrow batch, and connecting before there is anything to send. Callers check is_known(),
and do without them otherwise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from typing import Any

import confluent_kafka
from confluent_kafka import cimpl

_HANDLE_LAYOUT_KNOWN_FOR = "2.16."  # releases of confluent_kafka whose struct Handle starts with rd_kafka_t *rk
_PRODUCER = 0  # RD_KAFKA_PRODUCER


@cache
def library() -> ctypes.CDLL:
    """The library, loaded through confluent_kafka's extension module, so it can be no other.

    ctypes releases the GIL during calls.
    """
    lib = ctypes.CDLL(cimpl.__file__)
    pointer, integer, number = ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int64)
    for name, result, arguments in (
        ("rd_kafka_version", integer, []),
        ("rd_kafka_last_error", integer, []),
        ("rd_kafka_type", integer, [pointer]),
        ("rd_kafka_opaque", pointer, [pointer]),
        ("rd_kafka_topic_new", pointer, [pointer, ctypes.c_char_p, pointer]),
        ("rd_kafka_topic_destroy", None, [pointer]),
        ("rd_kafka_produce_batch", integer, [pointer, ctypes.c_int32, integer, pointer, integer]),
        (
            "rd_kafka_query_watermark_offsets",
            integer,
            [pointer, ctypes.c_char_p, ctypes.c_int32, number, number, integer],
        ),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


def pointer(producer: Any) -> int | None:
    """rd_kafka_t *rk, the first field of confluent_kafka's struct Handle; None once the producer is closed."""
    return ctypes.c_void_p.from_address(id(producer) + object.__basicsize__).value


def is_known(producer: Any) -> bool:
    """Whether library() may be used with this producer.

    Type and release are checked before memory is read. Then the rd_kafka_t has to identify itself as this producer:
    confluent_kafka passes the Python object to librdkafka as its opaque.
    """
    if not isinstance(producer, cimpl.Producer) or not confluent_kafka.__version__.startswith(_HANDLE_LAYOUT_KNOWN_FOR):
        return False
    try:
        lib = library()
    except (OSError, AttributeError):
        return False
    handle = pointer(producer)
    if not handle or lib.rd_kafka_version() != confluent_kafka.libversion()[1]:
        return False
    return bool(lib.rd_kafka_opaque(handle) == id(producer) and lib.rd_kafka_type(handle) == _PRODUCER)


def connect(producer: Any, topic: str, partitions: Iterable[int], timeout: float) -> None:
    """Connects to the leaders of these partitions, by reading the partition's ends from each.

    librdkafka has no other way. Failures are ignored; sending the rows meets them again. timeout: seconds for each
    partition."""
    if not is_known(producer):
        return
    low, high = ctypes.c_int64(), ctypes.c_int64()
    for partition in partitions:
        library().rd_kafka_query_watermark_offsets(
            pointer(producer), topic.encode(), partition, ctypes.byref(low), ctypes.byref(high), int(timeout * 1000)
        )
