"""A problem appears as a condition with its cause and remedy, and the condition recovers when the cause is removed."""

from __future__ import annotations

import pytest

from e2e.pipelines import NAMESPACE, Installation, pipeline
from lab.brokers import SECURITY
from lab.processes import LabError


def test_invalid_specs_are_refused_or_leave_the_last_valid_one_running(installed: Installation) -> None:
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("Ready", "True")
        driver = p.driver()
        valid = dict(p.document["spec"])
        with pytest.raises(LabError, match="transform"):
            p.apply(transform={"sql": "SELECT 1", "python": {"module": "a", "function": "b"}})
        p.document["spec"] = dict(valid)
        assert p.driver() is not None
        assert driver is not None
        assert p.driver()["metadata"]["uid"] == driver["metadata"]["uid"]  # type: ignore[index]


def test_wrong_credentials_are_reported_until_they_are_corrected(installed: Installation) -> None:
    user, password = next(iter(SECURITY.users.items()))
    secure = {
        "bootstrapServers": "kafka-1:9094,kafka-2:9094,kafka-3:9094",
        "auth": {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "kafka-user"}},
        "tls": {"caSecret": {"name": "kafka-ca"}},
    }
    ca = installed.cluster.brokers.ca_file.read_text()

    def apply_secret(name: str, **data: str) -> None:
        metadata = {"name": name, "namespace": NAMESPACE}
        installed.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})

    with pipeline(installed, "exactly-once", kafka=secure) as p:
        condition = p.wait_for("TopicsReady", "Unknown", "AuthenticationFailed")
        assert "kafka-user" in condition["message"] or "kafka-ca" in condition["message"]
        apply_secret("kafka-ca", **{"ca.crt": ca})
        apply_secret("kafka-user", username=user, password="wrong")
        p.wait_for("Ready", "False", "AuthenticationFailed")
        assert "wrong" not in str(p.status())
        apply_secret("kafka-user", username=user, password=password)
        p.wait_for("Ready", "True")
        assert password not in str(p.status())


def test_unreachable_brokers_are_reported_until_they_are_back(installed: Installation) -> None:
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("Ready", "True")
        for host in ("kafka-1", "kafka-2", "kafka-3"):
            installed.cluster.cut(host)
        try:
            p.wait_for("TopicsReady", "Unknown", "BrokersUnreachable")
            assert p.condition("GuaranteeMet")["status"] == "Unknown"
        finally:
            for host in ("kafka-1", "kafka-2", "kafka-3"):
                installed.cluster.reconnect(host)
        installed.cluster.brokers.wait_until_in_sync(120)
        p.produce_flights(1000)
        p.wait_until_delivered()
        p.wait_for("Ready", "True", "Delivering")
