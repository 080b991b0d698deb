"""The SQL in which an error occurred, of the error or of the one that it wraps."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, QueryContextType

_SHOWN = 200  # characters


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
