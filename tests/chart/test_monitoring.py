"""What is chosen in the values is in alerts and dashboard. What they speak of: tests/unit/test_alerts_and_dashboard.py."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from chart.rendered import objects
from unit.documents import DASHBOARD


def rules(values: Mapping[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    found = objects({"prometheusRule": {"enabled": True, **(values or {})}})["PrometheusRule", "ackwright"]
    return {rule["alert"]: rule for group in found["spec"]["groups"] for rule in group["rules"]}


def test_every_alert_has_a_severity_and_lasts_some_minutes_before_it_is_given() -> None:
    for rule in rules().values():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert re.fullmatch(r"\d+m", rule["for"])


def test_what_is_chosen_for_alerts_is_in_them() -> None:
    found = rules(
        {"lag": 5_000_000, "lagFor": "1h", "notReadyFor": "30m", "alertLabels": {"team": "data", "severity": "page"}}
    )
    assert "(ackwright_pipeline_lag) > 5000000 unless " in found["AckwrightLag"]["expr"]
    assert (found["AckwrightLag"]["for"], found["AckwrightNotReady"]["for"]) == ("1h", "30m")
    assert found["AckwrightLag"]["labels"] == {"severity": "warning", "team": "data"}


def test_the_dashboard_is_the_file_and_no_two_panels_lie_on_each_other() -> None:
    found = objects({"dashboard": {"enabled": True, "labels": {"grafana": "yes"}}})["ConfigMap", "ackwright-dashboard"]
    assert json.loads(found["data"]["ackwright.json"]) == DASHBOARD
    assert found["metadata"]["labels"]["grafana"] == "yes"
    cells = [
        (p["gridPos"]["x"] + x, p["gridPos"]["y"] + y)
        for p in DASHBOARD["panels"]
        for x in range(p["gridPos"]["w"])
        for y in range(p["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({p["id"] for p in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
