"""Errors of files and of their clients as JobErrors."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.reasons import REASONS

_COLOURS = re.compile("\x1b\\[[0-9;]*m")  # of delta-rs, for a terminal
_SHOWN = 300  # characters of a message
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
# Of messages, which are all that clients of S3 pass on. The last two are Arrow's.
_NO_LOGIN = (
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidClientTokenId"),
    *("INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH"),
)
_FORBIDDEN = (
    *("Forbidden", "AccessDenied", "ACCESS_DENIED"),
    *("Permission denied", "Operation not permitted", "Read-only file"),
)
# By the modules that define them: an error of one exists only if its module was imported.
_CLIENTS = (("obstore.exceptions", "BaseError"), ("deltalake.exceptions", "DeltaError"))
_STATUS_FORBIDDEN = re.compile(r"(?<![\w.-])403(?![\w.-])")  # not within the name of a file


@contextmanager
def translating(what: str) -> Iterator[None]:
    """Raises JobError in place of the errors of files and of their clients. what: what is being done."""
    try:
        yield
    except JobError:
        raise
    except Exception as e:
        raise translate(e, what) from None  # a log of the error would have the request with its headers


def translate(error: Exception, what: str) -> JobError:
    """An error of files or of their clients as a JobError. what: as for translating().

    Any other error is a fault of the batch or of a program: no network and no server would pass it.
    """
    text = one_line(str(error).partition("\n\nDebug source:")[0])  # of obstore
    reason = Reason.SINK_UNREACHABLE
    if "NoSuchBucket" in text:
        return JobError(Reason.TABLE_UNSUITABLE, f"{what}: there is no such bucket", "create it, or correct its name")
    if any(sign in text for sign in _NO_LOGIN):
        reason = Reason.SINK_LOGIN_REFUSED
    elif isinstance(error, OSError) and error.errno is not None:
        text = error.strerror or text
        reason = Reason.AUTHORIZATION_FAILED if error.errno in _DENIED else Reason.SINK_UNREACHABLE
    elif any(sign in text for sign in _FORBIDDEN) or _STATUS_FORBIDDEN.search(text):
        reason = Reason.AUTHORIZATION_FAILED
    elif not _is_of_client(error):
        reason, text = Reason.BATCH_FAILED, f"{type(error).__name__}: {text}"
    return JobError(reason, f"{what}: {shortened(text)}", REASONS[reason].remedy)


def _is_of_client(error: Exception) -> bool:
    """Whether it is an error of files, or of a client that reaches them."""
    loaded = tuple(getattr(sys.modules[module], name) for module, name in _CLIENTS if module in sys.modules)
    return isinstance(error, (OSError, *loaded))


def one_line(text: str) -> str:
    """The text without line breaks and colours."""
    return " ".join(_COLOURS.sub("", text).split())


def shortened(text: str) -> str:
    """The beginning and the end of a long text, where the cause is."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"
