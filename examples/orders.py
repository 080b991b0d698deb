"""Orders for the quickstart, at the brokers in the environment variable KAFKA.

python examples/orders.py feed 1000     produces 1000 orders, with 0 to 99 seconds each, to the topic orders
python examples/orders.py read 390      waits for 390 records in the topic slow-orders, and prints the first one
"""

import os
import sys
import time

from confluent_kafka import Consumer, Producer

BROKERS = os.environ.get("KAFKA") or sys.exit(
    "KAFKA is not set; set it to the brokers, for example: export KAFKA=127.0.0.1:9092"
)
# Without librdkafka's log, which has a line for each attempt to connect.
CLIENT = {"bootstrap.servers": BROKERS, "log_level": 0}


def feed(count: int) -> None:
    producer = Producer({**CLIENT, "enable.idempotence": True})
    for n in range(count):
        producer.produce("orders", f'{{"id": "{n}", "seconds": {n % 100}}}')
    pending = producer.flush(60)
    sys.exit(
        f"{pending} orders were not acknowledged within 60 s; check that brokers answer at {BROKERS}"
        if pending
        else None
    )


def read(count: int) -> None:
    consumer = Consumer(
        {
            **CLIENT,
            "group.id": "reader-of-slow-orders",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["slow-orders"])
    values: list[bytes] = []
    deadline = time.monotonic() + 300
    while len(values) < count and time.monotonic() < deadline:
        values += [record.value() for record in consumer.consume(count - len(values), timeout=1) if not record.error()]
    consumer.close()
    print(f"{len(values)} records", *(value.decode() for value in values[:1]), sep="\n")
    sys.exit(0 if len(values) == count else 1)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    {"feed": feed, "read": read}[sys.argv[1]](int(sys.argv[2]))
