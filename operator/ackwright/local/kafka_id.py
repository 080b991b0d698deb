"""Ids as Kafka writes them: of clusters and of data directories."""

from __future__ import annotations

import base64
import uuid


def kafka_uuid() -> str:
    """Kafka's text form of a UUID: URL-safe base64 without padding. Its tools refuse one that starts with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
