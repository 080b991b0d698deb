"""`python -m ackwright_stream --jobspec FILE`: runs one pipeline until it is stopped, is complete, or fails.

SIGTERM and SIGINT drain: the running batch ends, its positions are committed, exit code 0. A failure ends with one line
on stderr, `ackwright: Reason: sentence`, and an exit code of jobspec.ExitCode; with -v the stack trace precedes it.
With --ending FILE the job writes reports.Ending as JSON to that file, however it ends; in Kubernetes that is the
termination message. On stdout: `progress URL` once progress is served, and `final JSON`, the last ProgressReport, at
the end of a run that succeeded.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path

from ackwright_stream.jobspec import ExitCode, JobSpec, Reason, from_json
from ackwright_stream.reports import Ending, Failure, State, report_ending


def main() -> int:
    """Runs the job of the command line and reports how it ended. Returns the exit code."""
    launched = time.monotonic()
    options = _parser().parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    logging.getLogger("ackwright_stream").setLevel(logging.DEBUG if options.verbose else logging.INFO)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    ending = _run(options, stop, launched)
    report_ending(ending, options.ending)
    return ending.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ackwright_stream", description="Runs one delivery pipeline.")
    parser.add_argument("--jobspec", type=Path, required=True, help="the jobspec, JSON")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting of this process alone"
    )
    parser.add_argument(
        "--drained-exit-code",
        type=int,
        default=0,
        metavar="N",
        help="exit code if drained before a bounded run was complete",
    )
    parser.add_argument(
        "--check-transform",
        action="store_true",
        help="only check the schema and the transform, without a connection to brokers",
    )
    parser.add_argument(
        "--check-sink",
        action="store_true",
        help="check the schema, the transform, and whether the sink takes its output; change nothing, without brokers",
    )
    parser.add_argument(
        "--ending", type=Path, metavar="FILE", help="a file for the exit code and the reason of the end, JSON"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="stack traces")
    return parser


def _run(options: argparse.Namespace, stop: threading.Event, launched: float) -> Ending:
    try:
        job = from_json(options.jobspec.read_text())
        job = replace(job, spark={**job.spark, **dict(setting.split("=", 1) for setting in options.conf)})
    except (OSError, ValueError) as e:
        return _invalid(f"{options.jobspec}: {e}")

    from ackwright_stream.spark_internals.session import silence_gateway_log, start_jvm

    silence_gateway_log()
    start_jvm(job.spark)
    from ackwright_stream.driver import check_sink, check_transform
    from ackwright_stream.failures import cause

    try:
        if options.check_transform:
            check_transform(job)
            return Ending(ExitCode.OK)
        if options.check_sink:
            check_sink(job)
            return Ending(ExitCode.OK)
        return _deliver(job, options, stop, launched)
    except Exception as e:
        if options.verbose:
            traceback.print_exc()
        error = cause(e)
        return Ending(error.exit_code, error.failure)


def _deliver(job: JobSpec, options: argparse.Namespace, stop: threading.Event, launched: float) -> Ending:
    """Serves progress and drives the pipeline. Raises what the driver raises. launched: monotonic seconds."""
    from ackwright_stream.driver import Driver
    from ackwright_stream.failures import cause
    from ackwright_stream.progress import Progress, serve

    progress = Progress(job, launched)
    try:
        server = serve(progress, job.progress_host, job.progress_port)
    except OSError as e:
        address = f"{job.progress_host}:{job.progress_port}"
        return _invalid(f"progress cannot be served on {address} ({e}); choose another port")
    print(f"progress http://{job.progress_host}:{server.server_port}/progress", flush=True)  # noqa: T201
    try:
        Driver(job, progress, stop).run()
    except Exception as e:
        progress.failed(cause(e))
        progress.state(State.FAILED)
        raise
    drained = stop.is_set()
    progress.state(State.DRAINED if drained else State.COMPLETE)
    # A reader that polls may have missed the last batch.
    print(f"final {json.dumps(progress.snapshot().as_json())}", flush=True)  # noqa: T201
    return Ending(options.drained_exit_code if drained else ExitCode.OK)


def _invalid(message: str) -> Ending:
    return Ending(ExitCode.INVALID, Failure(Reason.INVALID_SPEC, message))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of librdkafka and py4j must neither delay the end nor change the exit code
