"""Client quotas of the brokers (AlterClientQuotas, KIP-546), which none of the client libraries in use can set."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from integration.support.wire import Wire, text

_ALTER_CLIENT_QUOTAS = 49
WRITES, READS = "producer_byte_rate", "consumer_byte_rate"


@contextmanager
def quota(bootstrap: str, bytes_per_second: int, rates: Collection[str] = (WRITES, READS)) -> Iterator[None]:
    """Limits each client without another quota, per broker."""
    _alter(bootstrap, rates, bytes_per_second)
    try:
        yield
    finally:
        _alter(bootstrap, rates, None)


def _alter(bootstrap: str, rates: Collection[str], rate: int | None) -> None:
    """Sets the rates of the default client-id, or removes them."""
    operations = b"".join(text(name) + struct.pack(">db", rate or 0.0, rate is None) for name in rates)
    entity = struct.pack(">i", 1) + text("client-id") + struct.pack(">h", -1)
    body = struct.pack(">i", 1) + entity + struct.pack(">i", len(rates)) + operations + struct.pack(">b", 0)
    with Wire(bootstrap) as wire:
        wire.to_any_broker(_ALTER_CLIENT_QUOTAS, body, error_at=slice(8, 10))
