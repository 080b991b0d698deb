"""Records what the dashboards' panels show of a made-up fleet, in docs/figures/dashboards.json.

`python tools/record_dashboards.py` evaluates every expression with Prometheus' promtool; building that once needs Go.
`make pictures` draws the record.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import dashboards

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the fleet and promtool

from chart import fleet, prometheus  # noqa: E402  tests/ is on the path now

FILE = ROOT / "docs" / "figures" / "dashboards.json"
EVERY = 3  # minutes between two evaluations
# The minutes of the 60 evaluations, up to the last scrape. Enough scrapes precede the first for every range.
TIMES = range(fleet.MINUTES - 1 - 59 * EVERY, fleet.MINUTES, EVERY)
_DIGITS = 3  # significant ones of a value

Object = Mapping[str, Any]
Series = dict[str, Any]  # "legend" of a graph or "row" of a table, and "values", one per evaluation, None for none
DASHBOARDS: Mapping[str, Object] = {
    dashboard["uid"]: dashboard for dashboard in map(json.loads, (dashboards.fleet(), dashboards.pipeline()))
}
# By dashboard: what its variables select, as regular expressions.
SELECTED = {
    "ackwright": {"namespace": ".*", "pipeline": ".*"},
    "ackwright-pipeline": dict(zip(("namespace", "pipeline"), fleet.RESTARTING, strict=True)),
}


def record(dashboard: Object, scrapes: Sequence[prometheus.Scrape], directory: Path) -> dict[str, list[Series]]:
    """The series of each panel, by the panel's id. directory: for promtool's files."""
    queries = [
        (panel, target, minute)
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for minute in (TIMES[-1:] if target.get("instant") else TIMES)
    ]
    results = prometheus.evaluate(
        directory, scrapes, [(_selected(t["expr"], SELECTED[dashboard["uid"]]), minute) for _, t, minute in queries]
    )
    series: dict[str, dict[str, Series]] = {str(panel["id"]): {} for panel in dashboard["panels"]}
    for (panel, target, minute), values in zip(queries, results, strict=True):
        times = TIMES[-1:] if target.get("instant") else TIMES
        for labels, value in values:
            name = _name(panel, target, labels)
            key = f"{target['refId']} {name}"
            entry = series[str(panel["id"])].setdefault(key, name | {"values": [None] * len(times)})
            entry["values"][times.index(minute)] = _rounded(value)
    # Prometheus returns series in no certain order.
    return {panel: [by_key[key] for key in sorted(by_key)] for panel, by_key in series.items()}


def _selected(expression: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda m: values[m[1]], expression)


def _name(panel: Object, target: Object, labels: Mapping[str, str]) -> Series:
    if panel["type"] == "table":
        columns = panel["transformations"][0]["options"]["indexByName"]
        return {"row": [labels[column] for column in columns]}
    return {"legend": re.sub(r"\{\{(\w+)\}\}", lambda m: labels[m[1]], target["legendFormat"])}


def _rounded(value: float) -> float | None:
    if not isfinite(value):
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def text(directory: Path) -> str:
    """The content of FILE: one series per line. directory: for promtool's files."""
    scrapes = fleet.scrapes()
    records = ",\n".join(
        f' "{name}": {{\n  "selected": {json.dumps(SELECTED[name])},\n{_lines(record(d, scrapes, directory))}\n }}'
        for name, d in DASHBOARDS.items()
    )
    return f'{{\n "minutes": {EVERY},\n{records}\n}}\n'


def _lines(panels: Mapping[str, Sequence[Series]]) -> str:
    return ",\n".join(
        f'  "{panel}": [\n' + ",\n".join(f"   {json.dumps(s)}" for s in series) + "\n  ]"
        for panel, series in panels.items()
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        FILE.write_text(text(Path(directory)))


if __name__ == "__main__":
    main()
