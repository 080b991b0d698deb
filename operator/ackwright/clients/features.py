"""The features of the cluster, which confluent-kafka does not show, by kafka-python. Reads only; needs no permission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ackwright.clients.reassignments import connected


def settled(settings: Mapping[str, Any], timeout: float) -> dict[str, int]:
    """The level of each feature that the cluster has settled on. settings: librdkafka's; timeout: seconds. Raises AckwrightError."""
    with connected("asking for the features", settings, timeout) as admin:
        found = admin.describe_features()
    return {name: told["finalized"][1] for name, told in sorted(found.items()) if "finalized" in told}
