"""The versions of the jobspec's format: how values become JSON, and which versions a job reads. Standard library only.

Operator and job are upgraded one after the other, and images of users stay behind (docs/compatibility.md). So a jobspec
has the lowest version that says everything that it contains: a field that a later version has added is left out as long
as it has its default, and an older job reads what remains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, field, fields
from typing import Any, TypeVar

NEWEST = 6  # increased when a field is added, once in a release
OLDEST = 5  # that a job still reads: that of the release two minor versions before

ADDED = "added"  # in a field's metadata: the version of the format that has added it
_REMEDY = "use images of operator and job whose releases are compatible (docs/compatibility.md)"
T = TypeVar("T")


def added(version: int, default: T) -> T:
    """A field that this version of the format has added. default: immutable, and what earlier versions do."""
    value: T = field(default=default, metadata={ADDED: version})
    return value


def values_of(value: Any) -> Any:
    """The JSON values of a dataclass, as dataclasses.asdict(), without added fields that have their defaults."""
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: values_of(getattr(value, f.name)) for f in _written(value)}
    if isinstance(value, Mapping):
        return {key: values_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [values_of(item) for item in value]
    return value


def version_of(value: Any) -> int:
    """The lowest version of the format that has all fields of a dataclass which are not at their defaults."""
    return max(_versions(value), default=OLDEST)


def require_readable(version: object) -> None:
    """Raises ValueError unless this job reads jobspecs of the version."""
    if not isinstance(version, int) or not OLDEST <= version <= NEWEST:
        readable = f"version {NEWEST}" if OLDEST == NEWEST else f"versions {OLDEST} to {NEWEST}"
        raise ValueError(f"the jobspec has version {version}, and this job reads {readable}; {_REMEDY}")


def checked(kind: Any, data: Mapping[str, Any], name: str | None = None, path: str = "") -> Mapping[str, Any]:
    """The JSON object of a dataclass, which is data itself or its field `name`. Raises ValueError unless its keys are
    the fields; added ones may be missing. path: of data in the jobspec."""
    value: Mapping[str, Any] = data if name is None else data[name]
    prefix = path if name is None else f"{path}{name}."
    known = {f.name for f in fields(kind)}
    needed = {f.name for f in fields(kind) if ADDED not in f.metadata}
    for problem, names in (("unknown", value.keys() - known), ("missing", needed - value.keys())):
        if names:
            listed = ", ".join(f"{prefix}{n}" for n in sorted(names))
            raise ValueError(f"the jobspec has {problem} fields: {listed}; {_REMEDY}")
    return value


def unknown_sink(kind: object, known: str) -> ValueError:
    """A jobspec has a sink of a kind that this job does not have."""
    return ValueError(f"the jobspec has a sink of kind {kind!r}, and this job has {known}; {_REMEDY}")


def _versions(value: Any) -> Iterator[int]:
    if hasattr(value, "__dataclass_fields__"):
        for f in _written(value):
            yield f.metadata.get(ADDED, OLDEST)
            yield from _versions(getattr(value, f.name))


def _written(value: Any) -> Iterator[Field[Any]]:
    return (f for f in fields(value) if ADDED not in f.metadata or getattr(value, f.name) != f.default)
