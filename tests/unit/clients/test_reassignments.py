"""Calls by kafka-python end, whatever the broker does."""

from __future__ import annotations

import socket

import pytest

from ackwright.clients import reassignments
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason


def test_a_broker_that_never_answers_the_tls_handshake_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignments, "MARGIN_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts; nobody answers
        settings = {
            "bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}",
            "security.protocol": "SSL",
        }
        with pytest.raises(AckwrightError, match="listing moves of replicas failed: ") as caught:
            reassignments.under_way(settings, 0.2)
    assert caught.value.reason is Reason.BROKERS_UNREACHABLE
