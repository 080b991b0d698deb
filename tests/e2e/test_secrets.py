"""Credentials on a real cluster: they are found nowhere but in their Secrets, and change while records flow."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ackwright_stream.admin_client import AdminClient
from e2e.leaks import everything, leaks
from e2e.pipelines import NAMESPACE, Installation, Pipeline, pipeline, wait_until

FLIGHTS = 6_000
SECONDS = 30


class User:
    """A user of the brokers' secure listener with Secrets of its own in the cluster, and the same as files below a directory."""

    def __init__(self, installation: Installation, directory: Path) -> None:
        self.name = f"user-{uuid.uuid4().hex[:6]}"
        self._installation, self._directory = installation, directory
        self._admin = AdminClient({"bootstrap.servers": installation.kafka})
        self._ca = installation.cluster.brokers.ca_file.read_text()

    @property
    def kafka(self) -> dict[str, Any]:
        """spec.kafka."""
        return {
            "bootstrapServers": "kafka-1:9094,kafka-2:9094,kafka-3:9094",
            "auth": {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": self.name}},
            "tls": {"caSecret": {"name": f"{self.name}-ca"}},
        }

    def on_brokers(self, password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(self.name, info, password.encode())
        self._admin.alter_user_scram_credentials([change])[self.name].result(SECONDS)

    def in_cluster(self, password: str) -> None:
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
        self._installation.kubectl("delete", "secret", self.name, f"{self.name}-ca", "--ignore-not-found")
        change = UserScramCredentialDeletion(self.name, ScramMechanism.SCRAM_SHA_512)
        self._admin.alter_user_scram_credentials([change])[self.name].result(SECONDS)


@contextmanager
def user(installation: Installation, directory: Path) -> Iterator[User]:
    found = User(installation, directory)
    try:
        yield found
    finally:
        found.remove()


def planted() -> str:
    """A password that is like no other text, with a character that URLs, JSON and base64 write differently."""
    return f"pl4nted/{uuid.uuid4().hex}+~x"


def test_no_secret_is_found_in_anything_that_a_run_produced(installed: Installation, tmp_path: Path) -> None:
    secrets = {"the wrong password": planted(), "the password": planted()}
    with user(installed, tmp_path) as ann, pipeline(installed, "exactly-once", create=False, kafka=ann.kafka) as p:
        ann.on_brokers(secrets["the password"])
        ann.in_cluster(secrets["the wrong password"])
        p.apply()
        p.wait_for("Ready", "False", "AuthenticationFailed")
        assert leaks(everything(installed, [p], tmp_path), secrets) == []
        ann.in_cluster(secrets["the password"])
        p.wait_for("TopicsReady", "True")
        p.feed(FLIGHTS)
        p.wait_for("Ready", "True")
        p.wait_until_delivered()
        found = everything(installed, [p], tmp_path)
        assert leaks(found, secrets) == []

        # The controls: the search saw the pods, what runs in them and what they say, and finds what is there.
        driver = f"driver in {p.name}-0"
        assert "/etc/ackwright/secrets" in found["configmaps"]
        assert "java" in found[f"processes of {driver}"]
        assert "owns 3 lanes" in found[f"log of {driver}"]
        assert found[f"records of {p.sink}"]
        noted = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{p.name}-noted", "namespace": NAMESPACE},
        }
        try:
            installed.apply({**noted, "data": {"note": f"the password is {secrets['the password']}"}})
            assert "the password plain in configmaps" in leaks(everything(installed, [], tmp_path), secrets)
        finally:
            installed.kubectl("delete", "configmap", f"{p.name}-noted")


def uid_of_driver(p: Pipeline) -> str | None:
    """Of one that is there and not on its way out."""
    pod = p.driver()
    return None if pod is None or pod["metadata"].get("deletionTimestamp") else str(pod["metadata"]["uid"])


def test_credentials_change_while_records_flow(installed: Installation, tmp_path: Path) -> None:
    """First another user's, as it is done without a pause: the driver is drained and replaced without having failed. Then the same user's
    password on the brokers before the Secret's: nothing can log in any more until the Secret follows."""
    with user(installed, tmp_path) as ann, pipeline(installed, "exactly-once", create=False, kafka=ann.kafka) as p:
        ann.on_brokers("first-password")
        ann.in_cluster("first-password")
        p.apply()
        p.wait_for("TopicsReady", "True")
        p.feed(FLIGHTS)
        p.wait_for("Ready", "True")
        first = uid_of_driver(p)

        with user(installed, tmp_path) as bob:
            bob.on_brokers("of-bob")
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": ann.name, "namespace": NAMESPACE}}
            installed.apply({**secret, "stringData": {"username": bob.name, "password": "of-bob"}})
            p.feed(FLIGHTS, skip=FLIGHTS)
            wait_until(lambda: uid_of_driver(p) not in (first, None), "the driver is replaced")
            p.wait_for("Ready", "True")
            assert p.status()["driver"]["restarts"] == 0
            assert p.status()["driver"].get("lastError") is None
            p.wait_until_delivered()

            bob.on_brokers("of-bob-rotated")
            p.feed(FLIGHTS, skip=2 * FLIGHTS)
            p.wait_for("Ready", "False")  # a new connection is needed for each transaction, and is refused
            installed.apply({**secret, "stringData": {"username": bob.name, "password": "of-bob-rotated"}})
            p.wait_for("Ready", "True")
            p.wait_until_delivered()
            verdict = p.audit(tmp_path)
            assert verdict["exitCode"] == 0, verdict
            p.delete()
