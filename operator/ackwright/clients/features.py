"""The cluster's features, by kafka-python, since confluent-kafka does not read them.

Reads only; needs no permission.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.admin import KafkaAdminClient

from ackwright.clients.reassignments import call_admin


def finalized(settings: Mapping[str, Any], timeout: float) -> dict[str, int]:
    """The finalized level of each feature. settings: librdkafka's; timeout: seconds. Raises AckwrightError."""
    features = call_admin("reading the cluster's features", settings, timeout, KafkaAdminClient.describe_features)
    return {name: feature["finalized"][1] for name, feature in sorted(features.items()) if "finalized" in feature}
