"""Bar charts of measured figures, from the output of `python -m bench NAME -o json` in docs/figures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pictures.svg import SMALL, Picture, Tone, line, rectangle, text, text_width

_WIDTH, _SIDE, _BAR, _STEP = 920, 16, 18, 30  # px: of the picture, beside it, a bar, from a bar to the next
_TITLE, _GAP = 34, 22  # px: above the first bar of a panel, between panels


@dataclass(frozen=True)
class Panel:
    """One question: the figures whose names match a pattern, in their order in the file."""

    title: str
    pattern: str  # of the whole name; its group is the label of the bar


@dataclass(frozen=True)
class Chart:
    """One picture of one file of figures."""

    name: str
    title: str
    file: str  # in docs/figures
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Bar:
    """A figure with its label."""

    label: str
    value: float
    unit: str
    spread: tuple[float, float] | None
    target: float | None
    at_least: bool


_BASELINE = "Spark's own sink"
_TRANSACTION, _AFTER = "a lane's transaction", "after the previous one, median(?:, (.+))?"
CHARTS = (
    Chart(
        "acks-producer",
        "A producer alone with acks=0, 1 and all: records per second, and time",
        "acks.json",
        (
            Panel("records/s, sent without waiting", r"producer: records/s, (acks=\w+)"),
            Panel(
                "ms from a record to its acknowledgement, one record at a time: median",
                r"producer: acknowledged, p50, (acks=\w+)",
            ),
            Panel("the same: 99th percentile", r"producer: acknowledged, p99, (acks=\w+)"),
        ),
    ),
    Chart(
        "acks-pipelines",
        "Pipelines under each guarantee and level: records per second, and latency",
        "acks.json",
        (
            Panel("records/s of a copy, 4 partitions, records of 100 B", r"pipeline: records/s, ([\w=, -]+)"),
            Panel(
                "ms from producer to reader at 2,000 records/s, trigger of 1 s: median",
                r"pipeline: latency, p50, ([\w=, -]+)",
            ),
            Panel("the same: 99th percentile", r"pipeline: latency, p99, ([\w=, -]+)"),
        ),
    ),
    Chart(
        "performance-throughput",
        "Throughput of exactly-once, relative to Spark's own Kafka sink",
        "performance.json",
        (Panel("times that of Spark's own sink, by input", r"(.+ partitions), .*: exactly-once ÷ Spark's own sink"),),
    ),
    Chart(
        "performance-transaction",
        "What a transaction costs, by the age of the brokers",
        "performance.json",
        (
            Panel("ms, 1 s after the lane's last commit", rf"{_TRANSACTION}, 1 s {_AFTER}"),
            Panel("ms, 0.25 s after it", rf"{_TRANSACTION}, 0\.25 s {_AFTER}"),
        ),
    ),
    Chart(
        "performance-latency",
        "Latency of exactly-once and of Spark's own Kafka sink, trigger of 1 s",
        "performance.json",
        (
            Panel("ms, median", r"2,000 records/s, trigger of 1 s, (\d+ partitions: )p50, ([^÷]+)"),
            Panel("ms, 99th percentile", r"2,000 records/s, trigger of 1 s, (\d+ partitions: )p99, ([^÷]+)"),
        ),
    ),
    Chart(
        "performance-fastest",
        "Latency of exactly-once and of Spark's own Kafka sink, fastest trigger",
        "performance.json",
        (
            Panel("ms, median", r"2,000 records/s, fastest trigger, (\d+ partitions: )p50, ([^÷]+)"),
            Panel("ms, 99th percentile", r"2,000 records/s, fastest trigger, (\d+ partitions: )p99, ([^÷]+)"),
        ),
    ),
)
# In a page: the charts of a file stand between these lines, once the file exists.
_PLACE = re.compile(r"(<!-- charts of (\S+) -->\n).*?(<!-- end of charts -->\n)", re.DOTALL)


def pictures(directory: Path) -> tuple[Picture, ...]:
    """The charts of the files that exist. Raises ValueError for a file without the figures of its chart."""
    return tuple(
        draw(chart, json.loads((directory / chart.file).read_text()))
        for chart in CHARTS
        if (directory / chart.file).exists()
    )


def with_charts(page: str, directory: Path) -> str:
    """A page with the charts of the files that exist, between the lines that name them."""

    def shown(match: re.Match[str]) -> str:
        begin, file, end = match.groups()
        charts = [chart for chart in CHARTS if chart.file == file and (directory / file).exists()]
        return begin + "".join(f"\n![{chart.title}](images/{chart.name}.svg)\n" for chart in charts) + "\n" + end

    return _PLACE.sub(shown, page)


def draw(chart: Chart, document: Mapping[str, Any]) -> Picture:
    """The chart of the output of a benchmark."""
    panels = [(panel, bars(panel, document["figures"])) for panel in chart.panels]
    elements: list[str] = []
    y = float(_SIDE)
    for panel, of_panel in panels:
        elements += _panel(panel, of_panel, y)
        y += _TITLE + _STEP * len(of_panel) + _GAP
    note = _note(document["setting"])
    elements.append(text(_SIDE, y + 4, note, anchor="start", style="small muted"))
    description = " ".join(
        f"{panel.title}: {'; '.join(f'{bar.label} {_number(bar.value)}' for bar in of_panel)}."
        for panel, of_panel in panels
    )
    return Picture(chart.name, chart.title, f"{description} {note}", _WIDTH, round(y + 18), tuple(elements))


def bars(panel: Panel, figures: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """The figures of a panel. Raises ValueError if there are none."""
    matched = [(m, f) for f in figures if (m := re.fullmatch(panel.pattern, f["name"]))]
    if not matched:
        raise ValueError(f"no figure matches {panel.pattern!r}; measure again, or correct the panel {panel.title!r}")
    return [
        Bar(
            "".join(group or "" for group in m.groups()),
            f["value"],
            f["unit"],
            tuple(f["spread"]) if f["spread"] else None,
            f["target"],
            f["atLeast"],
        )
        for m, f in matched
    ]


def _panel(panel: Panel, of_panel: Sequence[Bar], top: float) -> Iterator[str]:
    yield text(_SIDE, top + 14, panel.title, anchor="start", style="bold")
    left = _SIDE + max(text_width(bar.label, SMALL) for bar in of_panel) + 12
    longest = max(max(bar.value, bar.spread[1] if bar.spread else 0, bar.target or 0) for bar in of_panel)
    values = max(text_width(_label(bar), SMALL) for bar in of_panel) + 12
    scale = (_WIDTH - _SIDE - values - left) / (longest or 1)
    for n, bar in enumerate(of_panel):
        y = top + _TITLE - 8 + n * _STEP
        middle, end = y + _BAR / 2, left + bar.value * scale
        yield text(left - 8, middle + 4, bar.label, anchor="end", style="small")
        yield rectangle(round(left, 1), y, round(max(bar.value * scale, 1), 1), _BAR, _tone(bar))
        if bar.spread and bar.spread[0] < bar.spread[1]:
            low, high = (round(left + v * scale, 1) for v in bar.spread)
            yield line(low, middle, high, middle)
            end = max(end, high)
        if bar.target is not None:
            at = round(left + bar.target * scale, 1)
            yield line(at, y - 4, at, y + _BAR + 4, dashed=True)
            end = max(end, at)  # the line does not cross the label
        yield text(round(end + 8, 1), middle + 4, _label(bar), anchor="start", style="small")


def _tone(bar: Bar) -> Tone:
    if bar.target is None:
        return Tone.PLAIN if bar.label.endswith(_BASELINE) else Tone.OURS
    return Tone.GOOD if (bar.value >= bar.target) is bar.at_least or bar.value == bar.target else Tone.BAD


def _label(bar: Bar) -> str:
    spread = (
        f" ({_number(bar.spread[0])} to {_number(bar.spread[1])})"
        if bar.spread and bar.spread[0] < bar.spread[1]
        else ""
    )
    target = f", target {'≥' if bar.at_least else '≤'} {bar.target:g}" if bar.target is not None else ""
    return f"{_number(bar.value)}{spread}{target}"


def _number(value: float) -> str:
    """Two significant digits."""
    return f"{float(f'{value:.2g}'):,.15g}"


def _note(setting: Mapping[str, Any]) -> str:
    size = "a quick run, whose figures mean little" if setting["quick"] else "a full run"
    load = f", load {setting['loadBefore']:g} before it" if "loadBefore" in setting else ""
    return f"Measured in {size}, on {setting['processors']} processors with the brokers{load}."
