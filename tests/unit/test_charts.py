"""Charts of figures: what `python -m bench -o json` prints becomes bars with labels, spreads and targets."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bench import acks, latency, report, stream, throughput, transaction
from bench.figures import Figure, Throughput
from bench.latency import Window
from bench.runs import EXACTLY_ONCE, SPARK_SINK

from draw_pictures import FIGURES, PAGES
from pictures import charts, dashboards
from pictures.svg import Tone
from unit.documents import ROOT

CHARTS = {chart.name: chart for chart in charts.CHARTS}


def output(figures: Sequence[Figure], *, quick: bool = False) -> Any:
    """What a benchmark with these figures prints."""
    return json.loads(report.as_json(figures, report.setting(2, 2, (0.1, 0.1, 0.1), quick=quick)))


def rates(*values: float) -> list[Throughput]:
    return [Throughput(value, 1000.0, {}) for value in values]


def window(ms: float) -> Window:
    return Window(ms, 2 * ms, 100, 0.1, 0.1)


def of_acks() -> list[Figure]:
    measured = {"0": (9e5, 1.8e6), "1": (1e5, 2e5), "all": (5e4, 6e4)}
    rounds = {acks.level(a): [acks.Sent(rate, 1, 2) for rate in both] for a, both in measured.items()}
    runs = {name: rates(1e5, 1.1e5) for name in acks.VARIANTS}
    return [
        *acks.producer_figures(rounds),
        *acks.copy_figures(runs),
        *acks.latency_figures({name: [window(600)] for name in acks.VARIANTS}),
    ]


def of_performance() -> list[Figure]:
    case = throughput.Case(100, 4, 11, 100_000)
    runs = {SPARK_SINK: rates(1e5, 1e5), EXACTLY_ONCE: rates(1.5e5, 1.7e5)}
    slower = {SPARK_SINK: rates(1e5, 1e5), EXACTLY_ONCE: rates(1.1e5, 1.2e5)}
    other = throughput.Case(1000, 32, 11, 100_000)
    windows = {SPARK_SINK: [window(600)], EXACTLY_ONCE: [window(500)]}
    titles = [
        f"{stream.RATE:,} records/s, {trigger}, 4 partitions" for trigger in ("trigger of 1 s", "fastest trigger")
    ]
    return [
        *(transaction.figure(pause, [30.0, 32.0], [12.0, 12.0], print) for pause in transaction.PAUSES),
        *throughput.figures(f"{case}, local[2]", EXACTLY_ONCE, runs, []),
        *throughput.figures(f"{other}, local[2]", EXACTLY_ONCE, slower, []),
        *(
            figure
            for title in titles
            for figure in latency.summary(title, EXACTLY_ONCE, windows, (1.1, 1.2), None, with_brokers=True)
        ),
    ]


@pytest.mark.parametrize("name", CHARTS)
def test_each_chart_draws_what_its_benchmark_prints(name: str) -> None:
    chart = CHARTS[name]
    figures = of_acks() if chart.file == "acks.json" else of_performance()
    picture = charts.draw(chart, output(figures))
    assert picture.svg().count("<rect") > 2
    assert "a full run" in picture.description


def test_the_bars_have_the_labels_and_values_of_the_figures() -> None:
    panel, *_ = CHARTS["acks-producer"].panels
    bars = charts.bars(panel, output(of_acks())["figures"])
    assert [(bar.label, bar.value, bar.spread) for bar in bars] == [
        ("acks=0", 1.35e6, (9e5, 1.8e6)),
        ("acks=1", 1.5e5, (1e5, 2e5)),
        ("acks=all", 5.5e4, (5e4, 6e4)),
    ]
    labels = [bar.label for bar in charts.bars(CHARTS["acks-pipelines"].panels[0], output(of_acks())["figures"])]
    assert labels == list(acks.VARIANTS)


def test_a_bar_shows_whether_its_target_is_reached() -> None:
    chart = CHARTS["performance-throughput"]
    bars = charts.bars(chart.panels[0], output(of_performance())["figures"])
    assert [(bar.label, bar.value, bar.target) for bar in bars] == [
        ("100 B × 4 partitions", 1.6, 1.3),
        ("1 KB × 32 partitions", 1.15, 1.3),
    ]
    drawn = charts.draw(chart, output(of_performance())).svg()
    assert [f'class="box {tone}"' in drawn for tone in (Tone.GOOD, Tone.BAD)] == [True, True]
    assert "1.6 (1.5 to 1.7), target ≥ 1.3" in drawn


def test_a_quick_run_is_marked() -> None:
    assert "figures mean little" in charts.draw(CHARTS["acks-producer"], output(of_acks(), quick=True)).svg()
    assert "figures mean little" not in charts.draw(CHARTS["acks-producer"], output(of_acks())).svg()


def test_figures_of_another_benchmark_are_refused(tmp_path: Path) -> None:
    (tmp_path / "acks.json").write_text(json.dumps(output(of_performance())))
    with pytest.raises(ValueError, match="no figure matches"):
        charts.pictures(tmp_path)
    assert charts.pictures(tmp_path / "none") == ()


def test_every_file_of_figures_has_a_chart() -> None:
    assert {file.name for file in FIGURES.glob("*")} <= {dashboards.FILE} | {chart.file for chart in charts.CHARTS}


def test_the_figures_of_performance_are_those_of_its_page() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    document = json.loads((FIGURES / "performance.json").read_text())
    missing = [f for f in document["figures"] if not re.search(rf"(?<![\d.,]){f['value']:,}(?![\d]|[.,]\d)", page)]
    assert missing == []
    assert len(document["figures"]) > 30


def test_a_page_shows_the_charts_of_a_file_once_it_exists(tmp_path: Path) -> None:
    page = "a\n<!-- charts of acks.json -->\n\n<!-- end of charts -->\nb\n"
    assert charts.with_charts(page, tmp_path) == page
    (tmp_path / "acks.json").write_text("{}")
    shown = charts.with_charts(page, tmp_path)
    titles = [chart.title for chart in charts.CHARTS if chart.file == "acks.json"]
    assert re.findall(r"^!\[(.+)\]\(images/acks-\w+\.svg\)$", shown, re.MULTILINE) == titles
    assert charts.with_charts(shown, tmp_path) == shown


def test_the_pages_show_the_charts_of_the_committed_figures() -> None:
    for page in PAGES:
        assert charts.with_charts(page.read_text(), FIGURES) == page.read_text(), "run: make pictures"
