"""The chart's Grafana dashboards with the recorded figures of a made-up fleet (tools/record_dashboards.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from pictures.svg import BOLD, SMALL, Area, Picture, Tone, line, lines_of_text, text, text_width, wrap

Object = Mapping[str, Any]
Series = Mapping[str, Any]  # "legend" or "row", and "values", None where there is none

FILE = "dashboards.json"  # in docs/figures
_WIDTH, _SIDE, _TOP = 920, 12, 62  # px: of the picture, beside the panels, above them
_COLUMN, _ROW, _GAP = (_WIDTH - 2 * _SIDE) / 24, 26, 8  # px: Grafana's grid has 24 columns
_PAD, _LINE, _MARK = 10, 16, 14  # px: inside a panel, from a small line to the next, a mark of the legend
_LEGEND_LINES = 3
_FIGURE = 30  # px, size of the number of a stat
# Colours of series in light and dark; with more series they repeat with dashes.
LIGHT = ("#1f62b8", "#b85c00", "#1d7a3a", "#8a3fc0", "#c02430", "#0a7a85", "#7a5a3a", "#b8307e")
DARK = ("#6cb0f5", "#f0a35a", "#58c77a", "#c39bf0", "#f5828a", "#4fc9d6", "#c9a98a", "#f08cc4")
_TONES = {"blue": Tone.OURS, "green": Tone.GOOD, "red": Tone.BAD}
_TITLES = {
    "ackwright": "The dashboard of all pipelines, with a made-up fleet",
    "ackwright-pipeline": "The dashboard of one pipeline of a made-up fleet",
}
_NOTE = "Three hours of a made-up fleet: the dashboard's own queries, evaluated by Prometheus."


@dataclass(frozen=True)
class Scale:
    """The vertical axis of a graph."""

    low: float
    high: float
    step: float


def pictures(figures: Path, dashboards: Path) -> tuple[Picture, ...]:
    """One per dashboard. figures: the directory of FILE. dashboards: that of the dashboards' JSON."""
    recorded = json.loads((figures / FILE).read_text())
    return tuple(
        draw(json.loads((dashboards / f"{name}.json").read_text()), recorded[name], recorded["minutes"])
        for name in _TITLES
    )


def draw(dashboard: Object, recorded: Object, minutes: int) -> Picture:
    """The dashboard with its recorded series; minutes: from one value to the next.

    Raises ValueError for a panel of another type, or without data.
    """
    elements, texts, bottom = [_style(), *_head(dashboard, recorded["selected"])], [], 0.0
    for panel in dashboard["panels"]:
        series = recorded[str(panel["id"])]
        if not series:
            raise ValueError(f"{panel['title']!r} has no data; record it by tools/record_dashboards.py")
        area = _area(panel["gridPos"])
        elements += _panel(panel, series, area, minutes)
        texts.append(f"{panel['title']}: {_summary(panel, series)}.")
        bottom = max(bottom, area[1] + area[3])
    title = _TITLES[dashboard["uid"]]
    description = " ".join((_NOTE, *texts))
    name = f"dashboard-{dashboard['uid']}"
    return Picture(name, title, description, _WIDTH, round(bottom + _SIDE), tuple(elements))


def _style() -> str:
    def colours(theme: Sequence[str]) -> str:
        return "".join(f".series-{n}{{stroke:{colour}}}" for n, colour in enumerate(theme))

    shapes = ".panel{fill:none;stroke-width:.8;opacity:.6}.grid{stroke-width:.7;opacity:.35}"
    lines = (
        f".graph{{fill:none;stroke-width:1.6;stroke-linejoin:round}}.figure{{font-size:{_FIGURE}px;font-weight:600}}"
    )
    return f"<style>{shapes}{lines}{colours(LIGHT)}@media (prefers-color-scheme:dark){{{colours(DARK)}}}</style>"


def _head(dashboard: Object, selected: Mapping[str, str]) -> Iterator[str]:
    variables = {v["name"]: v["label"] for v in dashboard["templating"]["list"]}
    values = ", ".join(f"{variables[n]}: {'All' if v == '.*' else v}" for n, v in selected.items())
    yield text(_SIDE + 4, 26, dashboard["title"], anchor="start", style="bold")
    yield text(_WIDTH - _SIDE - 4, 26, values, anchor="end", style="small")
    yield text(_SIDE + 4, 48, _NOTE, anchor="start", style="small muted")


def _area(place: Mapping[str, int]) -> Area:
    """The area of a panel, from its place in Grafana's grid."""
    left, top = _SIDE + place["x"] * _COLUMN, _TOP + place["y"] * _ROW
    width, height = place["w"] * _COLUMN - _GAP, place["h"] * _ROW - _GAP
    return round(left + _GAP / 2, 1), top, round(width, 1), height


def _panel(panel: Object, series: Sequence[Series], area: Area, minutes: int) -> Iterator[str]:
    left, top, width, height = area
    yield f'<rect class="line panel" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="4"/>'
    titles = wrap(panel["title"], (width - 2 * _PAD) / BOLD, SMALL)
    middle = top + 4 + len(titles) * _LINE / 2
    yield lines_of_text(left + _PAD, middle, titles, size=SMALL, anchor="start", style="small bold")
    used = 8 + len(titles) * _LINE
    content = (left + _PAD, top + used, width - 2 * _PAD, height - used - 6)
    match panel["type"]:
        case "stat":
            yield _stat(panel, series[-1]["values"][-1], content)
        case "table":
            yield from _table(panel, [s["row"] for s in series], content)
        case "timeseries":
            yield from _graph(_unit(panel), series, content, minutes)
        case other:
            raise ValueError(f"{panel['title']!r} is a panel of type {other}; draw that type in pictures/dashboards.py")


def _unit(panel: Object) -> str:
    unit: str = panel["fieldConfig"]["defaults"].get("unit", "short")
    return unit


def _stat(panel: Object, value: float, area: Area) -> str:
    left, top, width, height = area
    tone = _TONES[_colour(panel["fieldConfig"]["defaults"], value)]
    middle = top + height / 2 + _FIGURE * 0.36
    return text(left + width / 2, round(middle - 4, 1), _shown(panel, value), style=f"figure head-{tone}")


def _colour(defaults: Object, value: float) -> str:
    if defaults["color"]["mode"] == "fixed":
        return str(defaults["color"]["fixedColor"])
    reached = [s for s in defaults["thresholds"]["steps"] if s["value"] is None or value >= s["value"]]
    return str(reached[-1]["color"])


def _shown(panel: Object, value: float) -> str:
    """The value of a stat as Grafana shows it."""
    mappings = {
        k: v["text"] for m in panel["fieldConfig"]["defaults"].get("mappings", ()) for k, v in m["options"].items()
    }
    return mappings.get(f"{value:g}") or number(value, _unit(panel))


def _table(panel: Object, rows: Sequence[Sequence[str]], area: Area) -> Iterator[str]:
    left, top, width, height = area
    columns = list(panel["transformations"][0]["options"]["indexByName"])
    step = width / len(columns)
    for n, row in enumerate([columns, *rows][: int(height // (_LINE + 6))]):
        y = top + 14 + n * (_LINE + 6)
        for place, cell in enumerate(row):
            style = "small muted" if n == 0 else "small"
            yield text(round(left + place * step, 1), y, cell, anchor="start", style=style)
        yield _grid(left, y + 7, left + width)


def _graph(unit: str, series: Sequence[Series], area: Area, minutes: int) -> Iterator[str]:
    left, top, width, height = area
    ordered, legend_lines = _legend(series, width)
    scale = axis([v for s in series for v in s["values"] if v is not None], unit)
    count = round((scale.high - scale.low) / scale.step)
    ticks = [scale.low + n * scale.step for n in range(count + 1)]
    labels = [number(tick, unit) for tick in ticks]
    x0, x1 = left + max(text_width(label, SMALL) for label in labels) + 8, left + width
    y0, y1 = top + 6, top + height - 14 - _LINE * legend_lines

    def y_of(value: float) -> float:
        return round(y1 - (value - scale.low) / (scale.high - scale.low) * (y1 - y0), 1)

    for tick, label in zip(ticks, labels, strict=True):
        yield text(round(x0 - 8, 1), y_of(tick) + 4, label, anchor="end", style="small muted")
        yield _grid(x0, y_of(tick), x1)
    values = len(series[0]["values"])
    step = (x1 - x0 - 14) / (values - 1)
    for hours in range(int((values - 1) * minutes / 60) + 1):
        x = round(x0 + step * (values - 1 - hours * 60 / minutes), 1)
        yield text(x, y1 + 15, f"−{hours} h" if hours else "now", style="small muted")
    for n, one in reversed(list(enumerate(ordered))):  # the first one of the legend is on top
        points = [(round(x0 + step * i, 1), v) for i, v in enumerate(one["values"])]
        for is_value, run in groupby(points, lambda p: p[1] is not None):
            if is_value:
                path = [(x, y_of(v)) for x, v in run]
                yield _line(n, path if len(path) > 1 else [*path, (path[0][0] + 1.5, path[0][1])])
    yield from _legend_marks(ordered, (left, y1 + 18, width, legend_lines * _LINE))


def _grid(x1: float, y: float, x2: float) -> str:
    return line(round(x1, 1), y, round(x2, 1), y).replace('class="line"', 'class="line grid"')


def _line(n: int, points: Sequence[tuple[float, float]]) -> str:
    dashed = " dashed" if n // len(LIGHT) % 2 else ""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline class="graph series-{n % len(LIGHT)}{dashed}" points="{path}"/>'


def _legend(series: Sequence[Series], width: float) -> tuple[Sequence[Series], int]:
    """The series in the order of the legend, and its lines.

    If not all names fit, those come first whose values change most.
    """
    if not any(s["legend"] for s in series):
        return series, 0
    lines = len(_lines(series, width))
    if lines <= _LEGEND_LINES:
        return series, lines
    return sorted(series, key=lambda s: -_change(s["values"])), _LEGEND_LINES


def _change(values: Sequence[float | None]) -> float:
    numbers = [v for v in values if v is not None]
    return max(numbers) - min(numbers)


def _lines(series: Sequence[Series], width: float) -> list[list[tuple[float, int]]]:
    """The lines of the legend: the place of each entry in px, and the number of its series."""
    lines: list[list[tuple[float, int]]] = []
    x = width
    for n, one in enumerate(series):
        entry = _MARK + 6 + text_width(one["legend"], SMALL) + 12
        if not lines or x + entry - 12 > width:
            lines.append([])
            x = 0
        lines[-1].append((x, n))
        x += entry
    return lines


def _legend_marks(series: Sequence[Series], area: Area) -> Iterator[str]:
    left, top, width, height = area
    lines = _lines(series, width)[: int(height // _LINE)]
    rest = len(series) - sum(map(len, lines))
    for row, entries in enumerate(lines):
        y = top + _LINE * (row + 0.5) + 4
        is_last = rest and row == len(lines) - 1
        more = f"+ {rest + (len(entries) > 1)} more"
        for x, n in entries[:-1] if is_last and len(entries) > 1 else entries:
            yield _line(n, [(round(left + x, 1), y - 4), (round(left + x + _MARK, 1), y - 4)])
            yield text(round(left + x + _MARK + 6, 1), y, series[n]["legend"], anchor="start", style="small")
        if is_last:
            yield text(round(left + width, 1), y, more, anchor="end", style="small muted")


def axis(values: Sequence[float], unit: str) -> Scale:
    """An axis with at most five ticks, from 0 or below up to the largest value or above."""
    of_unit = 2**30 if unit == "bytes" else 1
    low, high = min(0, *values) / of_unit, max(values) / of_unit
    span = (high - low) or 1
    power = 10 ** floor(log10(span / 4))
    steps = (1, 2, 5, 10) if unit == "short" else (1, 2, 2.5, 5, 10)
    step = next(m * power for m in steps if m * power * 4 >= span * 0.999)
    if unit == "short":
        step = max(step, 1)  # counts
    first = floor(low / step) * step
    last = max(ceil(high / step - 1e-3) * step, first + step)
    return Scale(first * of_unit, last * of_unit, step * of_unit)


def number(value: float, unit: str) -> str:
    """A value with its unit, to three digits."""
    match unit:
        case "s":
            return f"{value:.3g} s" if value >= 1 or value == 0 else f"{value * 1000:.3g} ms"
        case "bytes":
            return f"{value / 2**30:.3g} GiB"
        case "percentunit":
            return f"{value * 100:.3g}%"
    for size, letter in ((1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}".replace("-", "−")


def _summary(panel: Object, series: Sequence[Series]) -> str:
    """What a panel shows, in words."""
    if panel["type"] == "stat":
        return _shown(panel, series[-1]["values"][-1])
    if panel["type"] == "table":
        return "; ".join(" ".join(s["row"]) for s in series)
    unit = _unit(panel)
    numbers = [v for s in series for v in s["values"] if v is not None]
    lines = "one line" if len(series) == 1 else f"{len(series)} lines"
    return f"{lines}, from {number(min(numbers), unit)} to {number(max(numbers), unit)}"
