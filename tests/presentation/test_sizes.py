from collections.abc import Callable

import pytest

from fedfeast.data.tasks import ACCURACY, task_named
from fedfeast.presentation.chart import DASHED, Point
from fedfeast.presentation.sizes import MOST_SIZES, size_cells, size_charts, sizes_in_words
from fedfeast.runs import Run

MakeUpRun = Callable[..., Run]
ROW = {"clients": [0], "payload_parameters": 1, "seconds": 0.5, "losses": {}}


def values(*accuracies: float) -> list[dict[str, object]]:
    return [{"name": f"{place}k", "macs": 1000 * place, "value": one} for place, one in enumerate(accuracies, start=1)]


def validated(run: Run, number: int, *accuracies: float) -> Run:
    run.folder.append_metrics({**ROW, "round": number, "validation_sizes": values(*accuracies)})
    return run


def test_a_line_for_each_size(make_up_run: MakeUpRun) -> None:
    run = validated(validated(make_up_run("one"), 3, 0.5, 0.25), 4, 0.75, float("inf"))
    (chart,) = size_charts([run])
    assert [series.label for series in chart.series] == ["1k", "2k"]
    assert chart.series[0].points == (Point(3, 50.0), Point(4, 75.0))
    assert chart.series[1].points == (Point(3, 25.0),)
    assert [series.colour for series in chart.series] == ["grade:0", "grade:1"]
    assert chart.y.label == "validation accuracy (%)"


def test_a_second_run_has_a_legend_and_a_look_of_its_own(make_up_run: MakeUpRun) -> None:
    runs = [validated(make_up_run("one"), 3, 0.5, 0.25), validated(make_up_run("two"), 3, 0.75)]
    (chart,) = size_charts(runs)
    assert [series.label for series in chart.series] == ["one, feast, 1k", "one, feast, 2k", "two, feast, 1k"]
    first, _, second = chart.series
    assert second.dash == DASHED
    assert first.dash == ()
    assert first.mark != second.mark


def test_of_many_sizes_a_few_are_drawn(make_up_run: MakeUpRun) -> None:
    (chart,) = size_charts([validated(make_up_run("one"), 3, *[0.5] * 56)])
    assert len(chart.series) == MOST_SIZES
    assert (chart.series[0].label, chart.series[-1].label) == ("1k", "56k")


def test_metrics_have_charts_of_their_own_and_runs_without_sizes_have_none(
    make_up_run: MakeUpRun, make_up_text_run: MakeUpRun
) -> None:
    assert size_charts([make_up_run("one")]) == []
    runs = [validated(make_up_run("two"), 3, 0.5), validated(make_up_text_run("text"), 3, 2.5)]
    accuracy, bits = size_charts(runs)
    assert bits.series[0].points == (Point(3, 2.5),)
    assert bits.y.label == "validation bits per symbol (less is better)"
    assert len(accuracy.series) == 1


@pytest.mark.parametrize(("width", "names"), [(60, ["1k", "2k", "3k"]), (31, ["1k", "3k"]), (20, ["3k"]), (10, [])])
def test_cells_fit_a_width(width: int, names: list[str]) -> None:
    cells = size_cells(values(0.5, 0.75, 1.0), ACCURACY, width)
    assert (cells[0][1:] if cells else []) == names
    if width == 60:
        assert cells == [["size", "1k", "2k", "3k"], ["validation, %", "50.0", "75.0", "100.0"]]


def test_words() -> None:
    assert sizes_in_words(values(0.5, 0.75), ACCURACY) == "1k 50.0, 2k 75.0 %"
    assert sizes_in_words(values(2.5, 2.34567), task_named("next-token").metric) == "1k 2.5, 2k 2.346"
    assert size_cells(values(2.5), task_named("next-token").metric, 60)[1] == ["bits per symbol", "2.5"]
