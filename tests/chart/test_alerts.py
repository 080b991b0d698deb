"""Alerts fire when they should and only then, and the dashboard's queries are valid PromQL, according to promtool."""

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
HEALTHY = scrape(STATES["delivering"])
PIPELINE_LABELS = {"namespace": "ops", "name": "p"}
NO_LEADER = (
    "No replica of the operator, or of a shard of it, leads; drivers continue, but are neither repaired nor observed"
)
TOPIC_LABELS = {"namespace": "ops", "pipeline": "p", "topic": "in"}
# The alerts that fire when a state lasts for an hour. Pipelines without a status have no metrics.
FIRING: Mapping[str, set[str]] = {
    **{name: set() for name in ("delivering", "suspended", "completed", "scheduled", "edited", "deleted", "new")},
    "without-status": set(),
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
    # It delivers nothing, but the loss of another broker could still lose its delivered records.
    "suspended-guarantee-not-met": {
        "AckwrightGuaranteeNotMet",
        "AckwrightInSyncBelowMinimum",
        "AckwrightUnderReplicated",
    },
}
_LONGEST_RECONCILE = 36  # seconds of a failing one: two attempts with the timeouts of clients/kubernetes.py


@pytest.fixture(scope="module")
def groups() -> list[Object]:
    rule = objects({"prometheusRule": {"enabled": True}})["PrometheusRule", "ackwright"]
    rule_groups: list[Object] = rule["spec"]["groups"]
    return rule_groups


def state(name: str, *, lag: int = 0, topic: Mapping[str, int] | None = None, **more: Any) -> Scrape:
    """The samples of a pipeline in this state with this lag; topic: changed fields of its topic `in`."""
    resource = copy.deepcopy(STATES[name])
    resource["status"]["delivery"]["lag"] = lag
    resource["status"]["topics"][0] |= topic or {}
    assert resource["status"]["topics"][0]["name"] == "in"
    return scrape(resource, **more)


def with_condition(name: str, kind: str, status: str, reason: str) -> Scrape:
    """The samples of a pipeline in this state with one changed condition."""
    resource = copy.deepcopy(STATES[name])
    condition = next(c for c in resource["status"]["conditions"] if c["type"] == kind)
    condition |= {"status": status, "reason": reason}
    return scrape(resource)


def failing(interval: float, minutes: int) -> list[Scrape]:
    """Scrapes of an operator that fails once per interval (seconds)."""
    return [scrape(STATES["delivering"], failures=1 + int(minute * 60 / interval)) for minute in range(minutes)]


@dataclass(frozen=True)
class Case:
    """One problem and its alert."""

    alert: str
    scrapes: Sequence[Scrape]  # the problem, which begins after five healthy minutes
    after: int  # minutes from the beginning of the problem until the alert fires
    labels: Mapping[str, str]
    summary: str
    description: str


CASES = [
    Case(
        "AckwrightGuaranteeNotMet",
        [scrape(STATES["guarantee-not-met"])] * 3,
        1,
        {"severity": "critical", **PIPELINE_LABELS, "reason": "NotEnoughReplicas"},
        "The guarantee of pipeline ops/p does not hold: NotEnoughReplicas",
        "ackwright status -n ops p shows the cause and the remedy.",
    ),
    Case(
        "AckwrightStalled",
        [scrape(STATES["stalled"])] * 3,
        1,
        {"severity": "critical", **PIPELINE_LABELS, "reason": "ImageUnavailable"},
        "Pipeline ops/p needs manual action: ImageUnavailable",
        "ackwright status -n ops p shows what to do.",
    ),
    Case(
        "AckwrightNotReady",  # with two alternating reasons: a driver crashes and restarts
        [scrape(STATES["starting"]), with_condition("starting", "Ready", "False", "Crashed")] * 10,
        15,
        {"severity": "warning", **PIPELINE_LABELS},
        "Pipeline ops/p is not ready",
        "ackwright status -n ops p shows the cause and the remedy.",
    ),
    Case(
        "AckwrightLag",
        [state("delivering", lag=250_000)] * 20,
        15,
        {"severity": "warning", **PIPELINE_LABELS},
        "Pipeline ops/p lags 250k offsets behind",
        "ackwright status -n ops p shows whether it delivers too slowly or not at all.",
    ),
    Case(
        "AckwrightInSyncBelowMinimum",
        [state("delivering", topic={"inSyncReplicas": 1})] * 3,
        1,
        {"severity": "critical", **TOPIC_LABELS},
        "Topic in of ops/p has too few in-sync replicas: 1, below min.insync.replicas",
        "Brokers refuse writes with acks=all until replicas are back in sync. Check the brokers.",
    ),
    Case(
        "AckwrightUnderReplicated",
        [state("delivering", topic={"inSyncReplicas": 2})] * 20,
        15,
        {"severity": "warning", **TOPIC_LABELS},
        "Topic in of ops/p has replicas that are not in sync: 2 are in sync",
        "Until all replicas are in sync, the topic tolerates fewer broker failures. Check the brokers.",
    ),
    Case(
        "AckwrightReconcilesLate",
        [scrape(STATES["delivering"], waiting=90)] * 10,
        5,
        {"severity": "warning", "due_for": "change"},
        "Pipelines wait 1m 30s for a reconcile (change)",
        f"kubectl logs -n {NAMESPACE} deployment/ackwright-operator shows what its workers wait for.",
    ),
    Case(
        "AckwrightNotObserved",
        [scrape(STATES["delivering"], unobserved=960)] * 3,
        1,
        {"severity": "warning", **PIPELINE_LABELS},
        "The operator does not observe pipeline ops/p",
        f"Its conditions are Unknown. kubectl logs -n {NAMESPACE} deployment/ackwright-operator shows what fails.",
    ),
    Case(
        "AckwrightNamespaceLost",
        [scrape(STATES["delivering"], lost=True)] * 10,
        5,
        {"severity": "warning", "namespace": "ops"},
        "The operator cannot watch namespace ops",
        "The namespace is deleted, or the operator's Role in it is. Restore it, or remove it from watchNamespaces.",
    ),
    Case(
        "AckwrightNoLeader",
        [scrape(STATES["delivering"], leads=False)] * 10,
        1,
        {"severity": "critical"},
        NO_LEADER,
        f"kubectl logs -n {NAMESPACE} -l app.kubernetes.io/name=ackwright --prefix shows why.",
    ),
    Case(
        "AckwrightNoLeader",
        [
            {
                **scrape(STATES["delivering"], shards=2),
                **scrape(None, leads=False, shards=2, pod="ackwright-operator-2"),
            }
        ]
        * 10,
        1,
        {"severity": "critical"},
        NO_LEADER,
        f"kubectl logs -n {NAMESPACE} -l app.kubernetes.io/name=ackwright --prefix shows why.",
    ),
    Case(
        "AckwrightOperatorAbsent",
        [{}] * 10,
        5,
        {"severity": "warning"},
        "The operator does not run or is not scraped; drivers continue, but are neither repaired nor observed",
        f"kubectl get deployment -n {NAMESPACE} -l app.kubernetes.io/name=ackwright shows whether it runs.",
    ),
]

_OUTAGE = failing(5, 2)
# Situations close to an alert's threshold, in which it must not fire.
NOT_FIRING = [
    (
        "AckwrightGuaranteeNotMet",
        "before the brokers are checked",
        [with_condition("starting", "GuaranteeMet", "Unknown", "Creating")] * 60,
    ),
    ("AckwrightGuaranteeNotMet", "for less than a minute", [scrape(STATES["guarantee-not-met"]), HEALTHY] * 30),
    ("AckwrightStalled", "starting", [scrape(STATES["starting"])] * 60),
    ("AckwrightNotReady", "at each start", ([scrape(STATES["starting"])] * 14 + [HEALTHY]) * 4),
    (
        "AckwrightNotReady",
        "suspended, then a topic deleted",
        [with_condition("suspended", "Ready", "False", "TopicMissing")] * 60,
    ),
    (
        "AckwrightNotReady",
        "completed, then a broker lost",
        [with_condition("completed", "Ready", "False", "Completed")] * 60,
    ),
    ("AckwrightLag", "between two runs", [state("scheduled", lag=250_000)] * 60),
    ("AckwrightLag", "at the limit", [state("delivering", lag=100_000)] * 60),
    ("AckwrightLag", "repeatedly caught up", ([state("delivering", lag=250_000)] * 14 + [HEALTHY]) * 4),
    ("AckwrightLag", "suspended with a lag", [state("suspended", lag=250_000)] * 60),
    ("AckwrightLag", "completed, then new records", [state("completed", lag=250_000)] * 60),
    ("AckwrightInSyncBelowMinimum", "at the minimum", [state("delivering", topic={"inSyncReplicas": 2})] * 60),
    ("AckwrightUnderReplicated", "moved", [state("delivering", topic={"inSyncReplicas": 2, "moving": 1})] * 60),
    (
        "AckwrightUnderReplicated",
        "back in time",
        ([state("delivering", topic={"inSyncReplicas": 2})] * 14 + [HEALTHY]) * 4,
    ),
    ("AckwrightReconcileErrors", "an API server that was unreachable for a minute", [*_OUTAGE, *_OUTAGE[-1:] * 58]),
    ("AckwrightReconcileErrors", "occasional conflicts", failing(200, 60)),
    ("AckwrightNotObserved", "at the limit", [scrape(STATES["delivering"], unobserved=900)] * 60),
    ("AckwrightNotReady", "not observed", [scrape(STATES["delivering"], unobserved=960)] * 60),
    ("AckwrightNamespaceLost", "back", ([scrape(STATES["delivering"], lost=True)] * 4 + [HEALTHY]) * 12),
    ("AckwrightReconcilesLate", "at the limit", [scrape(STATES["delivering"], waiting=60)] * 60),
    ("AckwrightReconcilesLate", "a burst", ([scrape(STATES["delivering"], waiting=90)] * 4 + [HEALTHY]) * 12),
    (
        "AckwrightNoLeader",
        "one replica stands by",
        [{**HEALTHY, **scrape(None, leads=False, pod="ackwright-operator-2")}] * 60,
    ),
    (
        "AckwrightNoLeader",
        "each of two shards has a leader",
        [{**scrape(STATES["delivering"], shards=2), **scrape(None, shards=2, pod="ackwright-operator-2")}] * 60,
    ),
    ("AckwrightNoLeader", "a takeover", [HEALTHY, scrape(None, leads=False), HEALTHY, HEALTHY] * 15),
    (
        "AckwrightOperatorAbsent",
        "replaced",
        [HEALTHY] * 5 + [{}] * 4 + [scrape(STATES["delivering"], pod="ackwright-operator-2")] * 50,
    ),
]


def test_promtool_accepts_the_rules(groups: list[Object], tmp_path: Path) -> None:
    assert prometheus.lint_errors(tmp_path, groups) == ""


def test_promtool_accepts_the_rules_with_all_values_set(tmp_path: Path) -> None:
    values = {"lag": 0, "lagFor": "1h30m", "notReadyFor": "1d", "alertLabels": {"team": "data"}}
    rule = objects({"prometheusRule": {"enabled": True, **values}})["PrometheusRule", "ackwright"]
    assert prometheus.lint_errors(tmp_path, rule["spec"]["groups"]) == ""


@pytest.mark.parametrize(
    "expression", ["max by (name (ackwright_worklist)", "rate(ackwright_worklist)", "ackwright_worklist = 1"]
)
def test_promtool_refuses_invalid_promql(expression: str, tmp_path: Path) -> None:
    """The control of the tests above."""
    rules = [{"record": "x", "expr": expression}]
    assert "FAILED" in prometheus.lint_errors(tmp_path, [{"name": "x", "rules": rules}])


def test_every_alert_is_tested_in_both_directions(groups: list[Object]) -> None:
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    assert {case.alert for case in CASES} | {"AckwrightReconcileErrors"} == alerts
    assert {alert for alert, *_ in NOT_FIRING} == alerts
    assert set(FIRING) == set(STATES)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.alert)
def test_an_alert_fires_after_its_duration_and_ends_with_its_cause(
    case: Case, groups: list[Object], tmp_path: Path
) -> None:
    scrapes = [HEALTHY] * 5 + list(case.scrapes) + [HEALTHY] * 3
    firing = [(case.labels, {"summary": case.summary, "description": case.description})]
    expected = [
        *prometheus.alerts_at(4, {case.alert: []}),
        *prometheus.alerts_at(5 + case.after - 1, {case.alert: []}),
        *prometheus.alerts_at(5 + case.after, {case.alert: firing}),
        *prometheus.alerts_at(len(scrapes) - 2, {case.alert: []}),
    ]
    assert prometheus.differences(tmp_path, groups, scrapes, alerts=expected) == ""


def test_one_pipeline_whose_reconciles_always_fail_is_enough_for_an_alert(groups: list[Object], tmp_path: Path) -> None:
    """At the lowest possible rate: the longest pause between two attempts, and each attempt times out."""
    scrapes = [HEALTHY] * 5 + failing(worklist._LAST_RETRY_S + _LONGEST_RECONCILE, 60)
    alert = (
        {"severity": "warning", "reason": "KubernetesRefused"},
        {
            "summary": "Reconciles of the operator fail repeatedly: KubernetesRefused",
            "description": f"kubectl logs -n {NAMESPACE} deployment/ackwright-operator names the pipelines.",
        },
    )
    expected = [
        *prometheus.alerts_at(19, {"AckwrightReconcileErrors": []}),
        *(
            a
            for minute in range(35, 65, 5)
            for a in prometheus.alerts_at(minute, {"AckwrightReconcileErrors": [alert]})
        ),
    ]
    assert prometheus.differences(tmp_path, groups, scrapes, alerts=expected) == ""


@pytest.mark.parametrize(
    ("alert", "situation", "scrapes"), NOT_FIRING, ids=[f"{alert}-{situation}" for alert, situation, _ in NOT_FIRING]
)
def test_an_alert_does_not_fire_close_to_its_threshold(
    alert: str, situation: str, scrapes: list[Scrape], groups: list[Object], tmp_path: Path
) -> None:
    assert len(scrapes) >= 59, situation
    expected = [a for minute in range(len(scrapes)) for a in prometheus.alerts_at(minute, {alert: []})]
    assert prometheus.differences(tmp_path, groups, scrapes, alerts=expected) == ""


@pytest.mark.parametrize("name", STATES)
def test_a_lasting_state_fires_exactly_these_alerts(name: str, groups: list[Object], tmp_path: Path) -> None:
    scrapes = [scrape(STATES[name])] * 61
    assert prometheus.differences(tmp_path, groups, scrapes, values=prometheus.names_at(60, FIRING[name])) == ""


def test_an_alert_continues_when_the_operators_pod_is_replaced(groups: list[Object], tmp_path: Path) -> None:
    """Otherwise it would fire twice, and its duration would restart."""
    pods = ("ackwright-operator-1", "ackwright-operator-2")
    scrapes = [s for pod in pods for s in [state("guarantee-not-met", lag=250_000, pod=pod)] * 10]
    names = FIRING["guarantee-not-met"] | {"AckwrightLag"}
    assert prometheus.differences(tmp_path, groups, scrapes, values=prometheus.names_at(15, names)) == ""


def test_missing_and_unexpected_alerts_are_detected(groups: list[Object], tmp_path: Path) -> None:
    """The control of the tests above."""
    missing = prometheus.alerts_at(10, {"AckwrightStalled": [({"severity": "critical"}, {})]})
    assert "AckwrightStalled" in prometheus.differences(tmp_path, groups, [HEALTHY] * 11, alerts=missing)
    stalled = [scrape(STATES["stalled"])] * 61
    assert "AckwrightNotReady" in prometheus.differences(
        tmp_path, groups, stalled, values=prometheus.names_at(60, {"AckwrightStalled"})
    )
    assert "ImageUnavailable" in prometheus.differences(
        tmp_path, groups, stalled, alerts=prometheus.alerts_at(60, {"AckwrightStalled": []})
    )


def panels() -> dict[str, str]:
    """The dashboard's queries by panel and letter, with all values selected, and the queries of its variables."""
    queries = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    }
    for variable in (v for v in DASHBOARD["templating"]["list"] if v["type"] == "query"):
        queries[variable["name"]] = re.sub(r"^label_values\((.*), \w+\)$", r"\1", variable["query"]["query"])
    queries = {name: re.sub(r"\$(?:namespace|pipeline)\b", ".*", expression) for name, expression in queries.items()}
    assert not [e for e in queries.values() if "$" in e]
    return queries


def test_promtool_accepts_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": expression} for number, expression in enumerate(panels().values())]
    assert len(rules) > 10
    assert prometheus.lint_errors(tmp_path, [{"name": "dashboard", "rules": rules}]) == ""


def test_every_panel_shows_data_of_a_failing_pipeline(tmp_path: Path) -> None:
    scrapes = []
    for minute in range(11):
        resource = copy.deepcopy(STATES["guarantee-not-met"])
        resource["status"]["delivery"]["batch"] = 10 * minute
        resource["status"]["topics"][1]["moving"] = 1
        scrapes.append(scrape(resource, reconciles=5 * minute, failures=1 + minute))
    expected = {f"count({expression}) > bool 0": {"{}": 1.0} for expression in panels().values()}
    assert prometheus.differences(tmp_path, [], scrapes, values=prometheus.values_at(10, expected)) == ""
