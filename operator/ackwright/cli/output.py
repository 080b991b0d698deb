"""Shared by all commands: the options -f and -o, consoles, and the conversion of values to JSON or YAML."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
import yaml
from pydantic.alias_generators import to_camel

from ackwright.cli.failures import Failures
from ackwright.planning.guarantees import Settings

if TYPE_CHECKING:  # `plan` starts faster without it
    from rich.console import Console
    from rich.table import Table

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
    context.find_root().ensure_object(Failures).output = "table" if value in {"wide", "text"} else value
    return value


def remember_lines(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Lets failures be reported in the same format, if json is one object per line."""
    remember_output(context, parameter, "lines" if value == "json" else value)
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
    from rich.console import Console

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
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("setting", style="cyan", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("reason")
    for s in settings:
        table.add_row(Text(s.name), Text(s.value), Text(s.reason))
    return table


def print_pairs(pairs: Sequence[tuple[str, str, str | None]]) -> None:
    """Prints labels with texts beside them, folded to the width of the terminal.

    pairs: label, text, and the text's colour. A pair without a label belongs to the one above it.
    """
    indent = max(len(label) for label, _, _ in pairs) + 2
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPED_WIDTH
    for label, text, color in pairs:
        lines = textwrap.wrap(text, max(width - indent, 20), break_on_hyphens=False) or [""]
        for i, line in enumerate(lines):
            shown = label if i == 0 else ""
            click.echo(click.style(shown, fg="cyan") + " " * (indent - len(shown)) + click.style(line, fg=color))
