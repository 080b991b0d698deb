"""What an error of Spark does not say itself: the SQL in which it occurred, and the errors that it wraps."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, QueryContextType

_SHOWN = 200  # characters
_WITHOUT_CAUSE = "TransformWithStateInPySpark driver worker exited unexpectedly"


def text_with_causes(failure: BaseException) -> str:
    """The text of an error, with those of the errors that it wraps if it says nothing of them."""
    texts = [str(failure)]
    if _WITHOUT_CAUSE in texts[0]:
        wrapped = getattr(failure, "_cause", None)
        while wrapped is not None:
            texts.append(str(wrapped))
            wrapped = getattr(wrapped, "_cause", None)
    return "\n".join(texts)


def stack_trace(failure: BaseException) -> str:
    """The stack trace of an error of Spark's, with those of its causes; empty if it is no such error."""
    return str(getattr(failure, "_stackTrace", None) or "")


def failed_sql(failure: BaseException | None) -> str | None:
    """The part of the SQL that failed, in one line and at most 200 characters; None: not known."""
    try:
        while failure is not None:
            contexts = failure.getQueryContext() if isinstance(failure, PySparkException) else []
            for context in contexts:
                if context.contextType() is QueryContextType.SQL:
                    return " ".join(context.fragment().split())[:_SHOWN]
            failure = getattr(failure, "_cause", None)  # of a failed stage, the error of its task
    except (Py4JError, OSError):
        return None  # the context is in the JVM, which may have ended
    return None
