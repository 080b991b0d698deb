"""The small types of the spec: durations, sizes, names.

Each is text of a pattern, so that the spec and the CRD's schema check the same. The values stay as the user wrote them;
the functions here convert them to numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, StringConstraints
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ackwright.api.checks import Check


@dataclass(frozen=True)
class Pattern:
    """The form of a text, with the message and the remedy for other text. Stands in `Annotated[str, ...]`."""

    regex: str
    message: str
    remedy: str
    # For the CRD only: the length that the pattern implies. The API server bounds the cost of its checks by it.
    longest: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # pydantic's own regex engine agrees with the API server's. In Python's, $ also matches before a newline.
        form = core_schema.custom_error_schema(
            core_schema.str_schema(pattern=self.regex),
            custom_error_type="pattern",
            custom_error_message=self.message,
            custom_error_context={"remedy": self.remedy},
        )
        return core_schema.chain_schema([handler(source), form])

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        length = {} if self.longest is None else {"maxLength": self.longest}
        return {**handler(schema), **length, "pattern": self.regex}


_NAME_FORM = "must be lower-case letters, digits and '-', begin and end with a letter or digit, and have at most"
_NOT_EMPTY = Pattern(r"\S", "must not be empty", "write a value, or remove the field")

DURATION = Pattern(
    "^(0|[1-9][0-9]{0,8})(ms|s|m|h)$",
    "must be a number and one of ms, s, m, h",
    "write for instance 500ms, 1s or 5m",
    longest=11,
)
MEMORY = Pattern(
    "^[1-9][0-9]{0,6}[mg]$",
    "must be a number and m (MiB) or g (GiB), as the JVM writes it",
    "write for instance 512m or 1g",
    longest=8,
)
SIZE = Pattern(
    "^[1-9][0-9]{0,6}(Ki|Mi|Gi|Ti)$",
    "must be a number and one of Ki, Mi, Gi, Ti",
    "write for instance 512Mi or 1Gi",
    longest=9,
)
# A StatefulSet's name and an 11 character hash share a label of at most 63 characters.
# Without dots <namespace>.<name>, the consumer group, is unambiguous.
NAME = Pattern("^[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?$", f"{_NAME_FORM} 52 characters", "choose another name")


def _is_large_enough(memory: str) -> bool:
    # Spark's UnifiedMemoryManager refuses to start below 1.5 times the 300 MiB that it reserves.
    return memory_mib(memory) >= 512


_LAST_PORT = 65535


def _is_address(server: str) -> bool:
    host, colon, port = server.strip().rpartition(":")
    is_host = re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host)
    return bool(colon and is_host and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) <= _LAST_PORT)


def _wrong_address(servers: str) -> str:
    wrong = next(server for server in servers.split(",") if not _is_address(server))
    port = wrong.rpartition(":")[2]
    why = f": a port is 1 to {_LAST_PORT}" if _is_address(f"{wrong.removesuffix(port)}1") and port.isdigit() else ""
    return f", and {wrong.strip()!r} is not{why}"


# The backslashes are doubled because they stand in a CEL string.
_CEL_PORT = "0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_CEL_ADDRESS = rf"\\s*([A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\]):{_CEL_PORT}\\s*"

Duration = Annotated[str, DURATION]
Memory = Annotated[
    str,
    MEMORY,
    Check(
        _is_large_enough,
        "must be at least 512m, or Spark refuses to start",
        "write 512m or more",
        cel="!self.matches('^[1-9][0-9]{0,6}m$') || int(self.substring(0, size(self) - 1)) >= 512",
    ),
]
Size = Annotated[str, SIZE]
Cpu = Annotated[
    str,
    Pattern(
        "^([1-9][0-9]{0,5}m|[1-9][0-9]{0,2})$",
        "must be a number of cores, or of thousandths of a core with m",
        "write for instance 500m or 2",
        longest=7,
    ),
]
TopicName = Annotated[
    str,
    Pattern(
        "^[a-zA-Z0-9._-]{1,249}$",
        "must be 1 to 249 of the characters a-z A-Z 0-9 . _ -, as Kafka requires",
        "choose another topic name",
        longest=249,
    ),
    Check(
        lambda topic: topic not in {".", ".."},
        "must not be '.' or '..', as Kafka requires",
        "choose another topic name",
        cel="!(self in ['.', '..'])",
    ),
]
GroupId = Annotated[
    str,
    Pattern(
        "^[a-zA-Z0-9._-]{1,200}$",
        "must be 1 to 200 of the characters a-z A-Z 0-9 . _ -",
        "choose another group id",
        longest=200,
    ),
]
Name = Annotated[str, NAME]
Namespace = Annotated[
    str, Pattern("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", f"{_NAME_FORM} 63 characters", "choose another namespace")
]
SecretName = Annotated[
    str,
    Pattern(
        "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$",
        "must be the name of a Secret: lower-case letters, digits, '-' and '.'",
        "name a Secret of the same namespace",
        longest=253,
    ),
]
SecretKey = Annotated[
    str,
    Pattern(
        "^[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,252}$",
        "must be a key of a Secret: letters, digits, '-', '_' and '.'",
        "name a key of the Secret",
        longest=253,
    ),
]
ModuleName = Annotated[
    str,
    StringConstraints(max_length=255),
    Pattern(
        r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$",
        "must be the dotted name of a Python module",
        "write for instance my_app.transform",
    ),
]
FunctionName = Annotated[
    str,
    StringConstraints(max_length=255),
    Pattern("^[A-Za-z_][A-Za-z0-9_]*$", "must be the name of a Python function", "write for instance transform"),
]
Text = Annotated[str, StringConstraints(max_length=1 << 16), _NOT_EMPTY]
Line = Annotated[str, StringConstraints(max_length=1024), _NOT_EMPTY]
MAX_BOOTSTRAP_SERVERS = 16
BootstrapServers = Annotated[
    str,
    StringConstraints(max_length=4096),
    Check(
        lambda servers: all(map(_is_address, servers.split(","))),
        "must be host:port, several separated by commas",
        "write for instance kafka-0:9092,kafka-1:9092",
        cel=f"self.matches('^{_CEL_ADDRESS}(,{_CEL_ADDRESS})*$')",
        detail=_wrong_address,
    ),
    # Kafka's clients start a thread for each address; they learn all other brokers from any of these.
    Check(
        lambda servers: servers.count(",") < MAX_BOOTSTRAP_SERVERS,
        f"must have at most {MAX_BOOTSTRAP_SERVERS} addresses",
        "name some brokers; the clients learn the others from them",
        cel=f"self.split(',').size() <= {MAX_BOOTSTRAP_SERVERS}",
        detail=lambda servers: f", not {servers.count(',') + 1}",
    ),
]
Host = Annotated[
    str,
    Pattern(
        "^[A-Za-z0-9._:-]{1,253}$",
        "must be the name or the address of a host",
        "write for instance db.example.com",
        longest=253,
    ),
]
# Without a login, which would be in every log: credentials are in a Secret.
RegistryUrl = Annotated[
    str,
    StringConstraints(max_length=1024),
    Pattern(
        "^https?://([A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$",
        "must be http:// or https:// with a host, and without a login, a query and a fragment",
        "write for instance https://registry.example.com:8081",
    ),
]
Subject = Annotated[
    str,
    Pattern(
        "^[^\\s\\x00-\\x1f][^\\x00-\\x1f]{0,254}$",
        "must be the name of a subject: at most 255 characters, no control characters",
        "name a subject of the registry",
        longest=255,
    ),
]
RecordSchema = Annotated[
    str,
    StringConstraints(max_length=1 << 16),
    Pattern("\\S", "must not be empty", "write the schema, or remove the field"),
]
Port = Annotated[int, Field(strict=True, ge=1, le=65_535)]
# Quoted in every statement, so that the case counts. PostgreSQL cuts longer names off.
Identifier = Annotated[
    str,
    Pattern(
        "^[A-Za-z_][A-Za-z0-9_$-]{0,62}$",
        "must be a name of at most 63 letters, digits, '_', '$' and '-' that begins with a letter or '_'",
        "choose another name, or give the table a view with such names",
        longest=63,
    ),
]
# Of columns of a transform, which may have any character: those that the store takes, without control characters.
_CONTROL = "\\x00-\\x1f\\x7f-\\x9f"
_RENAME = "give the column another name in the transform"
PostgresColumn = Annotated[
    str,
    Pattern(f"^[^{_CONTROL}]{{1,63}}$", "must be a name without control characters", _RENAME, longest=63),
    Check(
        lambda name: len(name.encode()) <= 63,
        "must have at most 63 bytes in UTF-8, because PostgreSQL cuts longer names off",
        _RENAME,
        cel="size(bytes(self)) <= 63",
        detail=lambda name: f", not {len(name.encode())}",
    ),
]
DeltaColumn = Annotated[
    str,
    Pattern(
        f"^[^{_CONTROL} ,;{{}}()=]{{1,255}}$",
        "must be a name of at most 255 characters, without a space, ,;{}()= and control characters",
        _RENAME,
        longest=255,
    ),
]
IcebergColumn = Annotated[
    str,
    Pattern(
        f"^[^{_CONTROL}.]{{1,255}}$",
        "must be a name of at most 255 characters, without a dot and control characters",
        _RENAME,
        longest=255,
    ),
]
S3Endpoint = Annotated[
    str,
    Pattern(
        "^https?://[A-Za-z0-9._:-]{1,253}$",
        "must be http:// or https:// with a host, and a port if needed",
        "write for instance https://minio.example.com:9000",
        longest=261,
    ),
]
Region = Annotated[
    str,
    Pattern("^[a-z0-9-]{1,63}$", "must be the name of a region", "write for instance eu-central-1", longest=63),
]
Properties = Annotated[Mapping[str, Annotated[str, StringConstraints(max_length=4096)]], Field(max_length=100)]
# Strict: the API server, too, refuses "6" and true where the schema says integer.
Count = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
Seconds = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Offsets = Annotated[int, Field(strict=True, ge=1, le=2**63 - 1)]
Switch = Annotated[bool, Field(strict=True)]
MaxFraction = Annotated[float, Field(ge=0.0001, le=1)]

_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def duration_ms(duration: Duration) -> int:
    """A duration (500ms, 1s, 5m, 2h) in milliseconds. Raises ValueError for anything else."""
    match = re.fullmatch(DURATION.regex, duration)
    if match is None:
        raise ValueError(f"not a duration: {duration!r}")
    return int(match[1]) * _MILLISECONDS[match[2]]


def memory_mib(memory: Memory) -> int:
    """A JVM's memory (512m, 1g) in MiB. Raises ValueError for anything else."""
    if re.fullmatch(MEMORY.regex, memory) is None:
        raise ValueError(f"not an amount of memory: {memory!r}")
    return int(memory[:-1]) * (1024 if memory[-1] == "g" else 1)


def size_kib(size: Size) -> int:
    """A volume's size (512Mi, 1Gi) in KiB. Raises ValueError for anything else."""
    match = re.fullmatch(SIZE.regex, size)
    if match is None:
        raise ValueError(f"not a size: {size!r}")
    return int(size[:-2]) << 10 * ("Ki", "Mi", "Gi", "Ti").index(match[1])


# By unit: how many of it make one of the next larger unit.
_LARGER = {
    **{"m": (1000, ""), "": (1000, "k"), "k": (1000, "M"), "M": (1000, "G"), "G": (1000, "T")},
    **{"Ki": (1024, "Mi"), "Mi": (1024, "Gi"), "Gi": (1024, "Ti"), "Ti": (1024, "Pi"), "Pi": (1024, "Ei")},
}


def canonical(quantity: str) -> str:
    """A quantity as the API server writes it (1024Mi as 1Gi, 2000m as 2), so that what is read equals what was written.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    match = re.fullmatch("([0-9]+)(m|k|M|G|Ki|Mi|Gi|Ti|Pi)?", quantity)
    if match is None:
        return quantity
    number, unit = int(match[1]), match[2] or ""
    while unit in _LARGER and number and number % _LARGER[unit][0] == 0:
        factor, unit = _LARGER[unit]
        number //= factor
    return f"{number}{unit}"
