"""What is wrong shows as a condition with its cause and remedy, and heals by itself when the cause has gone."""

from __future__ import annotations

import pytest

from e2e.pipelines import NAMESPACE, Installation, pipeline
from lab.brokers import SECURITY
from lab.processes import LabError


def test_wrong_specs_are_refused_or_leave_the_last_valid_one_running(installed: Installation) -> None:
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("Ready", "True")
        driver = p.driver()
        good = dict(p.document["spec"])
        with pytest.raises(LabError, match="transform"):
            p.apply(transform={"sql": "SELECT 1", "python": {"module": "a", "function": "b"}})
        # What only the operator can tell: a setting of Spark's that reads like one and is refused by its value.
        p.document["spec"] = dict(good)
        assert p.driver() is not None
        assert driver is not None
        assert p.driver()["metadata"]["uid"] == driver["metadata"]["uid"]  # type: ignore[index]


def test_wrong_credentials_show_and_heal(installed: Installation) -> None:
    user, password = next(iter(SECURITY.users.items()))
    secure = {
        "bootstrapServers": "kafka-1:9094,kafka-2:9094,kafka-3:9094",
        "auth": {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "kafka-user"}},
        "tls": {"caSecret": {"name": "kafka-ca"}},
    }
    ca = installed.cluster.brokers.ca_file.read_text()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": NAMESPACE}}
    with pipeline(installed, "exactly-once", kafka=secure) as p:
        found = p.wait_for("TopicsReady", "Unknown", "AuthenticationFailed")
        assert "kafka-user" in found["message"] or "kafka-ca" in found["message"]
        installed.apply(
            {**secret, "metadata": {**secret["metadata"], "name": "kafka-ca"}, "stringData": {"ca.crt": ca}}
        )
        wrong = {"username": user, "password": "wrong"}
        installed.apply({**secret, "metadata": {**secret["metadata"], "name": "kafka-user"}, "stringData": wrong})
        found = p.wait_for("Ready", "False", "AuthenticationFailed")
        assert "wrong" not in str(p.status())
        installed.apply(
            {
                **secret,
                "metadata": {**secret["metadata"], "name": "kafka-user"},
                "stringData": {"username": user, "password": password},
            }
        )
        p.wait_for("Ready", "True")
        assert password not in str(p.status())


def test_brokers_out_of_reach_show_and_heal(installed: Installation) -> None:
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
        p.feed(1000)
        p.wait_until_delivered()
        p.wait_for("Ready", "True", "Delivering")
