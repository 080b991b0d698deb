"""From what Spark reports to a cause: the sentence for the user is somewhere inside of a long text from two languages."""

from __future__ import annotations

import re

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

_OURS = re.compile(r"JobError: (?P<reason>[A-Z][A-Za-z]+): (?P<message>[^\n]*)")
_MALFORMED = re.compile(r"MalformedRecord: (?P<message>[^\n]*)")
_CLASS = re.compile(r"^\[(?P<name>[A-Z][A-Z0-9_.]+)\] (?P<message>[^\n]*)", re.MULTILINE)
# The exception itself, most likely of the user's transform: what follows the indented lines of a Python worker's stack trace.
_PYTHON = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<raised>[^\s:]+(?:: [^\n]*)?)", re.MULTILINE)
# What py4j says of a call into Spark that this version of Spark has not: some of those that the job makes are not in its public interface.
_NO_METHOD = re.compile(r"py4j\.Py4JException: (?P<message>Method [^\n]* does not exist)")
_KAFKA = (
    ("SaslAuthenticationException", Reason.AUTHENTICATION_FAILED),
    ("SslAuthenticationException", Reason.AUTHENTICATION_FAILED),
    ("AuthorizationException", Reason.AUTHORIZATION_FAILED),
    ("UnknownTopicOrPartition", Reason.TOPIC_MISSING),
    ("org.apache.kafka.common.errors.TimeoutException", Reason.BROKERS_UNREACHABLE),
    ("No resolvable bootstrap urls", Reason.BROKERS_UNREACHABLE),
)
_PACKAGE = "org.apache.kafka.common.errors."
_REMEDIES = {
    Reason.AUTHENTICATION_FAILED: "; check the user name, the password, the CA certificate and the host names",
    Reason.AUTHORIZATION_FAILED: "; grant the job's principal this permission",
}
_WRAPPERS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED")


def cause(failure: BaseException) -> JobError:
    """The cause of a failed query or batch, as a JobError."""
    if isinstance(failure, JobError):
        return failure
    text = str(failure)
    ours = [m for m in _OURS.finditer(text) if m["reason"] in Reason._value2member_map_]
    if ours:
        return JobError(Reason(ours[0]["reason"]), ours[0]["message"])
    missing = _NO_METHOD.search(text)
    if missing:
        return JobError(
            Reason.UNEXPECTED,
            f"Spark is not of the version that goes with this release: {missing['message'][:300]}; take the image's, or the pinned pyspark",
        )
    malformed = _MALFORMED.search(text)
    if malformed:
        return JobError(Reason.MALFORMED_RECORD, malformed["message"].rstrip("'\" "))
    for sign, reason in _KAFKA:
        told = re.search(rf"\w*{re.escape(sign)}[^\n]*", text)
        if told:  # from its name on: what comes before is of Spark's tasks, and long
            return JobError(reason, f"{told[0].removeprefix(_PACKAGE).strip()[:300]}{_REMEDIES.get(reason, '')}")
    classes = [m for m in _CLASS.finditer(text) if m["name"] not in _WRAPPERS]
    if classes:
        return JobError(Reason.BATCH_FAILED, f"{classes[-1]['message']} ({classes[-1]['name']})")
    raised = _PYTHON.findall(text)
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    said = f"a Python worker failed: {raised[-1]}" if raised else (lines[0] if lines else repr(failure))
    return JobError(Reason.BATCH_FAILED, said[:500])
