"""Alerts are given when they should be, and only then; what is asked of Prometheus is PromQL. promtool judges, as users have it."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ackwright import worklist
from chart import prometheus
from chart.prometheus import Object, Scrape, scrape
from chart.rendered import NAMESPACE, objects
from unit.documents import DASHBOARD
from unit.gitops.states import states

STATES = states()
WELL = scrape(STATES["delivering"])
OF_THE_PIPELINE = {"namespace": "ops", "name": "p"}
OF_THE_TOPIC = {"namespace": "ops", "pipeline": "p", "topic": "in"}
# The alerts of each state that lasts for an hour. Those without a status are not told of.
GIVEN: Mapping[str, set[str]] = {
    **{name: set() for name in ("delivering", "suspended", "completed", "edited", "deleted", "new", "without-status")},
    "starting": {"AckwrightNotReady"},
    "draining": {"AckwrightNotReady"},
    "invalid": {"AckwrightNotReady", "AckwrightStalled"},
    "never-valid": {"AckwrightNotReady", "AckwrightStalled"},
    "stalled": {"AckwrightNotReady", "AckwrightStalled"},
    "guarantee-not-met": {
        "AckwrightNotReady",
        "AckwrightGuaranteeNotMet",
        "AckwrightInSyncBelowMinimum",
        "AckwrightUnderReplicated",
    },
    # Nobody waits for its records, but what it has delivered may still be lost with one more broker.
    "suspended-guarantee-not-met": {
        "AckwrightGuaranteeNotMet",
        "AckwrightInSyncBelowMinimum",
        "AckwrightUnderReplicated",
    },
}
_LONGEST_LOOK_S = 36  # that fails: two tries to connect and to read, by the time-outs of clients/kubernetes.py


@pytest.fixture(scope="module")
def groups() -> list[Object]:
    found: list[Object] = objects({"prometheusRule": {"enabled": True}})["PrometheusRule", "ackwright"]["spec"][
        "groups"
    ]
    return found


def state(name: str, *, lag: int = 0, topic: Mapping[str, int] | None = None, **more: Any) -> Scrape:
    """A pipeline in this state, with this lag, its topic `in` as said."""
    resource = copy.deepcopy(STATES[name])
    resource["status"]["delivery"]["lag"] = lag
    resource["status"]["topics"][0] |= topic or {}
    assert resource["status"]["topics"][0]["name"] == "in"
    return scrape(resource, **more)


def says(name: str, kind: str, status: str, reason: str) -> Scrape:
    """A pipeline in this state, but for one condition."""
    resource = copy.deepcopy(STATES[name])
    condition = next(c for c in resource["status"]["conditions"] if c["type"] == kind)
    condition |= {"status": status, "reason": reason}
    return scrape(resource)


def failing(every: float, minutes: int) -> list[Scrape]:
    """One look fails after the other, so many seconds apart."""
    return [scrape(STATES["delivering"], failures=1 + int(minute * 60 / every)) for minute in range(minutes)]


@dataclass(frozen=True)
class Case:
    """scrapes: what is wrong, after five minutes without trouble. after: so many minutes of it, and it is told."""

    alert: str
    scrapes: Sequence[Scrape]
    after: int
    labels: Mapping[str, str]
    summary: str
    description: str


CASES = [
    Case(
        "AckwrightGuaranteeNotMet",
        [scrape(STATES["guarantee-not-met"])] * 3,
        1,
        {"severity": "critical", **OF_THE_PIPELINE, "reason": "NotEnoughReplicas"},
        "The guarantee of pipeline ops/p does not hold: NotEnoughReplicas",
        "ackwright status -n ops p says which clause is broken, and what to do.",
    ),
    Case(
        "AckwrightStalled",
        [scrape(STATES["stalled"])] * 3,
        1,
        {"severity": "critical", **OF_THE_PIPELINE, "reason": "ImageUnavailable"},
        "Pipeline ops/p does not get on by itself: ImageUnavailable",
        "ackwright status -n ops p says what it waits for.",
    ),
    Case(
        "AckwrightNotReady",  # by turns for one reason and another: a driver that crashes and begins again
        [scrape(STATES["starting"]), says("starting", "Ready", "False", "Crashed")] * 10,
        15,
        {"severity": "warning", **OF_THE_PIPELINE},
        "Pipeline ops/p is not ready",
        "ackwright status -n ops p says why, and what to do.",
    ),
    Case(
        "AckwrightLag",
        [state("delivering", lag=250_000)] * 20,
        15,
        {"severity": "warning", **OF_THE_PIPELINE},
        "Pipeline ops/p lags 250k offsets behind",
        "More comes than it delivers, or it does not deliver: ackwright status -n ops p says which.",
    ),
    Case(
        "AckwrightInSyncBelowMinimum",
        [state("delivering", topic={"inSyncReplicas": 1})] * 3,
        1,
        {"severity": "critical", **OF_THE_TOPIC},
        "Topic in of ops/p has 1 replicas in sync: fewer than its minimum",
        "Nothing is written to it with acks=all until replicas have come back. Look at the brokers.",
    ),
    Case(
        "AckwrightUnderReplicated",
        [state("delivering", topic={"inSyncReplicas": 2})] * 20,
        15,
        {"severity": "warning", **OF_THE_TOPIC},
        "Topic in of ops/p has 2 replicas in sync: not all",
        "Until all have come back, fewer brokers may be lost. Look at the brokers.",
    ),
    Case(
        "AckwrightOperatorAbsent",
        [{}] * 10,
        5,
        {"severity": "warning"},
        "The operator is not there, or is not scraped; pipelines go on, but nothing of them is repaired or told",
        f"kubectl get deployment -n {NAMESPACE} ackwright-operator says which of the two.",
    ),
]

_AWAY = failing(5, 2)
# What is near to it, and is not told.
NOT_GIVEN = [
    (
        "AckwrightGuaranteeNotMet",
        "before the brokers were asked",
        [says("starting", "GuaranteeMet", "Unknown", "Creating")] * 60,
    ),
    ("AckwrightGuaranteeNotMet", "for less than a minute", [scrape(STATES["guarantee-not-met"]), WELL] * 30),
    ("AckwrightStalled", "on its way", [scrape(STATES["starting"])] * 60),
    ("AckwrightNotReady", "at each start", ([scrape(STATES["starting"])] * 14 + [WELL]) * 4),
    ("AckwrightNotReady", "suspended, a topic gone since", [says("suspended", "Ready", "False", "TopicMissing")] * 60),
    ("AckwrightNotReady", "completed, a broker gone since", [says("completed", "Ready", "False", "Completed")] * 60),
    ("AckwrightLag", "at the limit", [state("delivering", lag=100_000)] * 60),
    ("AckwrightLag", "caught up again and again", ([state("delivering", lag=250_000)] * 14 + [WELL]) * 4),
    ("AckwrightLag", "suspended with a lag", [state("suspended", lag=250_000)] * 60),
    ("AckwrightLag", "completed, with records come since", [state("completed", lag=250_000)] * 60),
    ("AckwrightInSyncBelowMinimum", "at the minimum", [state("delivering", topic={"inSyncReplicas": 2})] * 60),
    ("AckwrightUnderReplicated", "moved", [state("delivering", topic={"inSyncReplicas": 2, "moving": 1})] * 60),
    (
        "AckwrightUnderReplicated",
        "back in time",
        ([state("delivering", topic={"inSyncReplicas": 2})] * 14 + [WELL]) * 4,
    ),
    ("AckwrightReconcileErrors", "an API server that was away for a minute", [*_AWAY, *_AWAY[-1:] * 58]),
    ("AckwrightReconcileErrors", "changed under its hands now and then", failing(200, 60)),
    (
        "AckwrightOperatorAbsent",
        "replaced",
        [WELL] * 5 + [{}] * 4 + [scrape(STATES["delivering"], pod="ackwright-operator-2")] * 50,
    ),
]


def test_promtool_takes_the_rules(groups: list[Object], tmp_path: Path) -> None:
    assert prometheus.refusal(tmp_path, groups) == ""


def test_promtool_takes_the_rules_with_everything_chosen(tmp_path: Path) -> None:
    values = {"lag": 0, "lagFor": "1h30m", "notReadyFor": "1d", "alertLabels": {"team": "data"}}
    found = objects({"prometheusRule": {"enabled": True, **values}})["PrometheusRule", "ackwright"]["spec"]["groups"]
    assert prometheus.refusal(tmp_path, found) == ""


@pytest.mark.parametrize(
    "expression", ["max by (name (ackwright_worklist)", "rate(ackwright_worklist)", "ackwright_worklist = 1"]
)
def test_promtool_refuses_what_is_no_promql(expression: str, tmp_path: Path) -> None:
    """The control of the tests that it takes something."""
    assert "FAILED" in prometheus.refusal(tmp_path, [{"name": "x", "rules": [{"record": "x", "expr": expression}]}])


def test_every_alert_is_tested_both_ways(groups: list[Object]) -> None:
    there = {rule["alert"] for group in groups for rule in group["rules"]}
    assert {case.alert for case in CASES} | {"AckwrightReconcileErrors"} == there
    assert {alert for alert, *_ in NOT_GIVEN} == there
    assert set(GIVEN) == set(STATES)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.alert)
def test_an_alert_is_given_once_it_has_lasted_and_ends_with_its_cause(
    case: Case, groups: list[Object], tmp_path: Path
) -> None:
    scrapes = [WELL] * 5 + list(case.scrapes) + [WELL] * 3
    told = [(case.labels, {"summary": case.summary, "description": case.description})]
    expected = [
        *prometheus.alerts_at(4, {case.alert: []}),
        *prometheus.alerts_at(5 + case.after - 1, {case.alert: []}),
        *prometheus.alerts_at(5 + case.after, {case.alert: told}),
        *prometheus.alerts_at(len(scrapes) - 2, {case.alert: []}),
    ]
    assert prometheus.differences(tmp_path, groups, scrapes, alerts=expected) == ""


def test_one_pipeline_whose_looks_always_fail_is_enough(groups: list[Object], tmp_path: Path) -> None:
    """As seldom as it can be: the longest pause between two tries, and each try waits for answers."""
    scrapes = [WELL] * 5 + failing(worklist._LAST_RETRY_S + _LONGEST_LOOK_S, 60)
    told = (
        {"severity": "warning", "reason": "KubernetesRefused"},
        {
            "summary": "The operator fails again and again: KubernetesRefused",
            "description": f"kubectl logs -n {NAMESPACE} deployment/ackwright-operator names the pipelines.",
        },
    )
    expected = [
        *prometheus.alerts_at(19, {"AckwrightReconcileErrors": []}),
        *(a for minute in range(35, 65, 5) for a in prometheus.alerts_at(minute, {"AckwrightReconcileErrors": [told]})),
    ]
    assert prometheus.differences(tmp_path, groups, scrapes, alerts=expected) == ""


@pytest.mark.parametrize(("alert", "why", "scrapes"), NOT_GIVEN, ids=[f"{alert}-{why}" for alert, why, _ in NOT_GIVEN])
def test_what_is_near_to_it_is_not_told(
    alert: str, why: str, scrapes: list[Scrape], groups: list[Object], tmp_path: Path
) -> None:
    assert len(scrapes) >= 59, why
    expected = [a for minute in range(len(scrapes)) for a in prometheus.alerts_at(minute, {alert: []})]
    assert prometheus.differences(tmp_path, groups, scrapes, alerts=expected) == ""


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_lasts_gives_these_alerts_and_no_others(name: str, groups: list[Object], tmp_path: Path) -> None:
    scrapes = [scrape(STATES[name])] * 61
    assert prometheus.differences(tmp_path, groups, scrapes, values=prometheus.names_at(60, GIVEN[name])) == ""


def test_an_alert_goes_on_when_the_operator_is_another_pod(groups: list[Object], tmp_path: Path) -> None:
    """It would be told of twice, and what has to last for a while would begin anew."""
    pods = ("ackwright-operator-1", "ackwright-operator-2")
    scrapes = [s for pod in pods for s in [state("guarantee-not-met", lag=250_000, pod=pod)] * 10]
    names = GIVEN["guarantee-not-met"] | {"AckwrightLag"}
    assert prometheus.differences(tmp_path, groups, scrapes, values=prometheus.names_at(15, names)) == ""


def test_an_alert_that_is_missing_or_not_expected_is_found(groups: list[Object], tmp_path: Path) -> None:
    """The control of the tests above."""
    missing = prometheus.alerts_at(10, {"AckwrightStalled": [({"severity": "critical"}, {})]})
    assert "AckwrightStalled" in prometheus.differences(tmp_path, groups, [WELL] * 11, alerts=missing)
    stalled = [scrape(STATES["stalled"])] * 61
    assert "AckwrightNotReady" in prometheus.differences(
        tmp_path, groups, stalled, values=prometheus.names_at(60, {"AckwrightStalled"})
    )
    assert "ImageUnavailable" in prometheus.differences(
        tmp_path, groups, stalled, alerts=prometheus.alerts_at(60, {"AckwrightStalled": []})
    )


def panels() -> dict[str, str]:
    """Each query of the dashboard by panel and letter, with everything chosen; of a variable what its values are taken from."""
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    }
    for variable in (v for v in DASHBOARD["templating"]["list"] if v["type"] == "query"):
        found[variable["name"]] = re.sub(r"^label_values\((.*), \w+\)$", r"\1", variable["query"]["query"])
    found = {name: re.sub(r"\$(?:namespace|pipeline)\b", ".*", expression) for name, expression in found.items()}
    assert not [e for e in found.values() if "$" in e]
    return found


def test_promtool_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": expression} for number, expression in enumerate(panels().values())]
    assert len(rules) > 10
    assert prometheus.refusal(tmp_path, [{"name": "dashboard", "rules": rules}]) == ""


def test_every_panel_shows_something_of_a_pipeline_in_trouble(tmp_path: Path) -> None:
    scrapes = []
    for minute in range(11):
        resource = copy.deepcopy(STATES["guarantee-not-met"])
        resource["status"]["delivery"]["batch"] = 10 * minute
        resource["status"]["topics"][1]["moving"] = 1
        scrapes.append(scrape(resource, looks=5 * minute, failures=1 + minute))
    shown = {f"count({expression}) > bool 0": {"{}": 1.0} for expression in panels().values()}
    assert prometheus.differences(tmp_path, [], scrapes, values=prometheus.values_at(10, shown)) == ""
