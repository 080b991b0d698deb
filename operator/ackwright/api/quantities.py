"""The small types of the spec: durations, sizes, names. Each is a pattern, so that the spec and the CRD's schema check the same.

The values stay the strings that the user wrote; the functions here turn them into numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

_DURATION = "^(0|[1-9][0-9]{0,8})(ms|s|m|h)$"
_MEMORY = "^[1-9][0-9]{0,6}[mg]$"
_SIZE = "^[1-9][0-9]{0,6}(Ki|Mi|Gi|Ti)$"
_CPU = "^([1-9][0-9]{0,5}m|[1-9][0-9]{0,2})$"
_TOPIC = "^[a-zA-Z0-9._-]{1,249}$"
_GROUP = "^[a-zA-Z0-9._-]{1,200}$"
_NAME = "^[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?$"
_NAMESPACE = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_OBJECT = "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
_DATA_KEY = "^[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,252}$"
_MODULE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
_FUNCTION = "^[A-Za-z_][A-Za-z0-9_]*$"
_TEXT = r"\S"

_NAME_RULE = "must be lower-case letters, digits and '-', begin and end with a letter or digit, and have at most"

# What to tell a user whose value does not match: the rule, the remedy.
EXPLAINED: dict[str, tuple[str, str]] = {
    _DURATION: ("must be a number and one of ms, s, m, h", "write for instance 500ms, 1s or 5m"),
    _MEMORY: ("must be a number and m (MiB) or g (GiB), as the JVM has it", "write for instance 512m or 1g"),
    _SIZE: ("must be a number and one of Ki, Mi, Gi, Ti", "write for instance 512Mi or 1Gi"),
    _CPU: ("must be a number of cores, or of thousandths of a core with m", "write for instance 500m or 2"),
    _TOPIC: ("must be 1 to 249 of the characters a-z A-Z 0-9 . _ -, as Kafka demands", "choose another topic name"),
    _GROUP: ("must be 1 to 200 of the characters a-z A-Z 0-9 . _ -", "choose another group id"),
    # A StatefulSet's name and an 11 character hash share a label of at most 63; without dots <namespace>.<name> is unambiguous.
    _NAME: (f"{_NAME_RULE} 52 characters", "choose another name"),
    _NAMESPACE: (f"{_NAME_RULE} 63 characters", "choose another namespace"),
    _OBJECT: (
        "must be the name of a Secret: lower-case letters, digits, '-' and '.'",
        "name a Secret of the same namespace",
    ),
    _DATA_KEY: ("must be a key of a Secret: letters, digits, '-', '_' and '.'", "name a key of the Secret"),
    _MODULE: ("must be the dotted name of a Python module", "write for instance my_app.transform"),
    _FUNCTION: ("must be the name of a Python function", "write for instance transform"),
    _TEXT: ("must not be empty", "write a value, or leave the field out"),
}


def _no_dots(topic: str) -> str:
    if topic in {".", ".."}:
        raise PydanticCustomError(
            "topic", "must not be '.' or '..', as Kafka demands", {"remedy": "choose another topic name"}
        )
    return topic


def _enough(memory: str) -> str:
    # UnifiedMemoryManager refuses to start below 1.5 times the 300 MiB that Spark reserves.
    if memory_mib(memory) < 512:
        raise PydanticCustomError(
            "memory", "must be at least 512m, or Spark refuses to start", {"remedy": "write 512m or more"}
        )
    return memory


def _brokers(servers: str) -> str:
    for server in servers.split(","):
        host, colon, port = server.strip().rpartition(":")
        plain = re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host)
        if not (colon and plain and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 65536):
            raise PydanticCustomError(
                "brokers",
                "must be host:port, several separated by commas, and {server} is not",
                {"server": repr(server.strip()), "remedy": "write for instance kafka-0:9092,kafka-1:9092"},
            )
    return servers


def _at_most(characters: int) -> Any:
    """For the CRD's schema alone: what the pattern implies, spelt out, because the API server bounds the cost of its rules by it."""
    return Field(json_schema_extra={"maxLength": characters})


Duration = Annotated[str, StringConstraints(pattern=_DURATION), _at_most(11)]
Memory = Annotated[str, StringConstraints(pattern=_MEMORY), _at_most(8), AfterValidator(_enough)]
Size = Annotated[str, StringConstraints(pattern=_SIZE), _at_most(9)]
Cpu = Annotated[str, StringConstraints(pattern=_CPU), _at_most(7)]
TopicName = Annotated[str, StringConstraints(pattern=_TOPIC), _at_most(249), AfterValidator(_no_dots)]
GroupId = Annotated[str, StringConstraints(pattern=_GROUP), _at_most(200)]
Name = Annotated[str, StringConstraints(pattern=_NAME)]
Namespace = Annotated[str, StringConstraints(pattern=_NAMESPACE)]
SecretName = Annotated[str, StringConstraints(pattern=_OBJECT), _at_most(253)]
SecretKey = Annotated[str, StringConstraints(pattern=_DATA_KEY), _at_most(253)]
ModuleName = Annotated[str, StringConstraints(pattern=_MODULE, max_length=255)]
FunctionName = Annotated[str, StringConstraints(pattern=_FUNCTION, max_length=255)]
Text = Annotated[str, StringConstraints(pattern=_TEXT, max_length=1 << 16)]
Line = Annotated[str, StringConstraints(pattern=_TEXT, max_length=1024)]
BootstrapServers = Annotated[str, StringConstraints(max_length=4096), AfterValidator(_brokers)]
Properties = Annotated[Mapping[str, Annotated[str, StringConstraints(max_length=4096)]], Field(max_length=100)]
# Strict: the API server, too, refuses "6" and true where the schema says integer.
Count = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
Offsets = Annotated[int, Field(strict=True, ge=1, le=2**63 - 1)]
Switch = Annotated[bool, Field(strict=True)]

_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def duration_ms(duration: Duration) -> int:
    """A duration (500ms, 1s, 5m, 2h) in milliseconds. Raises ValueError for anything else."""
    found = re.fullmatch(_DURATION, duration)
    if found is None:
        raise ValueError(f"not a duration: {duration!r}")
    return int(found[1]) * _MILLISECONDS[found[2]]


def memory_mib(memory: Memory) -> int:
    """A JVM's memory (512m, 1g) in MiB. Raises ValueError for anything else."""
    if re.fullmatch(_MEMORY, memory) is None:
        raise ValueError(f"not an amount of memory: {memory!r}")
    return int(memory[:-1]) * (1024 if memory[-1] == "g" else 1)


def size_kib(size: Size) -> int:
    """A volume's size (512Mi, 1Gi) in KiB. Raises ValueError for anything else."""
    found = re.fullmatch(_SIZE, size)
    if found is None:
        raise ValueError(f"not a size: {size!r}")
    return int(size[:-2]) << 10 * ("Ki", "Mi", "Gi", "Ti").index(found[1])


_LARGER = {
    **{"m": (1000, ""), "": (1000, "k"), "k": (1000, "M"), "M": (1000, "G")},
    **{"Ki": (1024, "Mi"), "Mi": (1024, "Gi"), "Gi": (1024, "Ti"), "Ti": (1024, "Pi"), "Pi": (1024, "Ei")},
}


def canonical(quantity: str) -> str:
    """A quantity as the API server writes it (1024Mi as 1Gi, 2000m as 2): what is read back equals what was written.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    found = re.fullmatch("([0-9]+)(m|k|M|Ki|Mi|Gi|Ti|Pi)?", quantity)
    if found is None:
        return quantity
    number, unit = int(found[1]), found[2] or ""
    while unit in _LARGER and number and number % _LARGER[unit][0] == 0:
        factor, unit = _LARGER[unit]
        number //= factor
    return f"{number}{unit}"
