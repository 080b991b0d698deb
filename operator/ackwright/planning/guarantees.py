"""What each guarantee requires of every client: one table, each setting with its reason (docs/protocol.md#guarantees).

Every setting that the job uses comes from here or from the spec; the plan combines the two. A user can change a
setting only where the plan reads a field of the spec for it. Names are librdkafka's for the job's own clients,
Java's for those of Spark's Kafka connector, and Spark's for Spark. Times are in milliseconds. Sources: KIP-98
(idempotence, transactions), KIP-447 (require_stable), KIP-890 (gaps of the transaction protocol).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ackwright.planning.promises import PROMISES, Promise
from ackwright_stream.jobspec import DEFAULT_TIME_ZONE, TIME_ZONE, Guarantee, Restart

Acks = Literal["0", "1", "all"]
Order = Literal["before", "together", "after"]

# A coordinator aborts a transaction that is open for longer. Brokers refuse more than transaction.max.timeout.ms
# (default: 15 minutes).
TRANSACTION_TIMEOUT_MS = 60_000
OPERATION_TIMEOUT_MS = 30_000  # of one call to Kafka
TRIGGER_INTERVAL_MS = 1_000  # unless spec.trigger says otherwise
# A task's rows have to be written before the coordinator aborts its transaction. Larger batches are no faster.
OFFSETS_PER_TRANSACTION = 250_000
# The smallest limit of a batch after transactions that timed out: at least 1.7 records per second fit a transaction of
# 60 s. It does not grow with lanes or slots: one lane, and so one transaction, may have the whole batch. Where every
# task has a part, batches of this size are quick, and the limit grows again.
SMALLEST_BATCH = 100
DELIVERY_TIMEOUT_MS = 120_000  # of producers without transactions
RESTART = Restart(initial_ms=200, max_ms=30_000, forgive_after_ms=60_000, max_attempts=12)
# A broker's default for message.max.bytes. The clients' defaults are lower, so they would refuse a record that the
# source contains.
BROKER_MESSAGE_MAX_BYTES = 1_048_588


@dataclass(frozen=True)
class Setting:
    """A setting of a client, a topic or Spark, and what it protects against."""

    name: str
    value: str
    reason: str


Settings = tuple[Setting, ...]


@dataclass(frozen=True)
class GuaranteeTerms:
    """What one guarantee requires."""

    promise: Promise  # everything but settings
    acks: Acks  # of the sink, unless the spec chooses
    allowed_acks: tuple[Acks, ...]  # what the spec may choose
    order: Order  # a position moves before, together with, or after the output
    order_reason: str
    state_order_reason: str  # of a stateful pipeline
    # Limit of a batch for each of its transactions, unless the spec limits the batch; None: no limit.
    offsets_per_transaction: int | None
    producer: Settings  # of the tasks' producers of rows (librdkafka)
    sink: Settings  # of the producer of Spark's Kafka sink (Java)
    source: Settings  # options of Spark's Kafka source
    spark: Settings
    upstream: Settings  # for the application that writes the source, in names that Java and librdkafka share
    downstream: Settings  # for the application that reads the sink

    @property
    def transactional(self) -> bool:
        """Whether a task's rows and their positions change in one transaction."""
        return self.order == "together"


def replaced(settings: Settings, name: str, value: str, reason: str) -> Settings:
    """The settings with one of them replaced in its place, or added at the end."""
    new = Setting(name, value, reason)
    if all(s.name != name for s in settings):
        return (*settings, new)
    return tuple(new if s.name == name else s for s in settings)


def values(settings: Settings) -> dict[str, str]:
    """Names to values, as a client takes them."""
    return {s.name: s.value for s in settings}


def positions_consumer(group: str) -> Settings:
    """Settings of the consumer that reads positions. It does not join the group."""
    return (
        Setting("group.id", group, "the job may use this group; positions in Kafka are its committed offsets"),
        Setting(
            "isolation.level",
            "read_committed",
            "sets require_stable (KIP-447): the read waits for a position whose transaction is still open",
        ),
        Setting("enable.auto.commit", "false", "a position moves only in a transaction"),
    )


def topic_consumer(group: str) -> Settings:
    """Settings of the consumer that reads a topic to its end: the lanes topic, and in an audit the source."""
    return (
        Setting("group.id", group, "the job may use this group anyway; the consumer joins and commits nothing"),
        Setting("enable.auto.commit", "false", "reading a topic moves no position"),
        Setting("isolation.level", "read_committed", "a lane's record exists only together with its first position"),
        Setting("auto.offset.reset", "earliest", "a topic is read from its start"),
        Setting("enable.partition.eof", "true", "the reader has to know when it has read the whole topic"),
    )


_READ_COMMITTED = Setting(
    "isolation.level", "read_committed", "skips records of open and aborted transactions, which do not count as written"
)
_NO_AUTO_COMMIT = "a position moves when the work is done, not when a timer fires"
_ALL_ACKS = Setting("acks", "all", "an acknowledged record is on every replica in sync")
_IDEMPOTENCE = Setting("enable.idempotence", "true", "a request that is sent again is written once, and in order")
_UNLIMITED_RETRIES = Setting("retries", "2147483647", "only the delivery time-out ends the retries")
_IN_ORDER = "the largest number with which an idempotent producer keeps the order"
_NO_RETRIES = "a request with an unknown outcome is not sent again, so it cannot arrive twice"
_NO_IDEMPOTENCE = "requires acknowledgements and retries, which are off"

_CREATES_NO_TOPICS = Setting(
    "allow.auto.create.topics",
    "false",
    "a misspelt topic is an error; by default it is created with the brokers' default replication",
)
EVERY_CLIENT: Settings = (
    _CREATES_NO_TOPICS,
    Setting("log_level", "0", "errors appear once, in the job's own log with their cause"),
    Setting(
        "socket.timeout.ms",
        "10000",
        "a broker that hangs keeps its connections open; after this time the request goes to another broker",
    ),
)

# The same under each guarantee.
CONSUMER: Settings = (
    _READ_COMMITTED,
    _CREATES_NO_TOPICS,
    Setting(
        "max.poll.records",
        "100000",
        "one poll returns the whole fetch; Spark discards what was fetched beyond this number",
    ),
    Setting(
        "max.partition.fetch.bytes",
        "2097152",
        "larger fetches fill a small heap, and collecting its garbage takes longer than further fetches; lowered if "
        "the fetches of all lanes exceed an eighth of the memory",
    ),
    Setting(
        "fetch.max.wait.ms",
        "1",
        "the records of a batch are already in the log; while the broker waits for more, Spark's next request waits",
    ),
    Setting(
        "auto.include.jmx.reporter",
        "false",
        "each lane has a consumer, and registering its metrics takes half of the CPU time of its creation",
    ),
)

PARTITIONER = Setting(
    "partitioner",
    "murmur2_random",
    "a key goes to the same partition as with Java clients, which keeps its order; null keys are spread",
)
_ERROR_REPORTS = Setting(
    "delivery.report.only.error", "true", "a report for each delivered record would cost more than the record"
)
_QUEUE: Settings = (
    PARTITIONER,
    _ERROR_REPORTS,
    Setting("queue.buffering.max.messages", "500000", "a batch is queued while it is sent"),
    Setting("queue.buffering.max.kbytes", "262144", "limits the memory of one task's producer to 256 MiB"),
    Setting("linger.ms", "5", "fills requests; a commit flushes without waiting"),
    Setting("compression.type", "none", "compression costs the task's time, and the network is rarely the limit"),
)
_TRANSACTION_TIMEOUT = Setting(
    "transaction.timeout.ms",
    str(TRANSACTION_TIMEOUT_MS),
    "the transaction of a dead task is aborted after this time and no longer blocks read_committed readers",
)
_DELIVERY_TIMEOUT = Setting(
    "delivery.timeout.ms", str(TRANSACTION_TIMEOUT_MS), "a record that outlives its transaction cannot be committed"
)
# librdkafka repeats its request to the coordinator at the pace of retry.backoff.ms. A new producer opens a connection
# after half of reconnect.backoff.ms on average.
_BACKOFF: Settings = (
    Setting(
        "retry.backoff.ms",
        "5",
        "a coordinator that still completes the last transaction gets the next request at once: 10 ms instead of 106",
    ),
    Setting("retry.backoff.max.ms", "100", "keeps the back-off short when a coordinator moves"),
    Setting(
        "reconnect.backoff.ms", "10", "a new producer connects sooner: a lane is initialised in 25 ms instead of 60"
    ),
)
# Producers that commit positions and no rows: claims (at-most-once), advances (at-least-once), settlements.
POSITIONS_PRODUCER: Settings = (
    _ALL_ACKS,
    _IDEMPOTENCE,
    *_BACKOFF,
    PARTITIONER,
    _ERROR_REPORTS,
    _TRANSACTION_TIMEOUT,
    _DELIVERY_TIMEOUT,
)
# Of producers that write each row once and in order.
_ONCE: Settings = (_ALL_ACKS, _IDEMPOTENCE, Setting("max.in.flight", "5", _IN_ORDER), _UNLIMITED_RETRIES)
_TASK_PRODUCER: Settings = (
    *_ONCE,
    _TRANSACTION_TIMEOUT,
    _DELIVERY_TIMEOUT,
    *_BACKOFF,
    *_QUEUE,
)
_PLAIN_PRODUCER: Settings = (
    Setting("acks", "0", "a record is sent once, without waiting for an acknowledgement"),
    # With acks=all a record would be sent again whatever retries says: librdkafka counts a record that the leader gave
    # up while it waited for its replicas as not written, and the next leader may have it
    # (rd_kafka_handle_Produce_error).
    Setting("retries", "0", _NO_RETRIES),
    Setting("enable.idempotence", "false", _NO_IDEMPOTENCE),
    Setting("max.in.flight", "5", "without retries any number keeps the order"),
    Setting(
        "delivery.timeout.ms",
        str(TRANSACTION_TIMEOUT_MS),
        "a record that no broker accepts is abandoned after this time and counted",
    ),
    *_QUEUE,
)
# Of the producer of a stateful pipeline's driver, whose pod has the workers of all tasks in the same memory.
STATE_QUEUE_KBYTES = 64 * 1024
# Of the producer of a stateful pipeline's driver, for output that is written before its batch is decided
# (at-least-once).
STATE_PRODUCER: Settings = (
    *_ONCE,
    Setting(
        "delivery.timeout.ms",
        str(DELIVERY_TIMEOUT_MS),
        "longer than the election of a new leader; after this time the batch fails and runs again",
    ),
    *_QUEUE,
)
_SPARK_SINK: Settings = (
    _ALL_ACKS,
    _IDEMPOTENCE,
    _UNLIMITED_RETRIES,
    Setting(
        "delivery.timeout.ms",
        str(DELIVERY_TIMEOUT_MS),
        "longer than the election of a new leader; after this time the task fails and runs again",
    ),
    Setting("max.in.flight.requests.per.connection", "5", _IN_ORDER),
)
# Of dead letters that are written outside of a transaction, before the positions move (at-least-once).
DEAD_LETTER_PRODUCER: Settings = (
    _ALL_ACKS,
    _IDEMPOTENCE,
    Setting("max.in.flight", "5", _IN_ORDER),
    _UNLIMITED_RETRIES,
    Setting(
        "delivery.timeout.ms",
        str(DELIVERY_TIMEOUT_MS),
        "longer than the election of a new leader; after this time the task fails and runs again",
    ),
    PARTITIONER,
    Setting("linger.ms", "5", "fills requests; a task flushes its dead letters without waiting"),
    Setting("message.max.bytes", "1000000000", "the driver lowers it to the topic's max.message.bytes"),
)
_SPARK: Settings = (
    Setting("spark.speculation", "false", "a second copy of a task would repeat the work and be fenced"),
    Setting(
        "spark.sql.adaptive.enabled",
        "false",
        "a task must stay the ranges that the driver knows; adaptive execution merges and splits tasks",
    ),
    Setting(
        "spark.sql.adaptive.streaming.stateless.enabled",
        "false",
        "the same for stateless streams, which have a separate switch since Spark 4.1, on by default",
    ),
    Setting("spark.sql.ansi.enabled", "true", "an overflow or a bad cast fails instead of writing a silent null"),
    Setting(
        TIME_ZONE,
        DEFAULT_TIME_ZONE,
        "the same record gives the same output on every machine, and in the audit",
    ),
    Setting(
        "spark.kafka.consumer.cache.capacity",
        "10000",
        "batches within a minute share a lane's consumer; by default Spark closes some with more than 64 lanes",
    ),
    # Not longer with a longer trigger.interval: each failed attempt leaves its own consumers in memory for this time.
    *(
        Setting(f"spark.kafka.consumer.{name}", value, "what a failed query has read leaves the memory")
        for name, value in (
            ("cache.timeout", "1m"),
            ("cache.evictorThreadRunInterval", "1s"),  # each run closes at most ten consumers
            ("fetchedData.cache.timeout", "1m"),
            ("fetchedData.cache.evictorThreadRunInterval", "15s"),
        )
    ),
    Setting("spark.python.worker.reuse", "true", "a Python worker keeps its producers ready between batches"),
    Setting(
        "spark.python.daemon.module",
        "ackwright_stream.worker_daemon",
        "Python workers start with their imports done, and detect a task whose input was cut off",
    ),
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        "2m",
        "Python works on one part of the rows while Spark reads the next, and large rows do not fill the memory",
    ),
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "Spark's default starts ten processes (readlink, chmod) for each entry of a log that is deleted with the query",
    ),
    Setting(
        "spark.ui.enabled", "false", "no port is open that the pipeline does not need; the job serves its progress"
    ),
    Setting("spark.ui.killEnabled", "false", "on Spark's page, if it is on, nobody stops the query or a batch"),
    Setting(
        "spark.redaction.regex",
        "(?i)secret|password|token|access[.]?key|jaas|credential",
        "no credential appears in Spark's logs",
    ),
)
# Options of the writer of an unbounded query; a bounded one cannot have them.
STREAM_OPTIONS: Settings = (
    Setting(
        "asyncProgressTrackingEnabled",
        "true",
        "nothing reads Spark's logs of its batches, so no batch waits for them (Spark's guide, asynchronous progress)",
    ),
    Setting("asyncProgressTrackingCheckpointIntervalMs", "3600000", "the logs are written once an hour"),
    Setting(
        "_asyncProgressTrackingOverrideSinkSupportCheck",
        "true",
        "undocumented: Spark offers this for its own Kafka sink, and with this option for others",
    ),
)


def _task_retries(times: str, reason: str) -> Setting:
    return Setting("spark.task.maxFailures", times, reason)


_HALTS_ON_DATA_LOSS = Setting(
    "failOnDataLoss", "true", "records that expired before they were read are lost: the pipeline halts and reports it"
)
STATE_SOURCE: Settings = (_HALTS_ON_DATA_LOSS,)  # under each guarantee: the state counts every record
_UPSTREAM_SAFE: Settings = (
    Setting("acks", "all", "an acknowledged record survives the loss of as many brokers as the topic tolerates"),
    _IDEMPOTENCE,
    _UNLIMITED_RETRIES,
    Setting(
        "delivery.timeout.ms",
        str(DELIVERY_TIMEOUT_MS),
        "after this time the application gets an error; it must keep a record until it is acknowledged",
    ),
    Setting("max.in.flight.requests.per.connection", "5", _IN_ORDER),
)
_DOWNSTREAM_SAFE: Settings = (
    _READ_COMMITTED,
    Setting("enable.auto.commit", "false", _NO_AUTO_COMMIT),
    Setting(
        "auto.offset.reset",
        "earliest",
        "the default, latest, skips what was written before the reader's first start",
    ),
)

TERMS: Mapping[Guarantee, GuaranteeTerms] = {
    Guarantee.AT_MOST_ONCE: GuaranteeTerms(
        promise=PROMISES[Guarantee.AT_MOST_ONCE],
        acks="0",
        allowed_acks=("0", "1"),
        order="before",
        order_reason="a batch whose claim may have failed is not processed, so no record arrives twice",
        state_order_reason="a micro-batch whose decision may have failed writes nothing, so no row arrives twice",
        offsets_per_transaction=None,
        producer=_PLAIN_PRODUCER,
        sink=(),
        source=(
            Setting("failOnDataLoss", "false", "records that expired before they were read are counted and skipped"),
        ),
        spark=(_task_retries("1", "a task runs once; a second run would be refused by its claim"), *_SPARK),
        upstream=(
            Setting("acks", "0", "a record is sent once, without waiting for an acknowledgement"),
            Setting("retries", "0", _NO_RETRIES),
            Setting("enable.idempotence", "false", _NO_IDEMPOTENCE),
        ),
        downstream=(
            _READ_COMMITTED,
            Setting(
                "enable.auto.commit",
                "false",
                "commit before the records are processed, so that a crash does not repeat them",
            ),
            Setting("auto.offset.reset", "latest", "after the loss of a position no record may be read a second time"),
        ),
    ),
    Guarantee.AT_LEAST_ONCE: GuaranteeTerms(
        promise=PROMISES[Guarantee.AT_LEAST_ONCE],
        acks="all",
        allowed_acks=("1", "all"),
        order="after",
        order_reason="only acknowledged records count as read; one transaction moves all lanes, and only forwards",
        state_order_reason="a micro-batch is decided when its output is acknowledged; the decision chooses the state",
        offsets_per_transaction=None,
        producer=(),
        sink=_SPARK_SINK,
        source=(_HALTS_ON_DATA_LOSS,),
        spark=(
            _task_retries("4", "a failed task runs again; its records may arrive twice, and none is lost"),
            *_SPARK,
        ),
        upstream=_UPSTREAM_SAFE,
        downstream=_DOWNSTREAM_SAFE,
    ),
    Guarantee.EXACTLY_ONCE: GuaranteeTerms(
        promise=PROMISES[Guarantee.EXACTLY_ONCE],
        acks="all",
        allowed_acks=("all",),
        order="together",
        order_reason="position and output commit as one or not at all, so no crash can separate them",
        state_order_reason="position, decision and output commit as one or not at all, so no crash can separate them",
        offsets_per_transaction=OFFSETS_PER_TRANSACTION,
        producer=_TASK_PRODUCER,
        sink=(),
        source=(_HALTS_ON_DATA_LOSS,),
        spark=(
            _task_retries("4", "a failed task runs again; its lanes' positions show whether it had committed"),
            *_SPARK,
        ),
        upstream=replaced(
            _UPSTREAM_SAFE,
            "delivery.timeout.ms",
            str(TRANSACTION_TIMEOUT_MS),
            "after this time the application gets an error; at most transaction.timeout.ms, for a transactional.id",
        ),
        downstream=_DOWNSTREAM_SAFE,
    ),
}
