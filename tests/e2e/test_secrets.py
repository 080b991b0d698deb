"""Credentials on a real cluster occur only in their Secrets, and can be changed while records are delivered."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ackwright_stream.admin_client import AdminClient
from e2e.leaks import collect_texts, leaks
from e2e.pipelines import NAMESPACE, Installation, Pipeline, pipeline, wait_until

FLIGHTS = 6_000
TIMEOUT = 30  # seconds


class User:
    """A user of the brokers' secure listener, with Secrets in the cluster and the same content as files."""

    def __init__(self, installation: Installation, directory: Path) -> None:
        self.name = f"user-{uuid.uuid4().hex[:6]}"
        self._installation, self._directory = installation, directory
        self._admin = AdminClient({"bootstrap.servers": installation.kafka})
        self._ca = installation.cluster.brokers.ca_file.read_text()

    @property
    def kafka(self) -> dict[str, Any]:
        """The value of spec.kafka."""
        return {
            "bootstrapServers": "kafka-1:9094,kafka-2:9094,kafka-3:9094",
            "auth": {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": self.name}},
            "tls": {"caSecret": {"name": f"{self.name}-ca"}},
        }

    def set_on_brokers(self, password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(self.name, info, password.encode())
        self._admin.alter_user_scram_credentials([change])[self.name].result(TIMEOUT)

    def set_in_cluster(self, password: str) -> None:
        for secret, data in (
            (self.name, {"username": self.name, "password": password}),
            (f"{self.name}-ca", {"ca.crt": self._ca}),
        ):
            meta = {"name": secret, "namespace": NAMESPACE}
            self._installation.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data})
            for key, value in data.items():
                (self._directory / "secrets" / secret).mkdir(parents=True, exist_ok=True)
                (self._directory / "secrets" / secret / key).write_text(value)

    def remove(self) -> None:
        """The brokers keep the user: a broker of Kafka 4.1 that restarts and reads the removal of one from its log may
        know none any more, until the next snapshot (observed).
        """
        self._installation.kubectl("delete", "secret", self.name, f"{self.name}-ca", "--ignore-not-found")


@contextmanager
def user(installation: Installation, directory: Path) -> Iterator[User]:
    created = User(installation, directory)
    try:
        yield created
    finally:
        created.remove()


def unique_password() -> str:
    """A password that occurs nowhere else, with characters that URLs, JSON and base64 encode differently."""
    return f"pl4nted/{uuid.uuid4().hex}+~x"


def test_a_run_leaves_no_secret_in_any_text(installed: Installation, tmp_path: Path) -> None:
    secrets = {"the wrong password": unique_password(), "the password": unique_password()}
    with user(installed, tmp_path) as ann, pipeline(installed, "exactly-once", create=False, kafka=ann.kafka) as p:
        ann.set_on_brokers(secrets["the password"])
        ann.set_in_cluster(secrets["the wrong password"])
        p.apply()
        p.wait_for("Ready", "False", "AuthenticationFailed")
        assert leaks(collect_texts(installed, [p], tmp_path), secrets) == []
        ann.set_in_cluster(secrets["the password"])
        p.wait_for("TopicsReady", "True")
        p.produce_flights(FLIGHTS)
        p.wait_for("Ready", "True")
        p.wait_until_delivered()
        texts = collect_texts(installed, [p], tmp_path)
        assert leaks(texts, secrets) == []

        # The controls: the texts include processes, logs and records, and a planted secret is detected.
        driver = f"driver in {p.name}-0"
        assert "/etc/ackwright/secrets" in texts["configmaps"]
        assert "java" in texts[f"processes of {driver}"]
        assert "owns 3 lanes" in texts[f"log of {driver}"]
        assert texts[f"records of {p.sink}"]
        leaking = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{p.name}-leak", "namespace": NAMESPACE},
        }
        try:
            installed.apply({**leaking, "data": {"note": f"the password is {secrets['the password']}"}})
            assert "the password plain in configmaps" in leaks(collect_texts(installed, [], tmp_path), secrets)
        finally:
            installed.kubectl("delete", "configmap", f"{p.name}-leak")


def uid_of_driver(p: Pipeline) -> str | None:
    """The uid of the driver's pod; None if there is none or it is being deleted."""
    pod = p.driver()
    return None if pod is None or pod["metadata"].get("deletionTimestamp") else str(pod["metadata"]["uid"])


def test_credentials_change_while_records_are_delivered(installed: Installation, tmp_path: Path) -> None:
    """First the Secret gets another user's credentials: the driver drains and is replaced, without a failure.

    Then the password changes on the brokers before it changes in the Secret: logins fail until the Secret is updated.
    """
    with user(installed, tmp_path) as ann, pipeline(installed, "exactly-once", create=False, kafka=ann.kafka) as p:
        ann.set_on_brokers("first-password")
        ann.set_in_cluster("first-password")
        p.apply()
        p.wait_for("TopicsReady", "True")
        p.produce_flights(FLIGHTS)
        p.wait_for("Ready", "True")
        first = uid_of_driver(p)

        with user(installed, tmp_path) as bob:
            bob.set_on_brokers("of-bob")
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": ann.name, "namespace": NAMESPACE}}
            installed.apply({**secret, "stringData": {"username": bob.name, "password": "of-bob"}})
            p.produce_flights(FLIGHTS, skip=FLIGHTS)
            wait_until(lambda: uid_of_driver(p) not in (first, None), "the driver is replaced")
            p.wait_for("Ready", "True")
            assert p.status()["driver"]["restarts"] == 0
            assert p.status()["driver"].get("lastError") is None
            p.wait_until_delivered()

            bob.set_on_brokers("of-bob-rotated")
            p.produce_flights(FLIGHTS, skip=2 * FLIGHTS)
            p.wait_for("Ready", "False")  # each transaction needs a new connection, which is refused
            installed.apply({**secret, "stringData": {"username": bob.name, "password": "of-bob-rotated"}})
            p.wait_for("Ready", "True")
            p.wait_until_delivered_and_audit(tmp_path)
            p.delete()
