"""A pipeline in an in-memory Kubernetes with real brokers, and a producer that writes all the time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.observe.topics import topics
from ackwright.planning.comparison import ObservedTopic
from ackwright.settings import OperatorSettings
from ackwright_stream.jobspec import Reason
from integration.support.pipelines import read
from unit.world import SPEC, World
from waiting import ANSWER, wait_until

# A record without acknowledgement for this long counts as refused. Brokers notice a dead broker after 6 s, and a new
# controller starts that count again; until then acknowledgements wait.
CUT_OFF_MS = 20_000
THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class Writer:
    """Writes numbers to a topic, one after the other, until the context ends.

    retry: a refused record is sent again for a while. Otherwise the first refusal counts, and the rate is what a
    job on a busy machine can deliver.
    """

    def __init__(self, bootstrap: str, topic: str, *, retry: bool = True) -> None:
        again: dict[str, Any] = {"enable.idempotence": True} if retry else {"retries": 0}
        self._pause = 0.005 if retry else 0.05
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": CUT_OFF_MS, **again}
        )
        self._topic, self._padding, self._bootstrap = topic, b"x" * 100, bootstrap
        self.acknowledged: Counter[int] = Counter()
        self.refused: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        wait_until(lambda: sum(self.acknowledged.values()) > 50, "records are acknowledged")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(ANSWER)

    def wait_for_more(self) -> None:
        """Waits until further records are acknowledged."""
        before = sum(self.acknowledged.values())
        wait_until(lambda: sum(self.acknowledged.values()) > before + 50, "further records are acknowledged")

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(self._pause):
            for _ in range(5):
                self._producer.produce(
                    self._topic, b"%d " % number + self._padding, str(number).encode(), on_delivery=self._delivered
                )
                number += 1
            self._producer.poll(0)
        self._producer.flush(ANSWER)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error:
            self.refused.append(error.str())
        else:
            self.acknowledged[int(message.key() or b"-1")] += 1

    def assert_all_delivered_once(self) -> None:
        def delivered() -> Counter[int]:
            return Counter(int(record.key or b"-1") for record in read(self._bootstrap, self._topic))

        wait_until(lambda: delivered().total() >= self.acknowledged.total(), "every acknowledged record can be read")
        assert self.refused == []
        assert delivered() == self.acknowledged


def pipeline(topic: str, *, f: int = 1, partitions: int = 2, **declared: Any) -> dict[str, Any]:
    """The topic is the source, and the only one that is declared."""
    more = {"tolerate": {"brokerFailures": f}, "source": {"topics": [topic]}}
    return {
        **SPEC,
        **more,
        "sink": {"kafka": {"topic": topic + "-out"}},
        "topics": [*declared_topics(topic, partitions, declared)],
    }


def declared_topics(topic: str, partitions: int, declared: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"name": topic, "partitions": partitions, **declared}
    yield {"name": f"{topic}-out", "partitions": 1}


def reconcile_until(world: World, condition: Callable[[], Any], what: str) -> None:
    """Reconciles, with time advancing by one resync period each, until the condition holds."""

    def reconciled() -> bool:
        world.seconds += OperatorSettings().resync
        world.reconcile()
        try:
            return bool(condition())
        except AckwrightError as e:
            if e.reason is not Reason.BROKERS_UNREACHABLE:  # unknown state: reconcile again
                raise
            return False

    try:
        wait_until(reconciled, what, pause=0.3)
    except AssertionError as e:
        raise AssertionError(f"{e}; {world.resource.get('status')}") from None


def matches_plan(world: World) -> Callable[[], bool]:
    """A condition: the topics are as planned and no throttle is recorded."""
    return lambda: (
        world.condition("TopicsReady") == "True/AsPlanned"
        and not any("throttledBrokers" in t for t in world.resource["status"]["topics"])
    )


def observed_topic(client: Kafka, topic: str) -> ObservedTopic:
    """The topic as the brokers report it, once they do.

    A broker that lags behind does not know a new topic yet, and the controller may be moving.
    """

    def is_listed() -> ObservedTopic | None:
        try:
            client.racks()  # as the operator does: the first call finds the controller, if it has moved
            return topics(client, [topic]).get(topic)
        except AckwrightError as e:
            if e.reason is not Reason.BROKERS_UNREACHABLE:
                raise
            return None

    return wait_until(is_listed, f"{topic} is shown")


def not_throttled(client: Kafka, topic: str) -> bool:
    rates = [
        name
        for b in client.brokers()
        for name in client.broker_config(b)
        if name.endswith("replication.throttled.rate")
    ]
    return not rates and not any(observed_topic(client, topic).config.get(name) for name in THROTTLES)


def assert_not_throttled(client: Kafka, topic: str) -> None:
    """Asserts that no throttle is left, after up to 30 seconds for brokers that lag behind."""
    wait_until(lambda: not_throttled(client, topic), f"no throttle of {topic} is left")
