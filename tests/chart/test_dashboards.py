"""The dashboards' panels have data of a fleet, by promtool, and their pictures show what the expressions return."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from chart import fleet
from chart.prometheus import Scrape, evaluate
from record_dashboards import DASHBOARDS, FILE, TIMES, record, text


@pytest.fixture(scope="module")
def scrapes() -> list[Scrape]:
    return fleet.scrapes()


def without_data(dashboard: Any, scrapes: list[Scrape], directory: Path) -> set[str]:
    """The title and letter of each query that returns nothing at any time."""
    single = []
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            # The zero of a query that counts hides that there is nothing to count.
            query = target | {"expr": target["expr"].removesuffix(" or vector(0)"), "instant": False}
            single.append({**panel, "id": f"{panel['id']} {panel['title']} {target['refId']}", "targets": [query]})
    return {name for name, series in record({**dashboard, "panels": single}, scrapes, directory).items() if not series}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_of_every_panel_returns_data(name: str, scrapes: list[Scrape], tmp_path: Path) -> None:
    assert without_data(DASHBOARDS[name], scrapes, tmp_path) == set()


def test_a_query_of_a_misspelt_metric_or_label_is_detected(scrapes: list[Scrape], tmp_path: Path) -> None:
    """The control of the test above."""
    dashboard = copy.deepcopy(DASHBOARDS["ackwright-pipeline"])
    guarantee, _, _, rate, *_, heap, _, _, _ = dashboard["panels"]
    for panel, target, correct, wrong in (
        (guarantee, 0, "_condition{", "_conditions{"),
        (rate, 0, "$namespace/$pipeline", "$pipeline"),
        (heap, 1, "heap_max_bytes", "heap_maximum_bytes"),
    ):
        assert correct in panel["targets"][target]["expr"]
        panel["targets"][target]["expr"] = panel["targets"][target]["expr"].replace(correct, wrong)
    assert without_data(dashboard, scrapes, tmp_path) == {
        f"{guarantee['id']} {guarantee['title']} A",
        f"{rate['id']} {rate['title']} A",
        f"{heap['id']} {heap['title']} B",
    }


def test_the_committed_record_is_current(tmp_path: Path) -> None:
    assert FILE.read_text() == text(tmp_path), "run: python tools/record_dashboards.py, then: make pictures"


def test_promtool_returns_the_samples_with_their_labels(tmp_path: Path) -> None:
    labels = {"__name__": "a", "b": 'x, "y" {z} \\', "c": "d"}
    scrapes = [{'a{b="x, \\"y\\" {z} \\\\",c="d"}': 1.5 * minute, "a": minute} for minute in range(3)]
    queries = [("a", 2), ("sum(a)", 1), ("missing", 1), ("a / 0", 0)]
    several, total, none, undefined = evaluate(tmp_path, scrapes, queries)
    assert sorted(several, key=str) == sorted([(labels, 3.0), ({"__name__": "a"}, 2.0)], key=str)
    assert (total, none) == ([({}, 2.5)], [])
    assert [math.isnan(value) for _, value in undefined] == [True, True]
    with pytest.raises(ValueError, match="has not evaluated all 2 expressions"):
        evaluate(tmp_path, scrapes, [("a", 1), ("sum(", 1)])


def test_the_fleet_is_always_the_same_and_covers_all_evaluations(scrapes: list[Scrape]) -> None:
    assert fleet.scrapes() == scrapes
    assert (len(TIMES), TIMES[-1]) == (60, len(scrapes) - 1)
    assert TIMES[0] >= 5, "the ranges of the queries are five minutes"
