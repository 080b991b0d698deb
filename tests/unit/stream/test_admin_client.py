"""An admin client that the garbage collector finds in librdkafka's own thread must not end the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from waiting import ANSWER

# Nobody listens there: the answer is a time-out, handed over by librdkafka's thread, and the only one to collect
# garbage is that thread.
_PROGRAM = """
import gc, sys, time, weakref
{}

class Owner:
    def __init__(self):
        self.admin = AdminClient({{"bootstrap.servers": "127.0.0.1:9", "log_level": 0}})
        self.answer = self.admin.list_consumer_groups(request_timeout=0.2)
        self.cycle = self

gc.disable()
reference = weakref.ref(Owner())
gc.set_threshold(1, 1, 1)
gc.enable()
deadline = time.monotonic() + 20
while reference() is not None and time.monotonic() < deadline:
    time.sleep(0.05)
gc.disable()
AdminClient({{"bootstrap.servers": "127.0.0.1:9", "log_level": 0}})
print("collected" if reference() is None else "not collected")
"""


def run(which: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(which)], capture_output=True, text=True, timeout=ANSWER, check=False
    )


def test_a_client_that_is_collected_in_its_own_thread_is_closed_later() -> None:
    done = run("from ackwright_stream.admin_client import AdminClient")
    assert (done.returncode, done.stdout.strip()) == (0, "collected"), done.stderr


def test_control_confluents_own_client_ends_the_process() -> None:
    # Which thread collects the client is chance: one attempt may end well.
    attempts = (run("from confluent_kafka.admin import AdminClient") for _ in range(5))
    done = next((attempt for attempt in attempts if attempt.returncode != 0), None)
    if done is None:
        pytest.fail("confluent-kafka no longer aborts: ackwright_stream.admin_client is not needed any more")
    assert "called from librdkafka owned thread" in done.stderr
