"""The permissions on consumer groups, by kafka-python.

confluent-kafka reports them only by describe_consumer_groups(), which ends the process when the group's coordinator
goes away (librdkafka pull request 5397). Reads only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from kafka import errors as kafka_errors

from ackwright.clients.reassignments import call_admin
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason

_PAUSE_S = 0.2  # while the group has no coordinator, as on brokers that have just started
_CODE = re.compile(r"\[Error (-?\d+)\]")  # kafka-python returns the error of a group as text


def authorized_operations(settings: Mapping[str, Any], timeout: float, group: str) -> frozenset[str] | None:
    """The names (READ, DESCRIBE …) of the operations on the group that the connection's principal may use.

    None: the brokers report nothing about the group, which does not exist. settings: librdkafka's; timeout: seconds.
    Raises AckwrightError; with AuthorizationFailed the principal may not describe the group.
    """
    action, deadline = f"reading the permissions on group {group}", time.monotonic() + timeout
    while True:
        left = max(deadline - time.monotonic(), _PAUSE_S)
        try:
            # With a new connection each time: kafka-python asks a coordinator that it knows forever.
            operations: frozenset[str] | None = call_admin(
                action, settings, left, lambda admin: _operations(admin.describe_groups([group])[group])
            )
            return operations
        except AckwrightError as e:
            if e.reason is not Reason.BROKERS_UNREACHABLE or time.monotonic() + _PAUSE_S >= deadline:
                raise
        time.sleep(_PAUSE_S)


def _operations(description: Mapping[str, Any]) -> frozenset[str] | None:
    if error := description["error"]:
        code = _CODE.match(error)
        failure = kafka_errors.for_code(int(code[1])) if code else kafka_errors.UnknownError
        if failure is kafka_errors.GroupIdNotFoundError:
            return None
        raise failure(error)
    operations = description["authorized_operations"]
    return None if operations is None else frozenset(operations)
