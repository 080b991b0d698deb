"""From what Spark reports to a cause: the sentence for the user is somewhere inside of a long text from two languages."""

from __future__ import annotations

import re

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

# Spark quotes records in what it says, so a name counts only where an exception stands, and what is told first wins.
# An exception in Python, ours or of the user's transform: what follows the indented lines of a Python worker's stack trace.
_PYTHON = re.compile(
    r"(?:^|: )Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<raised>[^\s:]+(?:: [^\n]*)?)", re.MULTILINE
)
_OURS = re.compile(r"(?:[\w.]+\.)?JobError: (?P<reason>[A-Z][A-Za-z]+): (?P<message>.*)")
# An error condition of Spark's; what follows its name may quote a record, so the first one that is no wrapper decides.
_CONDITION = re.compile(r"(?:^|: )\[(?P<name>[A-Z][A-Z0-9_.]+)\] (?=(?P<message>[^\n]*))", re.MULTILINE)
_RAISED, _MALFORMED = "USER_RAISED_EXCEPTION", "MalformedRecord: "
# What py4j says of a call into Spark that this version of Spark has not: some of those that the job makes are not in its public interface.
_NO_METHOD = re.compile(r"py4j\.Py4JException: (?P<message>Method [^\n]* does not exist)")
_ABSENT = "; see that the brokers are up, and that the topic is there and may be written: if not, create it and grant the job's principal Write"
_KAFKA = tuple(
    (re.compile(rf"(?:^|: )(?P<told>{sign}[^\n]*)", re.MULTILINE), reason, remedy)
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
_PACKAGE = "org.apache.kafka.common.errors."
# Of a call into Spark that failed py4j tells first that it failed. The cause is that of the last attempt of a task, or at the end.
_CALL = "An error occurred while calling "
_BEHIND = (
    re.compile(r"most recent failure: Lost task [^\n]*?\): (?P<said>[^\n]+)"),
    re.compile(r"(?s:.*)^Caused by: (?P<said>[^\n]+)", re.MULTILINE),
)
_WRAPPERS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED")


def cause(failure: BaseException) -> JobError:
    """The cause of a failed query or batch, as a JobError."""
    if isinstance(failure, JobError):
        return failure
    text = str(failure)
    raised = _PYTHON.findall(text)
    ours = [m for m in map(_OURS.match, raised) if m and m["reason"] in Reason._value2member_map_]
    if ours:
        return JobError(Reason(ours[0]["reason"]), ours[0]["message"])
    missing = _NO_METHOD.search(text)
    if missing:
        return JobError(
            Reason.UNEXPECTED,
            f"Spark is not of the version that goes with this release: {missing['message'][:300]}; take the image's, or the pinned pyspark",
        )
    if raised:
        return JobError(Reason.BATCH_FAILED, f"a Python worker failed: {raised[-1]}"[:500])
    condition = next((m for m in _CONDITION.finditer(text) if m["name"] not in _WRAPPERS), None)
    if condition and condition["name"] == _RAISED and condition["message"].startswith(_MALFORMED):
        return JobError(Reason.MALFORMED_RECORD, condition["message"].removeprefix(_MALFORMED).rstrip("'\" "))
    if condition:
        return JobError(Reason.BATCH_FAILED, f"{condition['message']} ({condition['name']})")
    for sign, reason, remedy in _KAFKA:
        found = sign.search(text)
        if found:  # from its name on: what comes before is of Spark's tasks, and long
            return JobError(reason, f"{found['told'].removeprefix(_PACKAGE).strip()[:300]}{remedy}")
    return JobError(Reason.BATCH_FAILED, (_first(text) or repr(failure))[:500])


def _first(text: str) -> str:
    """The first thing that the text says of the cause."""
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    if not lines or not lines[0].startswith(_CALL):
        return lines[0] if lines else ""
    behind = next((m["said"] for m in (pattern.search(text) for pattern in _BEHIND) if m), None)
    return behind or " ".join(lines[:2])
