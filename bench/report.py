"""Prints figures as a table for people or as JSON for programs."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from bench.figures import Figure


def as_json(figures: Sequence[Figure], setting: Mapping[str, object], errors: Mapping[str, str] | None = None) -> str:
    """{"setting": {…}, "errors": {benchmark: message}, "figures": […]}

    A figure: {"name", "value", "unit", "target", "atLeast", "reached", "note", "spread"}. spread: [lowest, highest] of
    the repetitions, or null; reached: null without a target.
    """
    lines = []
    for figure in figures:
        line = asdict(figure)
        line["atLeast"] = line.pop("at_least")
        lines.append({**line, "reached": figure.meets_target})
    return json.dumps(
        {"setting": setting, "errors": dict(errors or {}), "figures": lines}, indent=2, ensure_ascii=False
    )


def table(figures: Sequence[Figure]) -> Table:
    """The figures as a table of rich."""
    output = Table(title="ackwright bench")
    for name, right in (("figure", False), ("value", True), ("target", True), ("", False), ("spread; note", False)):
        output.add_column(name, justify="right" if right else "left", overflow="fold")
    for f in figures:
        target = "" if f.target is None else f"{'≥' if f.at_least else '≤'} {f.target:g} {f.unit}".strip()
        verdict = {None: "", True: "[green]met[/green]", False: "[red]missed[/red]"}[f.meets_target]
        value = f"{f.value:,.0f}" if f.value >= 1000 else f"{f.value:g}"
        spread = f"{f.spread[0]:,g} to {f.spread[1]:,g}" if f.spread else ""
        output.add_row(
            f.name, f"{value} {f.unit}".strip(), target, verdict, "; ".join(n for n in (spread, f.note) if n)
        )
    return output


def show(
    figures: Sequence[Figure], output: str, setting: Mapping[str, object], errors: Mapping[str, str] | None = None
) -> None:
    if output == "json":
        print(as_json(figures, setting, errors))
        return
    console = Console()
    console.print(table(figures))
    for name, message in (errors or {}).items():
        console.print(f"{name} failed: {message}", style="red", markup=False)
    console.print(", ".join(f"{name}: {value}" for name, value in setting.items()), style="dim")


def setting(
    processors: int | None, slots: int, load: tuple[float, float, float], *, quick: bool = False
) -> dict[str, object]:
    """The properties of machine and run on which the figures depend."""
    return {
        "quick": quick,
        "processors": processors,
        "slots": slots,
        "loadBefore": round(load[0], 1),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
