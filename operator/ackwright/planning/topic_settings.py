"""The settings of Kafka's topics and their types, for spec.topics[].config. Pure.

Names and types are those of Kafka 3.9 to 4.1 (https://kafka.apache.org/documentation/#topicconfigs);
tests/integration/topics/test_topic_settings.py compares them with a broker. A name that resembles none of these may be
of another broker, and passes: the broker has the last word.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import islice

from ackwright.api.checks import Broken, Validation
from ackwright.api.spec import DeliveryPipeline


class Kind(StrEnum):
    """The type of a setting."""

    INT = "a whole number of at most 32 bits"
    LONG = "a whole number"
    DOUBLE = "a number"
    BOOLEAN = "true or false"
    TEXT = "text"


_LONG = (
    "delete.retention.ms file.delete.delay.ms flush.messages flush.ms local.retention.bytes local.retention.ms "
    "max.compaction.lag.ms message.timestamp.after.max.ms message.timestamp.before.max.ms "
    "message.timestamp.difference.max.ms min.compaction.lag.ms retention.bytes retention.ms segment.jitter.ms "
    "segment.ms"
)
_INT = (
    "compression.gzip.level compression.lz4.level compression.zstd.level index.interval.bytes max.message.bytes "
    "min.insync.replicas segment.bytes segment.index.bytes"
)
_BOOLEAN = (
    "message.downconversion.enable preallocate remote.log.copy.disable remote.log.delete.on.disable "
    "remote.storage.enable unclean.leader.election.enable"
)
_TEXT = (
    "cleanup.policy compression.type follower.replication.throttled.replicas leader.replication.throttled.replicas "
    "message.format.version message.timestamp.type"
)
SETTINGS: Mapping[str, Kind] = {
    **dict.fromkeys(_LONG.split(), Kind.LONG),
    **dict.fromkeys(_INT.split(), Kind.INT),
    **dict.fromkeys(_BOOLEAN.split(), Kind.BOOLEAN),
    **dict.fromkeys(_TEXT.split(), Kind.TEXT),
    "min.cleanable.dirty.ratio": Kind.DOUBLE,
}
# These have their own validations.
_VALIDATED = ("cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable")

# A comparison takes 0.2 ms, and a spec has up to 10,000 names. The broker has the last word on the others.
_LONGEST_NAME = 80  # characters
_COMPARED = 100  # different names of one pipeline

_BITS = {Kind.INT: 32, Kind.LONG: 64}
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES = {"b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}
_BYTES |= {"ki": 2**10, "kib": 2**10, "mi": 2**20, "mib": 2**20, "gi": 2**30, "gib": 2**30}


def fits(kind: Kind, value: str) -> bool:
    """Whether a broker reads the value as of this type."""
    text = value.strip()
    match kind:
        case Kind.INT | Kind.LONG:
            largest = 2 ** (_BITS[kind] - 1)
            return bool(re.fullmatch(r"[+-]?[0-9]{1,19}", text)) and -largest <= int(text) < largest
        case Kind.DOUBLE:
            return bool(re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?", text))
        case Kind.BOOLEAN:
            return text.lower() in ("true", "false")
        case Kind.TEXT:
            return True


def resembling(name: str) -> str | None:
    """The setting of Kafka for which this name was probably meant; None if it is one, or resembles none."""
    if name in SETTINGS or len(name) > _LONGEST_NAME:
        return None
    nearest = difflib.get_close_matches(_plain(name), _SETTINGS_BY_PLAIN, n=1, cutoff=0.9)
    return _SETTINGS_BY_PLAIN[nearest[0]] if nearest else None


def _plain(name: str) -> str:
    return re.sub(r"[._\-\s]", "", name.lower())


_SETTINGS_BY_PLAIN = {_plain(setting): setting for setting in SETTINGS}


def _number_of(name: str, value: str) -> int | None:
    """The number for which a value with a unit stands: 7d of retention.ms is 604800000."""
    match = re.fullmatch(r"\s*([0-9]{1,12})\s*([A-Za-z]+)\s*", value)
    units = _MILLISECONDS if name.endswith(".ms") else _BYTES if name.endswith(".bytes") else {}
    if match is None or match[2].lower() not in units:
        return None
    return int(match[1]) * units[match[2].lower()]


def _settings(pipeline: DeliveryPipeline) -> Iterator[tuple[str, str, str]]:
    """Every declared setting: the path of its field, its name, its value."""
    for i, topic in enumerate(pipeline.spec.topics):
        for name, value in topic.config.items():
            yield f"spec.topics[{i}].config[{name!r}]", name, value


def _misspelt(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    unknown = dict.fromkeys(name for _, name, _ in _settings(pipeline) if name not in SETTINGS)
    meant = {name: nearest for name in islice(unknown, _COMPARED) if (nearest := resembling(name))}
    for path, name, _ in _settings(pipeline):
        if nearest := meant.get(name):
            yield Broken(path, remedy=f"did you mean {nearest}?")


def _wrong_type(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    for path, name, value in _settings(pipeline):
        kind = SETTINGS.get(name)
        if kind is None or name in _VALIDATED or fits(kind, value):
            continue
        number = _number_of(name, value)
        remedy = f'write "{number}"' if number is not None else ""
        yield Broken(path, value, f" {kind}", remedy)


_NOT_IN_CEL = "brokers of other versions and vendors have other settings, and their table would be too large for CEL"

SETTING_VALIDATIONS: tuple[Validation[DeliveryPipeline], ...] = (
    Validation(
        "Kafka's topics have no such setting",
        "correct its name",
        ("spec.topics",),
        _misspelt,
        not_in_cel=_NOT_IN_CEL,
    ),
    Validation(
        "Kafka takes for this setting only",
        "write such a value, or remove it",
        ("spec.topics",),
        _wrong_type,
        not_in_cel=_NOT_IN_CEL,
    ),
)
