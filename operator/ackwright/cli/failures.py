"""How the failures of one run of a command are told."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ackwright_stream.jobspec import ExitCode

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
ERROR = 70  # EX_SOFTWARE of sysexits.h, which no command uses for anything else


@dataclass
class Failures:
    """verbose: whether stack traces are wanted; -v may stand before or after the command. exit_code: of a failure without a better one."""

    verbose: bool = False
    exit_code: int = ExitCode.FAILED


def one_is_an_answer() -> None:
    """The command that runs means something by exit code 1: a failure that would end with it ends with 70."""
    click.get_current_context().find_root().ensure_object(Failures).exit_code = ERROR
