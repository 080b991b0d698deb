"""Shared by all commands: the options -f and -o, consoles, and the conversion of values to JSON or YAML."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar

import click
import yaml
from pydantic.alias_generators import to_camel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ackwright.cli.failures import Failures
from ackwright.planning.guarantees import Settings

OutputFormat = Literal["table", "json", "yaml"]
F = TypeVar("F", bound=Callable[..., Any])

_PIPED_WIDTH = 160  # for output that is not a terminal


def file_option(command: F) -> F:
    """Adds the option -f FILE, passed as `file`. Reading the spec checks that the file is readable."""
    return click.option(
        "-f",
        "--file",
        "file",
        required=True,
        type=click.Path(path_type=Path),
        help="The pipeline, as YAML; - for standard input.",
    )(command)


def remember_output(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Lets failures be reported in the same format."""
    context.find_root().ensure_object(Failures).output = "table" if value == "wide" else value
    return value


def output_option(command: F, more: Sequence[str] = ()) -> F:
    """Adds the option -o table|json|yaml, passed as `output`. more: further formats."""
    return click.option(
        "-o",
        "--output",
        "output",
        type=click.Choice(["table", *more, "json", "yaml"]),
        default="table",
        show_default=True,
        help="Output format, also of errors.",
        callback=remember_output,
    )(command)


def console(*, stderr: bool = False) -> Console:
    """A console that writes colours only to a terminal, and uses more than 80 columns elsewhere."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream, width=None if stream.isatty() else _PIPED_WIDTH, highlight=False, force_terminal=stream.isatty()
    )


def document(value: object) -> Any:
    """A value as JSON values: fields of dataclasses in camelCase; keys of mappings unchanged, because they are data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {to_camel(f.name): document(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): document(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [document(v) for v in value]
    return value.value if isinstance(value, Enum) else value


def emit(value: object, output: OutputFormat) -> None:
    """Prints a document as JSON or YAML."""
    plain = document(value)
    if output == "json":
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1_000), nl=False)


def settings_table(title: str, settings: Settings) -> Table:
    """A table of settings with their values and reasons."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("setting", style="cyan", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("reason")
    for s in settings:
        table.add_row(Text(s.name), Text(s.value), Text(s.reason))
    return table
