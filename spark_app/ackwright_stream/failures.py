"""Turns Spark's report of a failure into a JobError: the user's sentence is inside a long text from two languages.

The only place in which a reason is derived from text.
"""

from __future__ import annotations

import re

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.reasons import REASONS
from ackwright_stream.spark_internals.error_context import failed_sql, stack_trace, text_with_causes
from ackwright_stream.storage_errors import shortened

# Spark's text can quote records, so the name of an exception counts only where Spark prints an exception, and the first
# one wins. An exception in Python, the job's or the user's transform's: it follows the indented lines of a Python
# worker's stack trace.
_PYTHON = re.compile(
    r"(?:^|: )Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<raised>[^\s:]+(?:: [^\n]*)?)", re.MULTILINE
)
_JOB_ERROR = re.compile(r"(?:[\w.]+\.)?JobError: (?P<reason>[A-Z][A-Za-z]+): (?P<message>.*)")
# An error condition of Spark's. Its message may quote a record, so the first condition that wraps no other one decides.
_CONDITION = re.compile(r"(?:^|: )\[(?P<name>[A-Z][A-Z0-9_.]+)\] (?=(?P<message>[^\n]*))", re.MULTILINE)
_RAISED, _MALFORMED = "USER_RAISED_EXCEPTION", "MalformedRecord: "
# py4j's report of a method that this version of Spark does not have.
_NO_METHOD = re.compile(r"py4j\.Py4JException: (?P<message>Method [^\n]* does not exist)")
_ABSENT = "; check that the brokers are up and the topic exists; if not, create it and grant the job's principal Write"
_KAFKA = tuple(
    (re.compile(rf"(?:^|: )(?P<text>{sign}[^\n]*)", re.MULTILINE), reason, remedy)
    for sign, reason, remedy in (
        (
            r"(?:[\w.]+\.)?(?:Sasl|Ssl)AuthenticationException",
            Reason.AUTHENTICATION_FAILED,
            "; check the user name, the password, the CA certificate and the host names",
        ),
        (
            r"(?:[\w.]+\.)?\w*AuthorizationException",
            Reason.AUTHORIZATION_FAILED,
            "; grant the job's principal this permission",
        ),
        (r"(?:[\w.]+\.)?UnknownTopicOrPartition", Reason.TOPIC_MISSING, ""),
        (
            r"(?:[\w.]+\.)?RecordTooLargeException",
            Reason.ROW_REFUSED,
            "; declare a larger max.message.bytes in spec.topics, or make the record smaller",
        ),
        (
            r"org\.apache\.kafka\.common\.errors\.TimeoutException: Partition [^\n]* not present in metadata",
            Reason.BATCH_FAILED,
            "; give the topic more partitions, or correct the number",
        ),
        (
            r"org\.apache\.kafka\.common\.errors\.TimeoutException: Topic [^\n]* not present in metadata",
            Reason.BROKERS_UNREACHABLE,
            _ABSENT,
        ),
        (r"org\.apache\.kafka\.common\.errors\.TimeoutException", Reason.BROKERS_UNREACHABLE, ""),
        (r"No resolvable bootstrap urls", Reason.BROKERS_UNREACHABLE, ""),
    )
)
# Of Hadoop's file system s3a, on which only state is; the errors that it translates name the SDK's own behind it. An
# object that does not exist is lost state; a bucket that does not is an UnknownStoreException.
_S3A = re.compile(
    r"(?:^|: )(?P<text>(?!java\.io\.FileNotFoundException)(?:java|org\.apache\.hadoop)\.[\w.$]+: "
    r"[^\n]*?software\.amazon\.awssdk\.[^\n]*)",
    re.MULTILINE,
)
# Spark wraps each failure to load state in the first of these. The data of a snapshot is checked when it is first read.
_UNREAD = ("CANNOT_LOAD_STATE_STORE", "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED")
# Of state that it reads, and that has other columns or steps than the query.
_MISFITS = (
    "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE",
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
    "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE",
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
)
_UNREAD_DATA = re.compile(
    r"(?:^|: )org\.rocksdb\.RocksDBException: (?P<message>[^\n]*(?:Corruption|checksum mismatch)[^\n]*)", re.MULTILINE
)
# The driver reads what describes the types of the state (`_metadata/schema`) before the first batch. Spark has no
# condition for a damaged file, and mostly no message.
_UNREAD_TYPES = re.compile(
    r"^\s+at org\.apache\.spark\.sql\.execution\.streaming\.[\w.]*\.StateSchemaCompatibilityChecker\$?\."
    r"(?:\$anonfun\$)?readSchemaFile",
    re.MULTILINE,
)
_OF_TASK = "Lost task "  # whose error may quote a record, also one that has such lines
# Such a failure that says nothing about the files of the state.
_OF_MACHINE = re.compile(
    r"_OUT_OF_MEMORY\]|UNRELEASED_THREAD_ERROR\]|OutOfMemoryError|No space left on device|Too many open files"
    r"|Permission denied|InterruptedException|ClosedByInterruptException"
)
_OF_NETWORK = re.compile(
    r"^Caused by: (?P<text>(?:java\.net|javax\.net\.ssl|org\.apache\.http|org\.apache\.hadoop\.fs\.s3a"
    r"|software\.amazon\.awssdk)\.[\w.$]+: [^\n]*)",
    re.MULTILINE,
)
_CAUSED_BY = re.compile(r"^Caused by: (?:org\.apache\.spark\.[\w.$]+: |(?:\w+\.)+)?(?P<message>[^\n]+)", re.MULTILINE)
# A stage could not read what an executor had stored for it, and stages of stateful pipelines do not run again.
_LOST_OUTPUT = re.compile(
    r"(?:^|: )(?:ShuffleMap|Result)Stage \d+ \([^\n]*\) has failed the maximum allowable number of times: \d+\. "
    r"Most recent failure reason:\s+(?P<cause>[^\n]+)",
    re.MULTILINE,
)
_PACKAGE = "org.apache.kafka.common.errors."
# Of a failed call into Spark, py4j prints first that it failed. The cause is that of the last attempt of a task, or the
# last one named.
_CALL = "An error occurred while calling "
_CAUSES = (
    re.compile(r"most recent failure: Lost task [^\n]*?\): (?P<cause>[^\n]+)"),
    re.compile(r"(?s:.*)^Caused by: (?P<cause>[^\n]+)", re.MULTILINE),
)
# Spark's class of the error; a record that the message quotes may have such a text, too.
_SQLSTATE = re.compile(r" SQLSTATE: \w{5}['\" ]*$")
# Of a malformed record's error, which may have quotation marks around it, also without that class.
_MALFORMED_END = re.compile(r"(?: SQLSTATE: \w{5})?['\" ]*$")
# What Spark advises at the end of such an error. try_divide makes a double of an integer, and without spark.sql.ansi an
# error becomes a null that nobody notices.
_ADVICE = re.compile(
    r"(?: Correct the value as per the syntax, or change its target type\.)?"
    r"""(?: Use [`'"]try_\w+[`'"] [^`'"]*\.)?"""
    r"""(?: If necessary set "?spark\.sql\.ansi\.enabled"? to "?false"? [^."]*\.)?$"""
)
_TRY_CAST = ", for example with try_cast(value AS type), which returns null"
_EXAMPLES = {
    "ARITHMETIC_OVERFLOW": ", for example by casting an operand to a larger type",
    "CAST_INVALID_INPUT": _TRY_CAST,
    "CAST_OVERFLOW": _TRY_CAST,
    "DIVIDE_BY_ZERO": ", for example with nullif(divisor, 0)",
    "INTERVAL_DIVIDED_BY_ZERO": ", for example with nullif(divisor, 0)",
    "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION": ", for example with a DECIMAL of more digits",
    "REMAINDER_BY_ZERO": ", for example with nullif(divisor, 0)",
}
_WRAPPERS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED")


class BatchEnded(Exception):
    """What Spark is passed in place of a batch's error, which the driver has.

    If a stream is stopped amid a batch that then fails, Spark searches the text of the error for an interruption, by a
    pattern that recurses with each character (StreamExecution.PROXY_ERROR). Behind the words of py4j, 3,000 characters
    end the stream's thread with a StackOverflowError.
    """

    def __init__(self) -> None:
        super().__init__("the driver has the error")


def cause(failure: BaseException) -> JobError:
    """The cause of a failed query or batch, as a JobError.

    It has the reason STATE_LOST, and no fingerprint, if Spark could not load the state.
    """
    if isinstance(failure, JobError):
        return failure
    text = text_with_causes(failure)
    raised = _PYTHON.findall(text)
    job_errors = [m for m in map(_JOB_ERROR.match, raised) if m and m["reason"] in Reason._value2member_map_]
    if job_errors:
        return JobError(Reason(job_errors[0]["reason"]), job_errors[0]["message"])
    missing = _NO_METHOD.search(text)
    if missing:
        return JobError(
            Reason.UNEXPECTED,
            f"this version of Spark lacks what this release needs: {missing['message'][:300]}; use the image of "
            f"this release, "
            "or install the pinned pyspark",
        )
    if raised:
        return JobError(Reason.BATCH_FAILED, f"a Python worker failed: {raised[-1]}"[:500])
    condition = next((m for m in _CONDITION.finditer(text) if m["name"] not in _WRAPPERS), None)
    unread, types = _unread_state(text, condition), _unread_types(text, stack_trace(failure))
    # Spark's own condition around it says only that a state file was not written, or not read.
    if match := _S3A.search(text) or (unread and _OF_NETWORK.search(text, unread.start())) or _OF_NETWORK.search(types):
        return JobError(
            Reason.STATE_UNREACHABLE, shortened(match["text"].strip()), REASONS[Reason.STATE_UNREACHABLE].remedy
        )
    if unread and not _OF_MACHINE.search(text):
        wrapped = _CAUSED_BY.findall(text, unread.start())
        message = wrapped[-1] if wrapped else unread["message"]
        return JobError(Reason.STATE_LOST, shortened(_SQLSTATE.sub("", message).strip()))
    if types and not _OF_MACHINE.search(types):
        what = _SQLSTATE.sub("", (_CAUSED_BY.findall(types) or ["no message"])[-1])
        return JobError(
            Reason.STATE_LOST, f"a file _metadata/schema, with the types of the state, is damaged: {shortened(what)}"
        )
    if match := _LOST_OUTPUT.search(text):
        return JobError(
            Reason.BATCH_FAILED,
            f"an executor is gone whose output the batch needs ({shortened(match['cause'].strip())}); the batch is "
            "evaluated again. If this repeats, check why executors end, and whether they can connect to each other",
        )
    if condition:
        return _by_condition(condition, failure)
    for sign, reason, remedy in _KAFKA:
        match = sign.search(text)
        if match:  # from the exception's name: the text in front of it is about Spark's tasks, and long
            return JobError(reason, f"{match['text'].removeprefix(_PACKAGE).strip()[:300]}{remedy}")
    return JobError(Reason.BATCH_FAILED, (_first_line(text) or repr(failure))[:500])


def _by_condition(condition: re.Match[str], failure: BaseException) -> JobError:
    """What the condition of Spark's says that decides."""
    name, message = condition["name"], condition["message"]
    if name == _RAISED and message.startswith(_MALFORMED):
        return JobError(Reason.MALFORMED_RECORD, _MALFORMED_END.sub("", message.removeprefix(_MALFORMED)))
    message = _SQLSTATE.sub("", message)
    if name in _MISFITS:
        return JobError(
            Reason.STATE_LOST,
            f"the transform does not fit to the stored state: {shortened(message.strip())} ({name})",
            "undo the change of the transform, or of the image that has its Python function; if nothing was changed, "
            f"{REASONS[Reason.STATE_LOST].remedy}",
        )
    return JobError(Reason.BATCH_FAILED, _of_condition(name, message, failure))


def _unread_state(text: str, condition: re.Match[str] | None) -> re.Match[str] | None:
    """Where the text says that state could not be read; None if it does not. condition: the one that decides."""
    if condition and condition["name"].split(".")[0] in _UNREAD:
        return condition
    match = _UNREAD_DATA.search(text)
    return match if match and (condition is None or match.start() < condition.start()) else None


def _unread_types(text: str, trace: str) -> str:
    """The stack trace, if it says that the types of the state could not be read; otherwise empty."""
    return trace if _UNREAD_TYPES.search(trace) and _OF_TASK not in text else ""


def _of_condition(name: str, message: str, failure: BaseException) -> str:
    """What a condition of Spark's says; of a value that the transform cannot compute, with the SQL and the remedy."""
    without_advice = _ADVICE.sub("", message)
    if name not in _EXAMPLES and "spark.sql.ansi.enabled" not in message[len(without_advice) :]:
        return f"{message} ({name})"
    sql = failed_sql(failure)
    place = f" in {sql}" if sql else ""
    remedy = f"correct spec.transform for such records{_EXAMPLES.get(name, '')}"
    return f"{without_advice.removesuffix('.')} ({name}){place}; {remedy}"


def _first_line(text: str) -> str:
    """The first line of the text that names the cause."""
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    if not lines or not lines[0].startswith(_CALL):
        return lines[0] if lines else ""
    behind = next((m["cause"] for m in (pattern.search(text) for pattern in _CAUSES) if m), None)
    return behind or " ".join(lines[:2])
