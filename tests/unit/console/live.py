"""An activity as that of `ackwright demo`, for the tests in a browser: `python -m unit.console.live` serves it.

It prints the address of the page. For each line on its standard input it adds a kill, or, for a number, a report of the
driver with that number. It ends with its input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from ackwright.console.activity import Activity, LocalSource
from ackwright.console.server import Server
from ackwright.local.demo import pipelines
from ackwright_stream.jobspec import Guarantee
from unit.console import recorded

RECORDS = 60_000
_STARTED_AT = 1_795_262_400.0  # seconds since the epoch


def resource(guarantee: Guarantee) -> dict[str, object]:
    return pipelines.document("127.0.0.1:9092", guarantee, RECORDS, Path("/demo/checkpoint"), pipelines.KAFKA)


def demo(now: Callable[[], float] | None = None) -> Activity:
    """A demo in the middle of its second guarantee."""
    seconds = count(_STARTED_AT, 1.0)
    activity = Activity("ackwright demo --sink kafka", now or (lambda: next(seconds)))
    activity.stage("starting three brokers")
    activity.event("three brokers answer at 127.0.0.1:9092")
    activity.stage("producing flights", RECORDS)
    for done in range(0, RECORDS + 1, 10_000):
        activity.progress(done, RECORDS, 9_500.0, RECORDS - done)
    for guarantee in (Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE):
        activity.pipeline(resource(guarantee))
        activity.stage(str(guarantee), RECORDS, f"demo/{pipelines.output_name(guarantee)}")
        last = RECORDS if guarantee is Guarantee.AT_MOST_ONCE else RECORDS // 2
        activity.progress(0, RECORDS, 0.0, RECORDS, "starting Spark")
        for done in range(1_000, last + 1, 1_000):
            rate = 0.0 if 20_000 < done <= 22_000 else 2_100.0 + done % 7_000 / 20
            activity.progress(done, RECORDS, rate, RECORDS - done)
            if done == 20_000:
                activity.kill("killed the driver in the middle of a batch, at mid-produce (after 33% of the records)")
            if done == 22_000:
                activity.event("delivery has resumed on every partition after 6.2 s")
    return activity


def main() -> None:
    activity = demo()
    with Server(LocalSource(activity), "token") as server:
        print(server.url, flush=True)
        name = pipelines.output_name(Guarantee.AT_LEAST_ONCE)
        for line in map(str.strip, sys.stdin):
            if line.isdecimal():
                report = recorded.progress("demo", name, pipelines.SOURCE)
                activity.report(replace(report, driver=int(line)))
            else:
                activity.kill(line)
        activity.end(("guarantee", "lost", "held"), [("exactly-once", "0", "held")])


if __name__ == "__main__":
    main()
