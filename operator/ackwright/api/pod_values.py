"""The small types of a pod template: names, keys, paths and quantities of Kubernetes, and what of them is reserved.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from ackwright.api.checks import Check, literal
from ackwright.api.quantities import Pattern

# Variables that the job, Spark, the JVM, Python or the linker of the image read: with other values the guarantee, the
# results or the code of the job would differ.
ENV_PREFIXES = (
    *("ACKWRIGHT_", "GLIBC_", "HADOOP_", "JAVA_", "JDK_", "KUBERNETES_", "LC_", "LD_", "POD_"),
    *("PYSPARK_", "PYTHON", "SPARK_", "_JAVA_"),
)
ENV_NAMES = ("CLASSPATH", "HOME", "LANG", "LANGUAGE", "PATH", "TZ")

# Directories below which a volume can be mounted: nothing of the image or of Ackwright is there, apart from the last.
MOUNT_ROOTS = ("/data/", "/mnt/", "/opt/", "/srv/")
OWN_DIRECTORY = "/opt/ackwright"

# Of keys of labels and annotations: those of Ackwright, of Spark, and of Kubernetes' controllers.
_OWN_PREFIXES = ("ackwright.io/", "spark-")
LABELS_OF_KUBERNETES = (
    *("app.kubernetes.io/component", "app.kubernetes.io/part-of", "app.kubernetes.io/version"),
    "kueue.x-k8s.io/queue-name",
)
ANNOTATIONS_OF_KUBERNETES = ("cluster-autoscaler.kubernetes.io/safe-to-evict",)
_OF_CONTROLLERS = ("controller-revision-hash", "controller-uid", "job-name", "pod-template-hash")
_OWN_VOLUMES = ("checkpoint", "job", "no-token", "shm", "tmp")
_OWN_VOLUME_PREFIXES = ("secret-", "spark-")
_OWN_CONTAINERS = ("audit", "driver", "executor")
PROGRESS_PORT = 8090  # of a driver's pod, whose network its sidecars share

_DOMAIN = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_PART = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = rf"^({_DOMAIN}/)?{_PART}$"

LabelKey = Annotated[
    str,
    Pattern(
        _KEY,
        "must be a key: at most 63 letters, digits, '-', '_' and '.', after an optional domain and /",
        "write for instance example.com/pool",
        longest=317,
    ),
]
LabelValue = Annotated[
    str,
    Pattern(
        rf"^({_PART})?$",
        "must be a value of labels: at most 63 letters, digits, '-', '_' and '.'",
        "shorten it, or use an annotation",
        longest=63,
    ),
]
DnsLabel = Annotated[
    str,
    Pattern(
        "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "must be at most 63 lower-case letters, digits and '-', and begin and end with a letter or digit",
        "choose another name",
        longest=63,
    ),
]
DnsName = Annotated[
    str,
    Pattern(
        "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$",
        "must be at most 253 lower-case letters, digits, '-' and '.', and begin and end with a letter or digit",
        "name an object of the same namespace",
        longest=253,
    ),
]
Quantity = Annotated[
    str,
    Pattern(
        "^[1-9][0-9]{0,8}(m|k|M|G|Ki|Mi|Gi|Ti)?$",
        "must be a whole number and at most one of m, k, M, G, Ki, Mi, Gi, Ti",
        "write for instance 500m, 2 or 10Gi",
        longest=11,
    ),
]
Group = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
FileMode = Annotated[int, Field(strict=True, ge=0, le=0o777)]
Argument = Annotated[str, StringConstraints(max_length=4096)]


def _starts_with(names: Iterable[str]) -> str:
    return " || ".join(f"self.startsWith({literal(name)})" for name in names)


def _in(names: Iterable[str]) -> str:
    return f"[{', '.join(literal(name) for name in names)}]"


VariableName = Annotated[
    str,
    Pattern(
        "^[A-Za-z_][A-Za-z0-9_]{0,252}$",
        "must be letters, digits and '_', and begin with a letter or '_'",
        "choose another name",
        longest=253,
    ),
]
EnvName = Annotated[
    VariableName,
    Check(
        lambda name: name not in ENV_NAMES and not name.startswith(ENV_PREFIXES),
        "is a variable of the job's own, of Spark, Java or Python, on which the guarantee rests",
        "choose another name; settings of Spark belong into spec.spark.conf",
        cel=f"!(self in {_in(ENV_NAMES)} || {_starts_with(ENV_PREFIXES)})",
    ),
]


def _may_precede_reserved(prefix: str) -> bool:
    return any(prefix.startswith(reserved) or reserved.startswith(prefix) for reserved in (*ENV_PREFIXES, *ENV_NAMES))


# The keys of a Secret or ConfigMap can change at any time: only a prefix keeps its variables apart from reserved ones.
EnvPrefix = Annotated[
    str,
    Pattern(
        "^[A-Za-z][A-Za-z0-9_]{0,61}_$",
        "must be letters, digits and '_', begin with a letter and end with '_'",
        "write for instance APP_",
        longest=63,
    ),
    Check(
        lambda prefix: not _may_precede_reserved(prefix),
        "begins variables of the job's own, of Spark, Java or Python, on which the guarantee rests",
        "write for instance APP_",
        cel=(
            f"!({_starts_with(ENV_PREFIXES)} || "
            f"{_in((*ENV_PREFIXES, *ENV_NAMES))}.exists(reserved, reserved.startsWith(self)))"
        ),
    ),
]
_ABSOLUTE = Pattern(
    "^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$",
    "must be an absolute path of letters, digits, '.', '_' and '-'",
    "write for instance /mnt/data",
    longest=512,
)
MountPath = Annotated[
    str,
    _ABSOLUTE,
    StringConstraints(max_length=512),
    Check(
        lambda path: path.startswith(MOUNT_ROOTS) and not f"{path}/".startswith(f"{OWN_DIRECTORY}/"),
        f"must be below {', '.join(root.rstrip('/') for root in MOUNT_ROOTS)}, and not {OWN_DIRECTORY}",
        "write for instance /mnt/data",
        cel=f"({_starts_with(MOUNT_ROOTS)}) && !(self + '/').startsWith('{OWN_DIRECTORY}/')",
    ),
]
SidecarPath = Annotated[
    str,
    _ABSOLUTE,
    StringConstraints(max_length=512),
    Check(
        lambda path: not f"{path}/".startswith(("/var/run/", "/run/")) and path != "/var",
        "must not be in /var/run, where Kubernetes mounts the identity of a pod",
        "write for instance /mnt/data",
        cel="!((self + '/').startsWith('/var/run/') || (self + '/').startsWith('/run/') || self == '/var')",
    ),
]
RelativePath = Annotated[
    str,
    Pattern(
        "^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$",
        "must be a relative path without '..'",
        "write for instance conf/app.properties",
        longest=512,
    ),
    StringConstraints(max_length=512),
]
VolumeName = Annotated[
    DnsLabel,
    Check(
        lambda name: name not in _OWN_VOLUMES and not name.startswith(_OWN_VOLUME_PREFIXES),
        "is the name of a volume of Ackwright or Spark",
        "choose another name",
        cel=f"!(self in {_in(_OWN_VOLUMES)} || {_starts_with(_OWN_VOLUME_PREFIXES)})",
    ),
]
ContainerName = Annotated[
    DnsLabel,
    Check(
        lambda name: name not in _OWN_CONTAINERS and not name.startswith("spark-"),
        "is the name of a container of Ackwright or Spark",
        "choose another name",
        cel=f"!(self in {_in(_OWN_CONTAINERS)} || self.startsWith('spark-'))",
    ),
]
ContainerPort = Annotated[
    Annotated[int, Field(strict=True, ge=1, le=65_535)],
    Check(
        lambda port: port != PROGRESS_PORT,
        f"is {PROGRESS_PORT}, on which the driver reports its progress in the same pod",
        "choose another port",
        cel=f"self != {PROGRESS_PORT}",
    ),
]
PriorityClass = Annotated[
    DnsName,
    Check(
        lambda name: not name.startswith("system-"),
        "is a class of Kubernetes' own components",
        "name a PriorityClass that the platform made for jobs",
        cel="!self.startsWith('system-')",
    ),
]


def _wrong_keys(keys: Iterable[str]) -> list[str]:
    return [key for key in keys if not re.fullmatch(_KEY.strip("^$"), key)]


def _own_keys(keys: Iterable[str], allowed: Sequence[str], more: Sequence[str]) -> list[str]:
    """The keys that belong to Ackwright, Spark or Kubernetes."""
    return [
        key
        for key in keys
        if key not in allowed and (key.startswith((*_OWN_PREFIXES, *more)) or key in _OF_CONTROLLERS or _in_domain(key))
    ]


def _in_domain(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and f".{domain}".endswith((".kubernetes.io", ".k8s.io"))


def _shown(find: Callable[[Iterable[str]], list[str]]) -> Callable[[Mapping[str, Any]], str]:
    return lambda entries: f", and {', '.join(map(repr, find(entries)[:3]))} does not fit"


# In CEL a regular expression over the keys of a map would cost too much: the API server does not know their length.
KEYS = Check[Mapping[str, Any]](
    lambda entries: not _wrong_keys(entries),
    "must have keys of at most 63 letters, digits, '-', '_' and '.', after an optional domain and /",
    "write for instance example.com/pool",
    cel="self.all(key, size(key) > 0 && size(key) <= 317 && !key.contains(' '))",
    detail=_shown(_wrong_keys),
)


def not_own(allowed: Sequence[str], more: Sequence[str] = ()) -> Check[Mapping[str, Any]]:
    """That no key belongs to Ackwright, Spark or Kubernetes, apart from the allowed ones. more: further prefixes."""

    def find(keys: Iterable[str]) -> list[str]:
        return _own_keys(keys, allowed, more)

    starts = " || ".join(f"key.startsWith({literal(prefix)})" for prefix in (*_OWN_PREFIXES, *more))
    domain = "key.contains('kubernetes.io/') || key.contains('k8s.io/')"
    return Check(
        lambda entries: not find(entries),
        "must not have keys of Ackwright, Spark and Kubernetes, which select and secure pods",
        f"remove them; of Kubernetes' keys these are allowed: {', '.join(allowed)}",
        cel=f"self.all(key, key in {_in(allowed)} || !({starts} || key in {_in(_OF_CONTROLLERS)} || {domain}))",
        detail=_shown(find),
    )


def resource_names(names: Sequence[str], why: str) -> Check[Mapping[str, Any]]:
    """That a map of resources has only these and extended ones (nvidia.com/gpu)."""

    def find(keys: Iterable[str]) -> list[str]:
        return [key for key in keys if key not in names and not re.fullmatch(f"{_DOMAIN}/{_PART}", key)]

    return Check(
        lambda entries: not find(entries),
        f"may have {', '.join(names)} and extended resources (nvidia.com/gpu)",
        why,
        cel=f"self.all(key, key in {_in(names)} || key.contains('/'))",
        detail=_shown(find),
    )
