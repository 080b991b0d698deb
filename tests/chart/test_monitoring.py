"""Alerts and dashboard contain the chart's values. tests/unit/test_alerts_and_dashboard.py tests their metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from chart.rendered import objects
from unit.documents import DASHBOARD, PIPELINE_DASHBOARD


def rules(values: Mapping[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    resource = objects({"prometheusRule": {"enabled": True, **(values or {})}})["PrometheusRule", "ackwright"]
    return {rule["alert"]: rule for group in resource["spec"]["groups"] for rule in group["rules"]}


def test_every_alert_has_a_severity_and_a_duration_of_minutes() -> None:
    for rule in rules().values():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert re.fullmatch(r"\d+m", rule["for"])


def test_alerts_contain_the_values() -> None:
    alerts = rules(
        {"lag": 5_000_000, "lagFor": "1h", "notReadyFor": "30m", "alertLabels": {"team": "data", "severity": "page"}}
    )
    assert "(ackwright_pipeline_lag) > 5000000 unless " in alerts["AckwrightLag"]["expr"]
    assert (alerts["AckwrightLag"]["for"], alerts["AckwrightNotReady"]["for"]) == ("1h", "30m")
    assert alerts["AckwrightLag"]["labels"] == {"severity": "warning", "team": "data"}


def test_the_config_map_contains_the_dashboard_whose_panels_do_not_overlap() -> None:
    values = {"dashboard": {"enabled": True, "labels": {"grafana": "yes"}}}
    config_map = objects(values)["ConfigMap", "ackwright-dashboard"]
    assert json.loads(config_map["data"]["ackwright.json"]) == DASHBOARD
    assert json.loads(config_map["data"]["ackwright-pipeline.json"]) == PIPELINE_DASHBOARD
    assert config_map["metadata"]["labels"]["grafana"] == "yes"
    for dashboard in (DASHBOARD, PIPELINE_DASHBOARD):
        check_places(dashboard)


def check_places(dashboard: Any) -> None:
    cells = [
        (p["gridPos"]["x"] + x, p["gridPos"]["y"] + y)
        for p in dashboard["panels"]
        for x in range(p["gridPos"]["w"])
        for y in range(p["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({p["id"] for p in dashboard["panels"]}) == len(dashboard["panels"])
