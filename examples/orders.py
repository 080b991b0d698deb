"""Orders for the quickstart, at the brokers that KAFKA names.

python examples/orders.py feed 1000     writes a thousand orders, of 0 to 99 seconds, to the topic orders
python examples/orders.py read 390      waits for so many records in slow-orders, and shows the first of them
"""

import os
import sys
import time

from confluent_kafka import Consumer, Producer

BROKERS = os.environ.get("KAFKA") or sys.exit("KAFKA is not set; write for instance: export KAFKA=127.0.0.1:9092")


def feed(count: int) -> None:
    producer = Producer({"bootstrap.servers": BROKERS, "enable.idempotence": True})
    for n in range(count):
        producer.produce("orders", f'{{"id": "{n}", "seconds": {n % 100}}}')
    left = producer.flush(60)
    sys.exit(f"{left} orders were not acknowledged" if left else None)


def read(count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": BROKERS,
            "group.id": "reader-of-slow-orders",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["slow-orders"])
    found: list[bytes] = []
    deadline = time.monotonic() + 300
    while len(found) < count and time.monotonic() < deadline:
        found += [record.value() for record in consumer.consume(count - len(found), timeout=1) if not record.error()]
    consumer.close()
    print(f"{len(found)} records", *(value.decode() for value in found[:1]), sep="\n")
    sys.exit(0 if len(found) == count else 1)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    {"feed": feed, "read": read}[sys.argv[1]](int(sys.argv[2]))
