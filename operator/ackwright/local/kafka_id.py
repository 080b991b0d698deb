"""Identifiers of clusters and data directories in Kafka's text form."""

from __future__ import annotations

import base64
import uuid


def kafka_uuid() -> str:
    """A random UUID in Kafka's text form: URL-safe base64 without padding, without a leading dash.

    Kafka's tools read a leading dash as the start of an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
