import json
from collections.abc import Callable

import pytest

from fedfeast.data.tasks import task_named
from fedfeast.planning.searching import search_recipe
from fedfeast.presentation.budget_histogram import BINS, budget_histogram
from fedfeast.presentation.chart import DASHED, Point
from fedfeast.presentation.run_charts import (
    MOST_POINTS,
    clients_charts,
    compared_latency_charts,
    coverage_charts,
    curve_charts,
    history_charts,
    latency_charts,
    search_charts,
    thin,
)
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run

MakeUpRun = Callable[..., Run]


def test_curves_over_budgets(make_up_run: MakeUpRun) -> None:
    runs = [make_up_run("one"), make_up_run("two")]
    curve, budgets = curve_charts(runs)
    one, two = curve.series
    assert two.label == "two, feast: population score 41.7 %"
    assert one.points == (Point(1000, 50.0, name="1k"), Point(2000, 75.0, name="2k"))
    assert (one.colour, one.mark) != (two.colour, two.mark)
    assert curve.x == budgets.x, "one axis for both"
    fleet = budget_histogram(runs[0].folder.budgets_macs(), [])
    assert [bar.value for bar in budgets.bars] == fleet["counts"]
    assert [bar.start for bar in budgets.bars] == fleet["edges_macs"][:-1]
    assert len(budgets.bars) == BINS
    assert sum(bar.value for bar in budgets.bars if bar.muted) == 1, "below the smallest network"
    assert curve.anchors == ()


def test_the_papers_anchors_stand_on_its_own_data_set_alone(make_up_run: MakeUpRun) -> None:
    paper = make_up_run("paper", "cifar100-paper")
    curve, _ = curve_charts([paper])
    assert len(curve.anchors) == 5
    assert curve.series[-1].label == "the paper's FEAST, 4000 rounds"
    assert curve.series[-1].mark == "diamond"
    assert (curve.series[-1].points[0].x, curve.series[-1].points[0].y) == (25e6, 64.89)
    mixed, _ = curve_charts([paper, make_up_run("digits")])
    assert mixed.anchors == ()
    assert len(mixed.series) == 2


def test_history(make_up_run: MakeUpRun) -> None:
    run = make_up_run("one")
    loss, score = history_charts([run])
    assert [series.label for series in loss.series] == ["one, feast, student", "one, feast, teacher"]
    assert [series.dash for series in loss.series] == [DASHED, ()]
    assert score.series[0].points == (Point(2, 40.0),)
    assert loss.x == score.x
    (run.folder.path / "metrics.jsonl").write_text("")
    row = {"round": 1, "losses": {"teacher": 2.0}, "clients": [0], "payload_parameters": 1, "seconds": 0.5}
    run.folder.append_metrics(row)
    assert len(history_charts([run])) == 1, "nothing is validated yet"


def test_the_vector_itself_is_drawn_beside_what_is_served(make_up_run: MakeUpRun) -> None:
    run = make_up_run("one")
    row = {"round": 3, "clients": [0], "payload_parameters": 1, "seconds": 0.5, "learning_rate": 0.1, "losses": {}}
    scores = {"global": 0.3, "average": 0.5}
    run.folder.append_metrics({**row, "validation_score": 0.5, "validation_scores": scores})
    _, score = history_charts([run])
    assert [series.label for series in score.series] == ["one, feast", "one, feast, the global vector itself"]
    assert [series.points for series in score.series] == [(Point(2, 40.0), Point(3, 50.0)), (Point(3, 30.0),)]


def test_clients_and_coverage(make_up_run: MakeUpRun) -> None:
    (chart,) = clients_charts(make_up_run("one"))
    target, realized = chart.series
    assert [point.x for point in target.points] == [500, 1500, 9000]
    assert realized.points[0] == Point(500.0, 20.0, name="b")
    parts = [{"stage": "stem", "block": 0, "data_share": 0.5}, {"stage": "stage1", "block": 1, "data_share": 0.25}]
    (heat_map,) = coverage_charts(parts)
    assert heat_map.values == ((50.0, None), (None, 25.0))
    assert (heat_map.rows, heat_map.columns) == (("stem", "stage1"), ("0", "1"))


def test_search() -> None:
    found = search_recipe(load_recipe("digits"), [2e5, 1e6]).distinct
    fitness, depths, widths = search_charts(found)
    assert [point.x for point in fitness.series[0].points] == [one.macs for one in found]
    assert [series.label for series in depths.series] == ["stage 1", "stage 2", "stage 3"]
    assert [point.y for point in depths.series[2].points] == [one.architecture.depths[2] for one in found]
    assert [point.y for point in widths.series[0].points] == [one.architecture.width_indices[1] for one in found]
    assert fitness.x == depths.x == widths.x


def test_search_among_a_builders_members() -> None:
    choices = {"width": [2, 4], "depth": [1, 2]}
    recipe = load_recipe("digits", {"network.builder": "conv1d", "network.choices": choices, "variants.num_targets": 3})
    result = search_recipe(recipe)
    fitness, width, depth = search_charts(result.distinct)
    assert [chart.y.label for chart in (fitness, width, depth)] == ["fitness", "width", "depth"]
    assert [point.x for point in width.series[0].points] == [one.macs for one in result.distinct]
    assert (width.series[0].points[0].y, depth.series[0].points[-1].y) == (2, 2)


def test_not_every_network_of_a_latency_chart_is_named() -> None:
    points = [{"name": f"{n}k", "median_ms": 2.0**n, "accuracy": 0.5 + n / 100} for n in range(1, 21)]
    (chart,) = latency_charts({"points": points, "device": "a phone", "threads": 2})
    assert chart.x.label == "latency of one example (ms), a phone, 2 threads"
    names = [note.text for note in chart.notes]
    assert (names[0], names[-1], len(names)) == ("1k", "20k", 8)


def test_the_line_joins_networks_that_no_faster_one_matches() -> None:
    accuracies, times = [0.5, 0.4, 0.7, 0.6], [1.0, 2.0, 3.0, 3.0]
    pairs = zip(accuracies, times, strict=True)
    points = [{"name": f"{accuracy}", "median_ms": ms, "accuracy": accuracy} for accuracy, ms in pairs]
    every, best = latency_charts({"points": points, "device": "a phone", "threads": 2})[0].series
    assert len(every.points) == 4
    assert [point.y for point in best.points] == pytest.approx([50, 70])


def test_latencies_of_several_runs_are_laid_over_each_other() -> None:
    slow = [{"name": "a", "median_ms": 2.0, "accuracy": 0.5}, {"name": "b", "median_ms": 4.0, "accuracy": 0.4}]
    fast = [{"name": "a", "median_ms": 1.0, "accuracy": 0.6, "interval": [0.5, 0.7]}]
    about = {"device": "a phone", "threads": 2}
    (chart,) = compared_latency_charts({"one": {**about, "points": slow}, "two": {**about, "points": fast}})
    assert [(one.label, len(one.points), one.colour, one.line) for one in chart.series] == [
        ("one", 1, 0, True),
        ("", 1, 0, False),
        ("two", 1, 1, True),
        ("", 0, 1, False),
    ]
    assert chart.series[2].points[0].interval == pytest.approx((50, 70))
    low, high = chart.x_limits
    assert 0.7 < low < 1.0
    assert 4.0 < high < 5.0


def test_every_chart_can_be_written_into_a_page(make_up_run: MakeUpRun) -> None:
    run = make_up_run("one")
    for chart in (*curve_charts([run]), *history_charts([run]), *clients_charts(run)):
        json.dumps(chart.spec(), allow_nan=False)


def test_long_lines_are_thinned() -> None:
    points = [Point(number, 0.0) for number in range(5000)]
    kept = thin(points)
    assert len(kept) <= MOST_POINTS + 1
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert thin(points[:50]) == tuple(points[:50])


def test_a_curve_of_bits_says_that_less_is_better(make_up_text_run: MakeUpRun) -> None:
    run = make_up_text_run("one")
    curve, _ = curve_charts([run])
    assert (curve.y.label, curve.y.format) == ("test bits per symbol (less is better)", "number")
    (series,) = curve.series
    assert series.label == "one, feast: population score 3.667", "(2 + 6 + 3) / 3: nothing fits the client b"
    assert [(point.y, point.spread) for point in series.points] == [(3.0, 0.1), (2.0, 0.1)]
    assert series.banded
    _, score = history_charts([run])
    assert score.y.label == "validation score, bits per symbol (less is better)"
    assert score.series[0].points == (Point(2, 0.4),)


def test_every_test_set_has_a_line(make_up_text_run: MakeUpRun) -> None:
    curve, _ = curve_charts([make_up_text_run("one", sets=2), make_up_text_run("two")])
    scores = [series.label for series in curve.series]
    assert scores == [
        "one, feast, set 0: population score 3.667",
        "one, feast, set 1: population score 4.333",
        "two, feast: population score 3.667",
    ]
    assert len({(series.colour, series.mark) for series in curve.series}) == 3
    assert [point.y for point in curve.series[1].points] == [4.0, 3.0]


def test_scores_of_other_metrics_have_axes_of_their_own(make_up_run: MakeUpRun, make_up_text_run: MakeUpRun) -> None:
    _, accuracy, bits = history_charts([make_up_run("one"), make_up_text_run("two")])
    assert accuracy.y.label == "validation score (%)"
    assert [len(chart.series) for chart in (accuracy, bits)] == [1, 1]


def test_the_best_of_a_latency_chart_may_be_the_least() -> None:
    values, times = [3.0, 3.5, 2.0, 2.5], [1.0, 2.0, 3.0, 3.0]
    points = [{"name": str(bits), "median_ms": ms, "value": bits} for bits, ms in zip(values, times, strict=True)]
    facts = task_named("next-token").metric.facts()
    (chart,) = latency_charts({"points": points, "device": "a phone", "threads": 2, "metric": facts})
    assert [point.y for point in chart.series[1].points] == [3.0, 2.0]
    assert chart.series[1].label == "better than all faster ones"
    assert chart.y.label == "test bits per symbol (less is better)"
