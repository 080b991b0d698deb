"""The pictures of the dashboards: every panel at its place, with what is recorded of it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from draw_pictures import DASHBOARDS, FIGURES
from pictures import dashboards
from pictures.svg import DARK, LIGHT, contrast
from unit.documents import DASHBOARD, PIPELINE_DASHBOARD

RECORDED = json.loads((FIGURES / dashboards.FILE).read_text())
BOTH = pytest.mark.parametrize("dashboard", [DASHBOARD, PIPELINE_DASHBOARD], ids=["fleet", "pipeline"])


def drawn(dashboard: Any, recorded: Any = None) -> str:
    return dashboards.draw(dashboard, recorded or RECORDED[dashboard["uid"]], RECORDED["minutes"]).svg()


def texts(svg: str) -> list[str]:
    return [text.replace("&#x27;", "'") for text in re.findall(r"<text [^>]*>([^<]*)</text>", svg)]


def one_panel(*values: Sequence[float | None], unit: str = "short", kind: str = "timeseries", names: str = "") -> str:
    """The picture of a dashboard with one panel, whose series have these values."""
    place = {"x": 0, "y": 0, "w": 12, "h": 8}
    panel = {"id": 1, "title": "t", "type": kind, "gridPos": place, "fieldConfig": {"defaults": {"unit": unit}}}
    series = [{"legend": names and f"{names} {n}", "values": list(v)} for n, v in enumerate(values)]
    return drawn(DASHBOARD | {"panels": [panel]}, {"selected": {}, "1": series})


@BOTH
def test_every_panel_has_its_title_and_its_place_in_grafanas_grid(dashboard: Any) -> None:
    svg = drawn(dashboard)
    content = " ".join(texts(svg))
    assert [p["title"] for p in dashboard["panels"] if p["title"] not in content] == []
    boxes = re.findall(r'class="line panel" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg)
    places = [tuple(p["gridPos"][key] for key in ("x", "y", "w", "h")) for p in dashboard["panels"]]
    assert len(boxes) == len(places)
    left, top, *_ = map(float, boxes[0])
    for box, (x, y, w, h) in zip(boxes, places, strict=True):
        column, row = dashboards._COLUMN, dashboards._ROW
        expected = (left + x * column, top + y * row, w * column - dashboards._GAP, h * row - dashboards._GAP)
        assert tuple(map(float, box)) == pytest.approx(expected, abs=0.1)


@BOTH
def test_the_record_has_the_panels_of_the_dashboard_and_their_legends(dashboard: Any) -> None:
    recorded = RECORDED[dashboard["uid"]]
    assert set(recorded) - {"selected"} == {str(panel["id"]) for panel in dashboard["panels"]}
    for panel in dashboard["panels"]:
        if panel["type"] != "table":
            patterns = [re.sub(r"\\{\\{\w+\\}\\}", ".+", re.escape(t["legendFormat"])) for t in panel["targets"]]
            for series in recorded[str(panel["id"])]:
                assert any(re.fullmatch(pattern, series["legend"]) for pattern in patterns), panel["title"]


def test_the_pictures_are_those_of_the_chart() -> None:
    both = [drawn(DASHBOARD), drawn(PIPELINE_DASHBOARD)]
    assert [picture.svg() for picture in dashboards.pictures(FIGURES, DASHBOARDS)] == both


def test_the_pictures_say_that_the_fleet_is_made_up() -> None:
    for picture in dashboards.pictures(FIGURES, DASHBOARDS):
        assert all(
            "made-up fleet" in text for text in (picture.title, picture.description, " ".join(texts(picture.svg())))
        )


def test_a_stat_has_the_colour_of_its_threshold_and_the_text_of_its_mapping() -> None:
    recorded = copy.deepcopy(RECORDED["ackwright-pipeline"])
    for value, text, tone in ((1, "yes", "good"), (0, "no", "bad")):
        recorded["1"][0]["values"] = [value]
        assert re.search(rf'class="figure head-{tone}">{text}<', drawn(PIPELINE_DASHBOARD, recorded))
    recorded["3"][0]["values"] = [12_300]
    assert 'class="figure head-ours">12.3 K<' in drawn(PIPELINE_DASHBOARD, recorded)


def test_a_table_has_its_columns_and_rows() -> None:
    recorded = copy.deepcopy(RECORDED["ackwright"])
    recorded["5"] = [{"row": ["ops", "p", "Ready", "False", "Crashed"], "values": [1]}]
    content = " ".join(texts(drawn(DASHBOARD, recorded)))
    assert "namespace name condition status reason ops p Ready False Crashed" in content


def test_a_line_ends_where_a_value_is_missing() -> None:
    graphs = re.findall(r'<polyline class="graph[^>]*points="([^"]*)"', one_panel([1, 2, None, 3, 4, 5]))
    assert sorted(len(points.split()) for points in graphs) == [2, 3]


def test_a_legend_that_does_not_fit_names_the_series_that_change_most() -> None:
    few = one_panel([1, 1], [1, 1], names="name")
    assert ("name 0" in few, "name 1" in few, "more" in few) == (True, True, False)
    many = texts(one_panel(*[[1, 1]] * 20, [1, 5], names="a rather long name of a series"))
    shown = [text for text in many if text.startswith("a rather long name")]
    assert shown[0] == "a rather long name of a series 20"
    assert f"+ {21 - len(shown)} more" in many


def test_a_panel_without_data_or_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="has no data"):
        one_panel()
    with pytest.raises(ValueError, match="a panel of type heatmap"):
        one_panel([1], kind="heatmap")


@pytest.mark.parametrize(
    ("values", "unit", "low", "high", "step"),
    [
        ([3, 38], "short", 0, 40, 10),
        ([0, 1], "short", 0, 1, 1),
        ([1, -1], "short", -1, 1, 1),
        ([0, 0], "short", 0, 1, 1),
        ([0.1, 0.34], "percentunit", 0, 0.4, 0.1),
        ([2**29, 2**30], "bytes", 0, 2**30, 2**28),
        ([0.02, 0.07], "s", 0, 0.08, 0.02),
    ],
)
def test_an_axis_has_round_ticks(values: list[float], unit: str, low: float, high: float, step: float) -> None:
    scale = dashboards.axis(values, unit)
    assert (scale.low, scale.high, scale.step) == pytest.approx((low, high, step))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "short", "0"),
        (-1, "short", "−1"),
        (603_000, "short", "603 K"),
        (1_500_000, "short", "1.5 M"),
        (0.25, "s", "250 ms"),
        (15, "s", "15 s"),
        (3 * 2**28, "bytes", "0.75 GiB"),
        (0.4, "percentunit", "40%"),
    ],
)
def test_a_value_has_its_unit(value: float, unit: str, text: str) -> None:
    assert dashboards.number(value, unit) == text


@pytest.mark.parametrize(
    ("series", "background"), [(dashboards.LIGHT, LIGHT.background), (dashboards.DARK, DARK.background)]
)
def test_every_colour_of_a_series_has_enough_contrast(series: Sequence[str], background: str) -> None:
    assert len(set(series)) == len(dashboards.LIGHT)
    assert min(contrast(colour, background) for colour in series) >= 3  # WCAG 2.2, criterion 1.4.11
