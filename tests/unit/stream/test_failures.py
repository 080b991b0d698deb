"""The reason and the sentence for the user, from Spark's text."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException, QueryContextType

from ackwright_stream.errors import JobError
from ackwright_stream.failures import cause
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import LostTopic

ANSI_OFF = 'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error.'
NULLIF = "correct spec.transform for such records, for example with nullif(divisor, 0)"
TRY_CAST = "correct spec.transform for such records, for example with try_cast(value AS type), which returns null"
RAISED = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "features.py", line 12, in check
    raise RuntimeError("the service is away")
           ^^^^^^^^^^^^
RuntimeError: the service is away

JVM stacktrace:
org.apache.spark.SparkException: Job aborted
"""
STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
PYTHON = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
ackwright_stream.errors.JobError: PositionLost: lane t-0 has no position
\tat org.apache.spark.api.python.BasePythonRunner"""


def test_a_known_cause_is_passed_on_unchanged() -> None:
    error = JobError(Reason.DATA_EXPIRED, "gone")
    assert cause(error) is error


TASK = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage "
    "3.0 (TID 9) (host executor driver): org.apache.spark.SparkException: "
)
LOADING = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.  SQLSTATE: 58030\n\tat x\n"
DATA = "org.rocksdb.RocksDBException: block checksum mismatch: stored = 1, computed = 2 in /tmp/8.sst\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{LOADING}Caused by: org.apache.spark.SparkException: [CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] "
            "Checksum verification failed, the file may be corrupted. File: file:/s/1.changelog SQLSTATE: XX000\n",
            "[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] Checksum verification failed, the file may be corrupted. "
            "File: file:/s/1.changelog",
        ),
        (f"Caused by: {DATA}", DATA.removeprefix("org.rocksdb.RocksDBException: ").strip()),
        (f"{LOADING}Caused by: java.io.EOFException\n\tat x", "EOFException"),
        (f"{LOADING}Caused by: java.io.IOException: Input/output error\n", "IOException: Input/output error"),
        (
            "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred during loading state. Error "
            "reading it: it does not exist. SQLSTATE: 58030\nCaused by: java.io.FileNotFoundException: "
            "open s3a://lake/s/2.changelog: software.amazon.awssdk.services.s3.model.NoSuchKeyException: 404\n\tat x",
            "FileNotFoundException: open s3a://lake/s/2.changelog: software.amazon.awssdk.services.s3.model."
            "NoSuchKeyException: 404",
        ),
    ],
)
def test_state_that_spark_cannot_load_is_lost(text: str, message: str) -> None:
    error = cause(Exception(f"{TASK}{text}"))
    assert (error.reason, error.fingerprint) == (Reason.STATE_LOST, None)
    assert error.message == message


class OfSpark(Exception):
    """An error of Spark's, as PySpark raises it."""

    def __init__(self, text: str, causes: str) -> None:
        super().__init__(text)
        self._stackTrace = f"org.apache.spark.sql.streaming.StreamingQueryException: null\n{causes}"


OF_TYPES = (
    "\tat java.base/java.io.DataInputStream.readUTF(DataInputStream.java:583)\n"
    "\tat org.apache.spark.sql.execution.streaming.state.StateSchemaCompatibilityChecker$.readSchemaFile(x.scala:323)\n"
)


@pytest.mark.parametrize(
    ("cause_", "text", "reason", "message"),
    [
        ("java.io.EOFException", f"{STREAM} SQLSTATE: XXKST", Reason.STATE_LOST, "is damaged: EOFException"),
        (
            "org.apache.spark.SparkIllegalArgumentException: [UNSUPPORTED_DATATYPE] Unsupported data type stluct.",
            f"{STREAM}[UNSUPPORTED_DATATYPE] Unsupported data type stluct. SQLSTATE: 0A000",
            Reason.STATE_LOST,
            "is damaged: [UNSUPPORTED_DATATYPE] Unsupported data type stluct.",
        ),
        ("java.net.SocketException: Connection reset", STREAM, Reason.STATE_UNREACHABLE, "Connection reset"),
        ("java.io.IOException: Too many open files", STREAM, Reason.BATCH_FAILED, ""),
        ("java.io.EOFException", f"{TASK}[CAST_INVALID_INPUT] The value", Reason.BATCH_FAILED, ""),  # quotes a record
    ],
)
def test_types_of_the_state_that_spark_cannot_read_are_lost_state(
    cause_: str, text: str, reason: Reason, message: str
) -> None:
    error = cause(OfSpark(text, f"Caused by: {cause_}\n{OF_TYPES}"))
    assert (error.reason, error.fingerprint) == (reason, None)
    assert message in error.message


@pytest.mark.parametrize(
    "condition",
    [
        "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match existing state value schema.",
        "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match existing state key schema.",
        "[STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE] Cannot change latest to ListStateV1 between query restarts.",
        "[STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE] The streaming query failed to validate written state for "
        "value row.",
        "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] Streaming stateful operator name does not match.",
    ],
)
def test_state_with_other_types_than_the_transform_has_is_lost(condition: str) -> None:
    """A Python function has changed under the same name, or a readable file of types is not that of the state."""
    error = cause(Exception(f"{STREAM}{condition} SQLSTATE: 42K06"))
    assert (error.reason, error.fingerprint) == (Reason.STATE_LOST, None)
    assert "the transform does not fit to the stored state" in error.cause
    assert "undo the change of the transform" in error.explanation
    assert condition.partition("] ")[2] in error.message
    quoted = cause(Exception(f"{TASK}[CAST_INVALID_INPUT] The value ': {condition}' cannot be cast. SQLSTATE: 22018"))
    assert quoted.reason is Reason.BATCH_FAILED


def test_a_connection_that_ends_while_state_is_read_is_not_lost_state() -> None:
    ended = "org.apache.http.ConnectionClosedException: Premature end of Content-Length delimited message body"
    error = cause(Exception(f"{TASK}{LOADING}Caused by: {ended} (expected: 9; received: 4)\n\tat x"))
    assert error.reason is Reason.STATE_UNREACHABLE
    assert error.message.startswith(ended)


@pytest.mark.parametrize(
    "text",
    [
        f"{LOADING}Caused by: java.io.IOException: No space left on device\n",
        f"{LOADING}Caused by: java.io.FileNotFoundException: /tmp/x (Too many open files)\n",
        "[CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY] Could not load RocksDB state store with id 0\n",
        f"[CAST_INVALID_INPUT] The value ': {LOADING}' cannot be cast to INT. SQLSTATE: 22018",  # quotes a record
        f"[CAST_INVALID_INPUT] The value ': {DATA}' cannot be cast to INT. SQLSTATE: 22018",
        "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Cannot commit.\nCaused by: java.io.IOException: Stale handle\n",
    ],
)
def test_a_failure_of_the_machine_is_not_lost_state(text: str) -> None:
    assert cause(Exception(f"{TASK}{text}")).reason is Reason.BATCH_FAILED


@pytest.mark.parametrize(
    "text",
    [
        "An error occurred while calling o1.exists.\n: ",
        f"{STREAM}[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Cannot perform commit. SQLSTATE: 58030\nCaused by: ",
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in "
        "stage 1.0 (TID 7) (host executor driver): ",
        f"{TASK}{LOADING}Caused by: ",
    ],
)
def test_the_bucket_of_the_state_is_named(text: str) -> None:
    of_bucket = (
        "java.net.ConnectException: getFileStatus on s3a://lake/state/p: software.amazon.awssdk.core.exception."
        "SdkClientException: Unable to execute HTTP request: Connect to minio:9000 failed"
    )
    error = cause(Exception(f"{text}{of_bucket}\n\tat org.apache.hadoop.fs.s3a.S3AUtils"))
    assert error.reason is Reason.STATE_UNREACHABLE
    assert error.message.startswith("java.net.ConnectException: getFileStatus on s3a://lake/state/p: ")
    assert "minio:9000 failed; check checkpoint.uri" in error.message


def test_an_executor_that_is_gone_is_named() -> None:
    text = (
        "An error occurred while calling o86.getResult.\n: org.apache.spark.SparkException: Job aborted due to stage "
        "failure: ResultStage 7 (collect at a.py:1) has failed the maximum allowable number of times: 1. Most recent "
        "failure reason:\norg.apache.spark.shuffle.FetchFailedException: Failed to connect to /10.0.0.7:7079\n\tat x"
    )
    error = cause(Exception(text))
    assert error.reason is Reason.BATCH_FAILED
    assert "an executor is gone whose output the batch needs (org.apache.spark.shuffle.FetchFailedException: " in (
        error.message
    )
    assert "/10.0.0.7:7079)" in error.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[USER_RAISED_EXCEPTION] MalformedRecord: begins: x SQLSTATE: P0001", "begins: x"),
        ("[USER_RAISED_EXCEPTION] MalformedRecord: begins: x SQLSTATE: P0001'", "begins: x"),
        (
            "[USER_RAISED_EXCEPTION] MalformedRecord: begins: SQLSTATE: 00000 SQLSTATE: P0001",
            "begins: SQLSTATE: 00000",
        ),
        ("[USER_RAISED_EXCEPTION] MalformedRecord: begins: x'", "begins: x"),
        ("[USER_RAISED_EXCEPTION] MalformedRecord: begins: 'x' SQLSTATE: P0001", "begins: 'x'"),
        ("[NO_TABLE] There is no table. SQLSTATE: 42P01", "There is no table. (NO_TABLE)"),
        ("[NO_TABLE] There is no table. SQLSTATE: 42P01'", "There is no table. (NO_TABLE)"),
        ("[NO_COLUMN] There is no column 'a'", "There is no column 'a' (NO_COLUMN)"),
    ],
)
def test_the_message_ends_without_sparks_class_of_the_error(text: str, message: str) -> None:
    assert cause(Exception(f"{STREAM}{text}")).message == message


class Context:
    """As pyspark's context of an error in SQL."""

    def __init__(self, kind: QueryContextType, fragment: str) -> None:
        self.contextType = lambda: kind
        self.fragment = lambda: fragment


class InSql(PySparkException):  # type: ignore[misc]
    """As pyspark's exceptions, without the JVM that has their context and their cause."""

    def __init__(self, text: str, *contexts: Context, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self._cause, self._contexts = cause, contexts

    def getQueryContext(self) -> list[Any]:
        return list(self._contexts)


DIVISION = (
    "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead. "
    f"{ANSI_OFF}"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{DIVISION} SQLSTATE: 22012\n== SQL (line 1", f"Division by zero (DIVIDE_BY_ZERO); {NULLIF}"),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012'", f"Division by zero (DIVIDE_BY_ZERO); {NULLIF}"),
        (
            '[CAST_INVALID_INPUT] The value \'Use `try_cast` to x.\' of the type "STRING" cannot be cast to "INT" '
            "because it is malformed. Correct the value as per the syntax, or change its target type. "
            "Use `try_cast` to tolerate malformed input and return NULL instead. SQLSTATE: 22018",
            'The value \'Use `try_cast` to x.\' of the type "STRING" cannot be cast to "INT" because it is malformed '
            f"(CAST_INVALID_INPUT); {TRY_CAST}",
        ),
        (
            f"[ARITHMETIC_OVERFLOW] integer overflow. Use 'try_add' to tolerate overflow and return NULL instead. "
            f"{ANSI_OFF} SQLSTATE: 22003",
            "integer overflow (ARITHMETIC_OVERFLOW); correct spec.transform for such records, for example by casting "
            "an operand to a larger type",
        ),
        (
            f"[NEW_CONDITION] No such day. {ANSI_OFF} SQLSTATE: 22023",
            "No such day (NEW_CONDITION); correct spec.transform for such records",
        ),
        (
            "[INVALID_URL] The url is invalid: x. Use `try_parse_url` to tolerate invalid URL and return NULL instead.",
            "The url is invalid: x. Use `try_parse_url` to tolerate invalid URL and return NULL instead. (INVALID_URL)",
        ),
    ],
)
def test_a_value_that_cannot_be_computed_gets_our_remedy_instead_of_sparks(text: str, message: str) -> None:
    assert cause(Exception(f"{STREAM}{text}")).message == message


def test_the_sql_that_failed_is_named_also_from_the_error_of_a_task() -> None:
    task = InSql(DIVISION, Context(QueryContextType.DataFrame, "divide"), Context(QueryContextType.SQL, "a\n  DIV b"))
    expected = f"Division by zero (DIVIDE_BY_ZERO) in a DIV b; {NULLIF}"
    assert cause(task).message == expected
    assert cause(InSql(f"Job aborted due to stage failure: {DIVISION}", cause=task)).message == expected


def test_the_error_of_a_processors_init_is_that_of_python() -> None:
    """Spark says of it only that its worker has crashed."""
    outer, middle, inner = (
        Exception("TransformWithStateInPySpark driver worker exited unexpectedly (crashed)"),
        Exception("TransformWithStateInPySpark driver worker exited unexpectedly (crashed)"),
        Exception(
            "[STREAMING_PYTHON_RUNNER_INITIALIZATION_FAILURE] Streaming Runner initialization failed, returned -2. "
            'Cause: Traceback (most recent call last):\n  File "p.py", line 22, in init\n    raise ValueError("bad")\n'
            "ValueError: bad\n SQLSTATE: XXKST"
        ),
    )
    outer._cause, middle._cause = middle, inner  # type: ignore[attr-defined]
    error = cause(outer)
    assert (error.reason, error.message) == (Reason.BATCH_FAILED, "a Python worker failed: ValueError: bad")


def test_an_error_whose_context_went_with_the_jvm_is_reported_without_it() -> None:
    class Ended(InSql):
        def getQueryContext(self) -> list[Any]:
            raise Py4JNetworkError("the JVM has ended")

    assert cause(Ended(DIVISION)).message == f"Division by zero (DIVIDE_BY_ZERO); {NULLIF}"


@pytest.mark.parametrize(
    ("text", "reason", "message"),
    [
        (RAISED, Reason.BATCH_FAILED, "failed: RuntimeError: the service is away"),
        (RAISED.replace(": the service is away\n\n", "\n\n"), Reason.BATCH_FAILED, "failed: RuntimeError"),
        (PYTHON, Reason.POSITION_LOST, "lane t-0 has no position"),
        (
            f"{STREAM}[USER_RAISED_EXCEPTION] MalformedRecord: t-0@3 is not UTF-8 text; correct it SQLSTATE: P0001",
            Reason.MALFORMED_RECORD,
            "t-0@3 is not UTF-8 text",
        ),
        (
            "x\norg.apache.kafka.common.errors.SaslAuthenticationException: no such user\ny",
            Reason.AUTHENTICATION_FAILED,
            "no such user",
        ),
        ("org.apache.kafka.common.errors.SslAuthenticationException: PKIX", Reason.AUTHENTICATION_FAILED, "PKIX"),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: [t]", Reason.AUTHORIZATION_FAILED, "[t]"),
        ("UnknownTopicOrPartitionException: gone", Reason.TOPIC_MISSING, "gone"),
        ("org.apache.kafka.common.errors.TimeoutException: 60000 ms", Reason.BROKERS_UNREACHABLE, "60000 ms"),
        ("No resolvable bootstrap urls given", Reason.BROKERS_UNREACHABLE, "bootstrap urls"),
        (f"{STREAM}\n[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", Reason.BATCH_FAILED, "Division by zero"),
        (
            "An error occurred while calling z:org.X.write. Trace:\n"
            "py4j.Py4JException: Method write([class A]) does not exist\n\tat",
            Reason.UNEXPECTED,
            "Method write([class A]) does not exist; use the image",
        ),
        ("Something else\n  of several lines", Reason.BATCH_FAILED, "Something else"),
        ("", Reason.BATCH_FAILED, "Exception()"),
    ],
)
def test_the_text_of_an_error_yields_its_cause(text: str, reason: Reason, message: str) -> None:
    error = cause(Exception(text) if text else Exception())
    assert error.reason is reason
    assert message in error.message
    assert "\n" not in error.message


def test_a_refused_login_is_the_cause_behind_the_long_prefix_of_spark() -> None:
    stage = (
        ": org.apache.spark.SparkException: Job aborted due to stage failure: "
        "Task 0 in stage 0.0 failed 4 times, most recent failure: "
    )
    refusal = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
    lost = (
        "Lost task 0.3 in stage 0.0 (TID 9) (198.18.2.6 executor 1): "
        "org.apache.kafka.common.errors.SaslAuthenticationException: "
    )
    error = cause(Exception(f"{stage}{lost}{refusal}\n\nDriver stacktrace:"))
    remedy = "check the user name, the password, the CA certificate and the host names"
    assert error.message == f"SaslAuthenticationException: {refusal}; {remedy}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[STREAM_FAILED] exception: [USER_RAISED_EXCEPTION] MalformedRecord: t-0@3 is not UTF-8; "
            "It begins: JobError: Superseded: x",
            Reason.MALFORMED_RECORD,
        ),
        (
            "[CAST_INVALID_INPUT] The value 'JobError: BrokersUnreachable: x' "
            "of the type STRING cannot be cast to INT.",
            Reason.BATCH_FAILED,
        ),
        (
            "[CAST_INVALID_INPUT] The value 'SaslAuthenticationException' of the type STRING cannot be cast to INT.",
            Reason.BATCH_FAILED,
        ),
        (
            "x: [CAST_INVALID_INPUT] The value "
            "'upstream: org.apache.kafka.common.errors.TimeoutException: x' of STRING",
            Reason.BATCH_FAILED,
        ),
        (
            "x: [CAST_INVALID_INPUT] The value 'a: [USER_RAISED_EXCEPTION] MalformedRecord: x' of STRING",
            Reason.BATCH_FAILED,
        ),
        (RAISED.replace("the service is away", "bad record: SaslAuthenticationException: x"), Reason.BATCH_FAILED),
        (RAISED.replace("the service is away", "bad: [USER_RAISED_EXCEPTION] MalformedRecord: x"), Reason.BATCH_FAILED),
        (
            "[CAST_INVALID_INPUT] The value 'MalformedRecord: x' of the type STRING cannot be cast to INT.",
            Reason.BATCH_FAILED,
        ),
    ],
)
def test_what_a_record_says_is_not_the_reason(text: str, reason: Reason) -> None:
    assert cause(Exception(text)).reason is reason


CALL = (
    "An error occurred while calling o405.collectToPython.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure"
)
LOST = "most recent failure: Lost task 0.3 in stage 2.0 (TID 9) (h executor driver)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{CALL}: Task 0 failed 4 times, {LOST}: "
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n"
            "\tat org.X\nCaused by: java.io.EOFException\n",
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        ),
        (
            f"{CALL}.\n\tat org.X\nCaused by: java.lang.A: first\n\tat y\nCaused by: java.lang.B: last\n\tat z",
            "java.lang.B: last",
        ),
        (
            "An error occurred while calling z:org.X.write.\n: java.lang.C: no more\n\tat z",
            "z:org.X.write. : java.lang.C: no more",
        ),
    ],
)
def test_a_call_that_failed_is_not_the_cause(text: str, message: str) -> None:
    assert cause(Exception(text)).message.endswith(message)


@pytest.mark.parametrize(
    ("what", "reason", "remedy"),
    [
        (
            "Topic ordes",
            Reason.BROKERS_UNREACHABLE,
            "create it",
        ),  # which of the two it is, Kafka's client does not know
        ("Partition 5 of topic out with partition count 2 is", Reason.BATCH_FAILED, "give the topic more partitions"),
    ],
)
def test_missing_metadata_of_the_sink_is_reported_with_its_remedy(what: str, reason: Reason, remedy: str) -> None:
    timeout = f"{what} not present in metadata after 60000 ms."
    error = cause(Exception(f"x\nCaused by: org.apache.kafka.common.errors.TimeoutException: {timeout}"))
    assert error.reason is reason
    assert f"{what} not present in metadata" in error.message
    assert remedy in error.message


def test_a_record_that_is_too_large_for_the_java_producer_is_refused() -> None:
    why = "The message is 2000088 bytes when serialized which is larger than 1048588"
    error = cause(Exception(f"x\nCaused by: org.apache.kafka.common.errors.RecordTooLargeException: {why}"))
    assert error.reason is Reason.ROW_REFUSED
    assert error.message.startswith(f"RecordTooLargeException: {why}; declare a larger max.message.bytes")


def test_a_word_in_the_form_of_a_reason_is_none() -> None:
    assert cause(Exception("JobError: NoSuchReason: what")).reason is Reason.BATCH_FAILED


def test_an_error_survives_the_way_from_worker_to_driver() -> None:
    error = pickle.loads(pickle.dumps(JobError(Reason.POSITION_LOST, "lane t-0")))  # noqa: S301
    assert (error.reason, error.message, error.exit_code) == (Reason.POSITION_LOST, "lane t-0", ExitCode.HALTED)


def test_what_a_person_may_accept_survives_it_too() -> None:
    for error in (
        JobError(Reason.POSITIONS_MOVED, "moved", fingerprint="0123456789ab"),
        JobError(Reason.TOPIC_REPLACED, "recreated", lost_topic=LostTopic("t", "old", "now")),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert copy.failure == JobError.from_failure(error.failure).failure == error.failure
        assert cause(error).failure == error.failure


def test_cause_and_explanation_survive_the_way_from_worker_to_driver() -> None:
    error = JobError(Reason.POSITION_CONFLICT, "fenced", "another driver has taken over")
    assert error.message == "fenced; another driver has taken over"
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (copied.reason, copied.cause, copied.message) == (error.reason, "fenced", error.message)
    assert JobError(Reason.POSITION_CONFLICT, "fenced").message == "fenced"
