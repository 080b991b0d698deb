"""How a command reports its failures: as lines or a document, with or without stack traces, with which exit code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from ackwright.errors import AckwrightError, InvalidSpec, Violation
from ackwright_stream.jobspec import ExitCode

INTERRUPTED = 130  # 128 + SIGINT, the convention of shells
ERROR = 70  # EX_SOFTWARE of sysexits.h
UNSET_VARIABLE = "if it is a shell variable, check that the variable is set"  # the remedy for a value that is not there

# An error as it is printed with -o json: reason and message; of a file also file, line, column and field.
Error = Mapping[str, object]


@dataclass
class Failures:
    """How the current command reports its failures."""

    verbose: bool = False  # print stack traces; set by -v before or after the command
    exit_code: int = ExitCode.FAILED  # of a failure that has no specific exit code
    # Set by -o; with json or yaml failures are a document on stdout, too, with lines one object on one line.
    output: str = "table"


def reserve_exit_code_one() -> None:
    """Reserves exit code 1 for a result of the current command: unspecific failures end with 70 instead."""
    click.get_current_context().find_root().ensure_object(Failures).exit_code = ERROR


def errors_of(error: AckwrightError) -> list[Error]:
    """A failure as errors: of an invalid file one for each violation, in the order of the file."""
    if not isinstance(error, InvalidSpec):
        return [{"reason": str(error.reason), "message": error.message}]
    return [_of_violation(v) for v in sorted(error.violations, key=_position)]


def _position(violation: Violation) -> tuple[int, int]:
    return (violation.place.line, violation.place.column) if violation.place else (0, 0)


def _of_violation(violation: Violation) -> Error:
    place = violation.place
    where = {"file": place.file, "line": place.line, "column": place.column} if place else {}
    return {**where, "reason": str(violation.reason), "field": violation.field, "message": str(violation)}


def print_errors(errors: Sequence[Error], label: str | None = None) -> None:
    """Prints a line on stderr for each error, as compilers do: file:line:column: reason: message.

    label: printed instead of the reason, for instance "warning".
    """
    for error in errors:
        place = f"{error['file']}:{error['line']}:{error['column']}: " if "file" in error else ""
        reason = click.style(label or str(error["reason"]), fg="yellow" if label else "red", bold=True)
        # A message about the file as a whole begins with its name, which the place has already.
        message = str(error["message"]).removeprefix(f"{error['file']}: " if place else "")
        line = f"{click.style(place, bold=True) if place else ''}{reason}: {message}"
        click.echo(line.encode(errors="backslashreplace").decode(), err=True, color=colors())


def colors() -> bool | None:
    """False if the user has switched colours off; None: only for a terminal. https://no-color.org"""
    return False if os.environ.get("NO_COLOR") else None


def emit_errors(errors: Sequence[Error], output: str) -> None:
    """Prints errors on stdout as JSON or YAML: {"errors": [...]}. lines: as an event, like those of `run`."""
    document = {"errors": [dict(e) for e in errors]}
    if output == "lines":
        click.echo(json.dumps({"event": "errors", **document}, ensure_ascii=True))
    elif output == "json":
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
    else:
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=1_000), nl=False)


def warnings_of(warnings: Sequence[Violation]) -> list[Error]:
    """Warnings as errors are printed."""
    return [_of_violation(v) for v in sorted(warnings, key=_position)]
