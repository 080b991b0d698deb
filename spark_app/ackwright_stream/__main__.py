"""`python -m ackwright_stream --jobspec FILE`: runs one pipeline until it is stopped, complete, or cannot go on.

SIGTERM and SIGINT drain: the running batch ends, its positions are committed, exit code 0. A failure ends with one line on stderr,
`ackwright: Reason: sentence`, and an exit code of jobspec.ExitCode. With -v the stack trace precedes it. On stdout: `progress URL`
once it is served, and `final JSON`, the last progress, at the end of a run that succeeded.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import ExitCode, from_json


def main() -> int:
    arguments = argparse.ArgumentParser(prog="ackwright_stream", description="Runs one delivery pipeline.")
    arguments.add_argument("--jobspec", type=Path, required=True, help="the jobspec, JSON")
    arguments.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting of this very process"
    )
    arguments.add_argument(
        "--drained-exit-code",
        type=int,
        default=0,
        metavar="N",
        help="exit code if drained before a bounded run was complete",
    )
    arguments.add_argument(
        "--judge", action="store_true", help="only say whether schema and transform are sound; no broker is asked"
    )
    arguments.add_argument("-v", "--verbose", action="store_true", help="stack traces")
    given = arguments.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    logging.getLogger("ackwright_stream").setLevel(logging.DEBUG if given.verbose else logging.INFO)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        job = from_json(given.jobspec.read_text())
        job = replace(job, spark={**job.spark, **dict(setting.split("=", 1) for setting in given.conf)})
    except (OSError, ValueError) as e:
        print(f"ackwright: InvalidSpec: {given.jobspec}: {e}", file=sys.stderr)  # noqa: T201
        return ExitCode.INVALID

    from ackwright_stream.driver import Driver, judge
    from ackwright_stream.failures import cause
    from ackwright_stream.progress import Progress, serve

    if given.judge:
        try:
            judge(job)
        except Exception as e:
            return _failed(cause(e), given.verbose)
        return ExitCode.OK
    progress = Progress(job)
    try:
        server = serve(progress, job.progress_host, job.progress_port)
    except OSError as e:
        where = f"{job.progress_host}:{job.progress_port}"
        message = f"ackwright: InvalidSpec: progress cannot be served on {where} ({e}); choose another port"
        print(message, file=sys.stderr)  # noqa: T201
        return ExitCode.INVALID
    print(f"progress http://{job.progress_host}:{server.server_port}/progress", flush=True)  # noqa: T201
    try:
        Driver(job, progress, stop).run()
    except Exception as e:
        error = cause(e)
        progress.failed(error)
        progress.state("failed")
        return _failed(error, given.verbose)
    progress.state("complete" if not stop.is_set() else "drained")
    print(f"final {json.dumps(progress.snapshot())}", flush=True)  # noqa: T201 (whoever polls may have missed the last batch)
    return given.drained_exit_code if stop.is_set() else ExitCode.OK


def _failed(error: JobError, verbose: bool) -> ExitCode:
    if verbose:
        traceback.print_exc()
    print(f"ackwright: {error}", file=sys.stderr, flush=True)  # noqa: T201
    return error.exit_code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(
        code
    )  # librdkafka's and py4j's threads must not hold up or change the exit code of a driver that has ended
