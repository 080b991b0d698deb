"""When Secrets are read again, and when connections are replaced and closed.

Nothing listens at the address.
"""

from __future__ import annotations

import base64
import gc
import re
import threading
import weakref
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from ackwright.api.spec import DeliveryPipeline
from ackwright.clients.attempts import ConnectionBusy
from ackwright.clients.connections import Connections
from ackwright.clients.isolated_kafka import IsolatedKafka
from ackwright.clients.kafka_processes import KafkaProcesses, ProcessFailure
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.errors import AckwrightError
from ackwright.local.wait import wait_for
from ackwright_stream.jobspec import Reason
from unit.render.pipelines import MINIMAL, declared

AUTH = {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "kafka-user"}}
WAY = {"bootstrapServers": "127.0.0.1:1", "auth": AUTH}
REFUSED = AckwrightError(Reason.AUTHENTICATION_FAILED, "the password is another one")


class Secrets:
    """An API server with Secrets that counts requests for them."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: Counter[tuple[str, str]] = Counter()
        self._version = 0
        self.forbidden = False

    def put(self, namespace: str, **data: str) -> None:
        self._version += 1
        meta = {"uid": f"uid-of-{namespace}", "resourceVersion": str(self._version)}
        self.stored[namespace, "kafka-user"] = {
            "metadata": meta,
            "data": {k: base64.b64encode(v.encode()).decode() for k, v in data.items()},
        }

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert kind == "Secret"
        self.asked[namespace, name] += 1
        if self.forbidden:
            raise ApiError(403, "secrets is forbidden")
        return self.stored.get((namespace, name))


class World:
    def __init__(self, directory: Path) -> None:
        self.secrets, self.directory, self.now = Secrets(), directory, 1000.0
        self.secrets.put("ops", username="ann", password="first-password")
        self.connections = Connections(cast(Kubernetes, self.secrets), directory, lambda: self.now, workers=8)

    def password(self, pipeline: DeliveryPipeline) -> str:
        return str(self.connections.kafka(pipeline)[1]._settings["sasl.password"])

    def reads(self, namespace: str = "ops") -> int:
        return self.secrets.asked[namespace, "kafka-user"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def pipeline(name: str = "p", namespace: str = "ops", **more: Any) -> DeliveryPipeline:
    return declared(MINIMAL | {"kafka": WAY}, name, namespace, **more)


def test_pipelines_with_the_same_credentials_share_a_connection_and_a_read(world: World) -> None:
    result = {id(world.connections.kafka(pipeline(name))[1]) for name in "abcd" for _ in range(5)}
    assert len(result) == 1
    assert world.reads() == 1


def test_a_changed_secret_is_read_after_the_interval_without_a_failure(world: World) -> None:
    assert world.password(pipeline()) == "first-password"
    before = world.connections.credentials(pipeline())
    world.secrets.put("ops", username="ann", password="second-password")
    world.now += 100
    assert world.password(pipeline()) == "first-password"
    assert world.connections.credentials(pipeline()) == before
    world.now += 30
    assert world.password(pipeline()) == "second-password"
    assert world.connections.credentials(pipeline()) not in (before, None, "")
    assert world.reads() == 2


def test_after_a_failure_a_changed_secret_is_read_at_once(world: World) -> None:
    key, _ = world.connections.kafka(pipeline())
    world.connections.failed(key, REFUSED)
    with pytest.raises(AckwrightError, match="the password is another one"):
        world.connections.kafka(pipeline())
    world.connections.failed(key, REFUSED)
    world.secrets.put("ops", username="ann", password="second-password")
    assert world.password(pipeline()) == "second-password"


def test_a_secret_that_lacks_a_key_is_read_again_at_once(world: World) -> None:
    world.secrets.put("ops", username="ann")
    with pytest.raises(AckwrightError, match="the password cannot be read"):
        world.connections.kafka(pipeline())
    world.secrets.put("ops", username="ann", password="second-password")
    assert world.password(pipeline()) == "second-password"


def test_a_missing_secret_is_named(world: World) -> None:
    with pytest.raises(AckwrightError, match="there is no Secret kafka-user in namespace other") as caught:
        world.connections.kafka(pipeline(namespace="other"))
    assert caught.value.reason is Reason.AUTHENTICATION_FAILED
    assert world.connections.credentials(pipeline(namespace="other")) is None
    world.secrets.put("other", username="eve", password="of-another")
    assert world.password(pipeline(namespace="other")) == "of-another"


def test_the_last_content_of_a_secret_that_may_not_be_read_any_more_serves_for_ten_minutes(world: World) -> None:
    """As in a namespace that is being deleted, whose topics are to be deleted, too."""
    assert world.password(pipeline()) == "first-password"
    world.secrets.forbidden = True
    world.now += 599
    assert world.password(pipeline()) == "first-password"
    world.now += 2
    world.connections.kafka(declared(MINIMAL))  # closes what is idle
    with pytest.raises(ApiError, match="secrets is forbidden"):
        world.connections.kafka(pipeline())


def test_another_namespace_gets_neither_the_secret_nor_the_connection(world: World) -> None:
    """Even if both Secrets are equal: access to one proves no access to the other."""
    world.secrets.put("other", username="ann", password="first-password")
    ours, theirs = (world.connections.kafka(pipeline(namespace=n)) for n in ("ops", "other"))
    assert ours[0] != theirs[0]
    assert ours[1] is not theirs[1]
    assert (world.reads("ops"), world.reads("other")) == (1, 1)


def test_no_tenant_can_compute_the_key_of_another_ones_connection(world: World) -> None:
    """Of a shorter key, a pipeline with another value and the same key could be computed."""
    key, _ = world.connections.kafka(pipeline())
    assert re.fullmatch("[0-9a-f]{64}", key)


def test_the_identifier_of_credentials_does_not_depend_on_their_content(world: World, tmp_path: Path) -> None:
    """Two Secrets of the same version with different content have the same identifier: it helps nobody to guess."""
    other = World(tmp_path / "other")
    other.secrets.stored["ops", "kafka-user"]["data"]["password"] = base64.b64encode(b"another").decode()
    for each in (world, other):
        each.connections.kafka(pipeline())
    assert world.connections.credentials(pipeline()) == other.connections.credentials(pipeline()) != ""
    assert world.connections.credentials(declared(MINIMAL)) == ""


def test_an_unused_connection_is_closed_and_its_credentials_are_deleted(world: World) -> None:
    key, kafka = world.connections.kafka(pipeline())
    old = weakref.ref(kafka._admin)
    del kafka
    assert (world.directory / key / "kafka-user" / "password").read_text() == "first-password"
    world.secrets.put("ops", username="ann", password="second-password")
    for _ in range(7):
        world.now += 130
        assert world.password(pipeline()) == "second-password"
    gc.collect()
    assert old() is None
    assert [p.read_text() for p in world.directory.rglob("password")] == ["second-password"]


def test_control_a_connection_in_use_stays_open(world: World) -> None:
    """The control of the test above."""
    _, kafka = world.connections.kafka(pipeline())
    for _ in range(7):
        world.now += 130
        assert world.connections.kafka(pipeline())[1] is kafka
    assert world.reads() == 8


def test_the_pause_after_a_failure_grows_and_an_answer_ends_it(world: World) -> None:
    pauses = []
    for _ in range(4):
        key, kafka = world.connections.kafka(pipeline())
        world.connections.failed(key, REFUSED)
        pause = 0
        while True:
            try:
                world.connections.kafka(pipeline())
                break
            except AckwrightError:
                world.now += 1
                pause += 1
        pauses.append(pause)
    assert pauses == [10, 20, 30, 30]
    with world.connections.attempt(key, kafka, "ops"):
        pass
    world.connections.failed(key, REFUSED)
    world.now += 10
    world.connections.kafka(pipeline())


def test_the_end_of_a_client_process_ends_no_connection_of_other_namespaces(world: World) -> None:
    """It tells nothing about the cluster, which other namespaces may use with the same connection."""
    key, kafka = world.connections.kafka(pipeline())
    world.connections.failed(key, ProcessFailure("the process ended"))
    assert world.connections.kafka(pipeline()) == (key, kafka)


def test_namespaces_share_a_connection_without_credentials_and_each_makes_its_own_calls(
    world: World, tmp_path: Path
) -> None:
    connections = Connections(cast(Kubernetes, world.secrets), tmp_path / "open", processes=KafkaProcesses())
    open_ = [connections.kafka(declared(MINIMAL, namespace=namespace))[1] for namespace in ("ops", "other")]
    assert all(isinstance(kafka, IsolatedKafka) for kafka in open_)
    first, second = cast(list[IsolatedKafka], open_)
    assert first._connection is second._connection
    assert (first._namespace, second._namespace) == ("ops", "other")


def test_reads_and_writes_are_separate_attempts(world: World) -> None:
    """Brokers may answer reads promptly and writes never."""
    key, kafka = world.connections.kafka(pipeline())
    with world.connections.attempt(key, kafka, "ops"):
        pass
    with world.connections.attempt(key, kafka, "ops", writes=True):
        with pytest.raises(ConnectionBusy), world.connections.attempt(key, kafka, "ops", writes=True):
            pass
        with world.connections.attempt(key, kafka, "ops"):
            pass


def test_of_a_secret_only_the_keys_that_are_needed_are_kept(world: World) -> None:
    world.secrets.put("ops", username="ann", password="first-password", other="of-another-application")
    key, _ = world.connections.kafka(pipeline())
    assert sorted(p.name for p in (world.directory / key / "kafka-user").iterdir()) == ["password", "username"]
    assert set(world.connections._secrets["ops", "kafka-user"].data) == {"username", "password"}
    tls = {"caSecret": {"name": "kafka-user", "key": "other"}}
    both = declared(MINIMAL | {"kafka": WAY | {"tls": tls}})
    with pytest.raises(AckwrightError):  # no certificate, but it has been read
        world.connections.kafka(both)
    files = sorted(p.relative_to(world.directory).parts[1:] for p in world.directory.rglob("*") if p.is_file())
    assert ("kafka-user", "other") in files


def test_a_value_that_is_too_large_is_refused_and_not_kept(world: World) -> None:
    world.secrets.put("ops", username="ann", password="x" * 200_000)
    with pytest.raises(AckwrightError, match=r"the key password of Secret kafka-user .* has more than 196608 bytes"):
        world.connections.kafka(pipeline())
    assert not list(world.directory.rglob("*"))


def many(number: int, *, namespace: str = "ops", addresses: int = 16) -> list[DeliveryPipeline]:
    """Pipelines with a cluster each."""
    servers = [",".join(f"127.0.{n}.{i}:1" for i in range(addresses)) for n in range(number)]
    return [declared(MINIMAL | {"kafka": {"bootstrapServers": s}}, namespace=namespace) for s in servers]


def test_the_threads_of_one_namespaces_clients_are_limited(world: World) -> None:
    before, others = threading.active_count(), _threads_of_process()
    for p in many(40):
        world.now += 1
        world.connections.kafka(p)
    gc.collect()
    wait_for(lambda: _threads_of_process() - others <= 288 + 20, "the clients have ended", 60)
    assert threading.active_count() == before
    world.now += 1
    assert len(world.connections._open) == 16, "the newest"
    newest = world.connections._open.keys()
    assert world.connections.kafka(many(40)[-1])[0] in newest


def test_another_namespace_keeps_its_connections(world: World) -> None:
    key, kafka = world.connections.kafka(pipeline())
    for p in many(40, namespace="hostile", addresses=14):
        world.now += 1
        world.connections.kafka(p)
    assert world.connections.kafka(pipeline()) == (key, kafka)


def test_a_connection_in_use_is_not_closed(world: World) -> None:
    first, *others = many(40)
    key, kafka = world.connections.kafka(first)
    with world.connections.attempt(key, kafka, "ops"):
        for p in others:
            world.now += 1
            world.connections.kafka(p)
        assert world.connections.kafka(first)[1] is kafka
    for p in others:
        world.now += 1
        world.connections.kafka(p)
    assert world.connections.kafka(first)[1] is not kafka, "the control: not in use it is closed"


def _threads_of_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))
