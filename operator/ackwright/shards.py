"""Shards: several operators that divide the namespaces among themselves. Pure.

Each namespace belongs to one shard, by a hash of its name, so that the pipelines of a team have one operator, and a
namespace that is added or removed moves no other one.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

MAX_SHARDS = 16  # the operator's Role names the Lease of each
SHARDS_ANNOTATION = "ackwright.io/shards"  # of a Lease: the number of shards that its holder was started with
_LEASE = "ackwright-operator"
LEASE_NAMES = (_LEASE, *(f"{_LEASE}-{number}" for number in range(2, MAX_SHARDS + 1)))


@dataclass(frozen=True)
class Shard:
    """One of so many shards; numbers begin with 1."""

    number: int = 1
    of: int = 1

    @property
    def lease(self) -> str:
        """The name of the Lease by which the replicas of this shard elect their leader."""
        return LEASE_NAMES[self.number - 1]

    def owns(self, namespace: str) -> bool:
        """Whether the pipelines of this namespace belong to this shard."""
        return zlib.crc32(namespace.encode()) % self.of == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


THE_ONLY_ONE = Shard()


def parse_shard(text: str) -> Shard:
    """The shard of a text such as `1/2`. Raises ValueError unless 1 <= number <= shards <= MAX_SHARDS."""
    match = re.fullmatch(r"([0-9]{1,2})/([0-9]{1,2})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]) <= MAX_SHARDS:
        raise ValueError(f"{text!r} is no shard")
    return Shard(int(match[1]), int(match[2]))
