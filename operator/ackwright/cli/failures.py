"""How a command reports its failures: with or without stack traces, and with which exit code."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ackwright_stream.jobspec import ExitCode

INTERRUPTED = 130  # 128 + SIGINT, the convention of shells
ERROR = 70  # EX_SOFTWARE of sysexits.h


@dataclass
class Failures:
    """How the current command reports its failures."""

    verbose: bool = False  # print stack traces; set by -v before or after the command
    exit_code: int = ExitCode.FAILED  # of a failure that has no specific exit code


def reserve_exit_code_one() -> None:
    """Reserves exit code 1 for a result of the current command: unspecific failures end with 70 instead."""
    click.get_current_context().find_root().ensure_object(Failures).exit_code = ERROR
