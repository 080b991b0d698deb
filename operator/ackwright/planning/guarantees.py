"""What each guarantee compiles to: design section 2 as one table, each setting with the reason why it is there.

Names are librdkafka's for what the job produces and reads itself, Java's for what Spark's Kafka connector does, Spark's for Spark.
Times are in milliseconds, as Kafka has them. Sources: KIP-98 (idempotence, transactions), KIP-447 (require_stable), KIP-890 (its gaps).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ackwright_stream.jobspec import Guarantee

Acks = Literal["0", "1", "all"]

# Kafka's brokers refuse more than transaction.max.timeout.ms, 15 minutes unless configured.
TRANSACTION_TIMEOUT_MS = 60_000
# message.max.bytes of a broker: larger than either client's default, so a record that the source took could not be passed on.
BROKER_MESSAGE_MAX_BYTES = 1_048_588


@dataclass(frozen=True)
class Setting:
    """A setting of a client, a topic or Spark, and what it protects against."""

    name: str
    value: str
    reason: str


Settings = tuple[Setting, ...]


@dataclass(frozen=True)
class Terms:
    """The settings of one guarantee.

    acks: of the sink, unless chosen; allowed_acks: what may be chosen. producer: the lanes' producers (librdkafka); sink: Spark's own
    Kafka sink (Java); source: options of Spark's Kafka source. upstream, downstream: for the applications at both ends, in names that
    Java clients and librdkafka share. reader: what the reader of the output has to do, in words.
    """

    acks: Acks
    allowed_acks: tuple[Acks, ...]
    position: str
    after_a_crash: str
    reader: str
    producer: Settings
    sink: Settings
    source: Settings
    spark: Settings
    commit: Settings
    upstream: Settings
    downstream: Settings


def replaced(settings: Settings, name: str, value: str, reason: str) -> Settings:
    """The settings with one of them replaced, in its place, or added at the end."""
    new = Setting(name, value, reason)
    if all(s.name != name for s in settings):
        return (*settings, new)
    return tuple(new if s.name == name else s for s in settings)


_READ_COMMITTED = Setting(
    "isolation.level",
    "read_committed",
    "records of open and aborted transactions were never written; they are not read",
)
_NO_AUTO_COMMIT = "a position moves when the work is done, not when a timer fires"

# Spark's source and the consumer that reads positions are the same under each guarantee.
CONSUMER: Settings = (
    _READ_COMMITTED,
    Setting(
        "allow.auto.create.topics",
        "false",
        "reading a topic that is missing must say so, not create it with the brokers' defaults",
    ),
    Setting(
        "max.poll.records",
        "100000",
        "after each poll Spark throws away what was fetched beyond it, so a poll takes the whole fetch",
    ),
    Setting(
        "max.partition.fetch.bytes", "4194304", "and a fetch takes most of a lane's range; 4 MiB bound a task's memory"
    ),
    Setting(
        "fetch.max.wait.ms",
        "10",
        "what a task reads is there; a fetch that waits for more holds up Spark's next question by as much",
    ),
)
POSITIONS_CONSUMER: Settings = (
    Setting(
        "isolation.level",
        "read_committed",
        "sets require_stable (KIP-447): a position whose transaction is still open is waited for",
    ),
    Setting("enable.auto.commit", "false", "a position moves only in a transaction"),
)

_QUEUE: Settings = (
    Setting(
        "partitioner",
        "murmur2_random",
        "a key goes to the partition to which Java clients send it; null keys are spread",
    ),
    Setting(
        "delivery.report.only.error", "true", "a report for each record that arrived would cost more than the record"
    ),
    Setting(
        "queue.buffering.max.messages",
        "500000",
        "a batch is queued while it is sent; produce_batch takes no more than fits",
    ),
    Setting("queue.buffering.max.kbytes", "262144", "bounds the memory of one lane's producer to 256 MiB"),
    Setting("linger.ms", "5", "fuller requests; a commit flushes without waiting"),
    Setting("compression.type", "none", "the network is rarely the limit; compressing costs the task's time"),
)
_LANE_PRODUCER: Settings = (
    Setting("acks", "all", "an acknowledged record is on every replica in sync"),
    Setting("enable.idempotence", "true", "a request that is sent again is written once, and in order"),
    Setting("max.in.flight", "5", "the most at which an idempotent producer keeps the order"),
    Setting("retries", "2147483647", "only the delivery time-out ends the attempts"),
    Setting(
        "transaction.timeout.ms",
        str(TRANSACTION_TIMEOUT_MS),
        "a dead task's transaction blocks read_committed readers no longer",
    ),
    Setting(
        "delivery.timeout.ms", str(TRANSACTION_TIMEOUT_MS), "a record that outlives its transaction cannot be committed"
    ),
    Setting(
        "retry.backoff.ms",
        "5",
        "a coordinator still completing the last transaction is asked again at once: 10 ms instead of 106",
    ),
    Setting("retry.backoff.max.ms", "100", "keeps the back-off short when a coordinator moves"),
    Setting("reconnect.backoff.ms", "10", "paces a new producer's connections: a lane is taken in 25 ms instead of 60"),
)
_PLAIN_PRODUCER: Settings = (
    Setting("acks", "0", "nothing is awaited: a record is sent once"),
    # With acks=all it would be, whatever retries says: one that the leader gave up while it waited for its replicas counts as not written
    # for librdkafka, and the next leader may have it (rd_kafka_handle_Produce_error).
    Setting("retries", "0", "a request whose outcome is unknown is not sent again, so it cannot arrive twice"),
    Setting("enable.idempotence", "false", "needs acknowledgements and retries, which would be in vain here"),
    Setting("max.in.flight", "5", "without retries any number keeps the order"),
    Setting(
        "delivery.timeout.ms", str(TRANSACTION_TIMEOUT_MS), "a record that no broker takes is given up and counted"
    ),
)
_SPARK_SINK: Settings = (
    Setting("acks", "all", "an acknowledged record is on every replica in sync"),
    Setting("enable.idempotence", "true", "a request that is sent again is written once, and in order"),
    Setting("retries", "2147483647", "only the delivery time-out ends the attempts"),
    Setting(
        "delivery.timeout.ms",
        "120000",
        "longer than the election of a new leader; after it the task fails and runs again",
    ),
    Setting("max.in.flight.requests.per.connection", "5", "the most at which an idempotent producer keeps the order"),
)
_SPARK: Settings = (
    Setting(
        "spark.speculation",
        "false",
        "a second copy of a task does the same work again, and loses against the lane's fence",
    ),
    Setting(
        "spark.sql.adaptive.enabled",
        "false",
        "a task must stay one lane's range; adaptive execution merges and splits tasks",
    ),
    Setting(
        "spark.sql.adaptive.streaming.stateless.enabled",
        "false",
        "on by default since Spark 4.1, for stateless streams apart",
    ),
    Setting("spark.sql.ansi.enabled", "true", "an overflow or a bad cast fails instead of writing a silent null"),
    Setting(
        "spark.sql.session.timeZone", "UTC", "the same record gives the same output on every machine, and in the audit"
    ),
    Setting("spark.python.worker.reuse", "true", "a Python worker keeps its producers ready between batches"),
    Setting(
        "spark.python.daemon.module",
        "ackwright_stream.worker_daemon",
        "Python workers are forked with their imports done, and know whether they got all rows of a task",
    ),
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "the other one starts ten processes (readlink, chmod) for each entry of a log that nobody needs after the query",
    ),
    Setting(
        "spark.ui.enabled",
        "false",
        "nothing listens that the pipeline does not need; progress is served by the job itself",
    ),
    Setting(
        "spark.redaction.regex",
        "(?i)secret|password|token|access[.]?key|jaas|credential",
        "no credential appears in Spark's logs",
    ),
)


def _task_retries(times: str, reason: str) -> Setting:
    return Setting("spark.task.maxFailures", times, reason)


def _data_loss(fail: str, reason: str) -> Setting:
    return Setting("failOnDataLoss", fail, reason)


def _advance(order: str, transactional_id: str, reason: str) -> Settings:
    return (
        Setting("advance", order, reason),
        Setting(
            "transactional.id",
            transactional_id,
            "initialising it fences whoever had it: a driver or task that was given up cannot write",
        ),
        Setting("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS), "an advance that is left open ends by itself"),
        Setting(
            "offset metadata", "topic id, driver incarnation", "a replaced topic and a newer driver are recognised"
        ),
    )


_UPSTREAM_SAFE: Settings = (
    Setting("acks", "all", "a record that is acknowledged survives the loss of brokers that the topic tolerates"),
    Setting("enable.idempotence", "true", "a request that is sent again is written once, and in order"),
    Setting("retries", "2147483647", "only the delivery time-out ends the attempts"),
    Setting(
        "delivery.timeout.ms",
        "120000",
        "after it the application is told, and has to decide: keep the record until it is acknowledged",
    ),
    Setting("max.in.flight.requests.per.connection", "5", "the most at which an idempotent producer keeps the order"),
)
_DOWNSTREAM_SAFE: Settings = (
    _READ_COMMITTED,
    Setting("enable.auto.commit", "false", _NO_AUTO_COMMIT),
    Setting(
        "auto.offset.reset", "earliest", "the default, latest, skips what was written before the reader first came"
    ),
)

TERMS: Mapping[Guarantee, Terms] = {
    Guarantee.AT_MOST_ONCE: Terms(
        acks="0",
        allowed_acks=("0", "1"),
        position="before the lane's records are processed",
        after_a_crash="the claimed batch is never read again",
        reader="nothing",
        producer=(*_PLAIN_PRODUCER, *_QUEUE),
        sink=(),
        source=(_data_loss("false", "records that expired before they were read are counted; the pipeline goes on"),),
        spark=(_task_retries("1", "a task that ran is not run again; its claim would refuse it anyhow"), *_SPARK),
        commit=_advance(
            "before",
            "<group>/<topic>-<partition>",
            "a claim whose commit is not known to have succeeded means: not processed; no record twice",
        ),
        upstream=(
            Setting("acks", "0", "nothing is awaited: a record is sent once"),
            Setting("retries", "0", "a request whose outcome is unknown is not sent again, so it cannot arrive twice"),
            Setting("enable.idempotence", "false", "needs acknowledgements and retries, which would be in vain here"),
        ),
        downstream=(
            _READ_COMMITTED,
            Setting(
                "enable.auto.commit",
                "false",
                "commit before the records are processed: what was begun is not read again",
            ),
            Setting(
                "auto.offset.reset", "latest", "a position that was lost must not bring back records that were read"
            ),
        ),
    ),
    Guarantee.AT_LEAST_ONCE: Terms(
        acks="all",
        allowed_acks=("1", "all"),
        position="after the sink has acknowledged the batch",
        after_a_crash="the unacknowledged batch is read again",
        reader="deduplicate, or upsert by key",
        producer=(),
        sink=_SPARK_SINK,
        source=(
            _data_loss("true", "records that expired before they were read are lost: the pipeline halts and says so"),
        ),
        spark=(
            _task_retries("4", "a task that failed is run again; its records may come twice, and none is lost"),
            *_SPARK,
        ),
        commit=_advance(
            "after",
            "<group>",
            "only what the sink has acknowledged counts as read; one transaction for all lanes, only forwards",
        ),
        upstream=_UPSTREAM_SAFE,
        downstream=_DOWNSTREAM_SAFE,
    ),
    Guarantee.EXACTLY_ONCE: Terms(
        acks="all",
        allowed_acks=("all",),
        position="in the same transaction as the output",
        after_a_crash="only lanes that had not committed run again",
        reader="isolation.level=read_committed",
        producer=(*_LANE_PRODUCER, *_QUEUE),
        sink=(),
        source=(
            _data_loss("true", "records that expired before they were read are lost: the pipeline halts and says so"),
        ),
        spark=(
            _task_retries("4", "a task that failed is run again; the lane's position tells whether it had committed"),
            *_SPARK,
        ),
        commit=_advance(
            "together",
            "<group>/<topic>-<partition>",
            "position and output are committed or not, as one: no crash falls between them",
        ),
        upstream=replaced(
            _UPSTREAM_SAFE,
            "delivery.timeout.ms",
            str(TRANSACTION_TIMEOUT_MS),
            "after it the application has to decide; no longer than transaction.timeout.ms, so that a transactional.id may be added",
        ),
        downstream=_DOWNSTREAM_SAFE,
    ),
}


def values(settings: Settings) -> dict[str, str]:
    """Names to values, as a client takes them."""
    return {s.name: s.value for s in settings}
