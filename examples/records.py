"""Records for the examples, at the brokers in the environment variable KAFKA.

python examples/records.py feed TOPIC FILE    sends each line, a value or KEY<tab>VALUE; an empty VALUE is a tombstone
python examples/records.py read TOPIC COUNT   waits for COUNT committed records, and prints their values
"""

import os
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer

BROKERS = os.environ.get("KAFKA") or sys.exit(
    "KAFKA is not set; set it to the brokers, for example: export KAFKA=127.0.0.1:9092"
)
# Without librdkafka's log, which has a line for each attempt to connect.
CLIENT = {"bootstrap.servers": BROKERS, "log_level": 0}


def feed(topic: str, file: str) -> None:
    producer = Producer({**CLIENT, "enable.idempotence": True})
    for line in Path(file).read_text().splitlines():
        key, tab, value = line.rpartition("\t")
        producer.produce(topic, value or None, key if tab else None)
    pending = producer.flush(60)
    sys.exit(
        f"{pending} records were not acknowledged within 60 s; check that brokers answer at {BROKERS}"
        if pending
        else None
    )


def read(topic: str, count: str) -> None:
    consumer = Consumer(
        {
            **CLIENT,
            "group.id": f"reader-of-{topic}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + 300
    while len(values) < int(count) and time.monotonic() < deadline:
        values += [r.value() for r in consumer.consume(int(count) - len(values), timeout=1) if not r.error()]
    consumer.close()
    print(*sorted(value.decode() for value in values), sep="\n")
    sys.exit(0 if len(values) == int(count) else f"{len(values)} of {count} records arrived within 300 s")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("feed", "read"):
        sys.exit(__doc__)
    {"feed": feed, "read": read}[sys.argv[1]](*sys.argv[2:])
