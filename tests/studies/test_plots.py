from collections.abc import Callable

import pytest

from fedfeast.methods import METHODS
from fedfeast.presentation.chart import DASHED, Series
from fedfeast.presentation.palette import colour_of
from fedfeast.presentation.pictures import figure_of
from fedfeast.studies.arms import LABELS, LOOKS, look_of
from fedfeast.studies.catalogue.digits import DIGITS
from fedfeast.studies.plots import Line, Plot, PlotPoint
from fedfeast.studies.results import Results

MakeUp = Callable[..., Results]


def line(label: str, colour: int, first_macs: float = 25e6, spread: float | None = None, dashed: bool = False) -> Line:
    points = tuple(PlotPoint(first_macs * 2**step, 60.0 + step, spread) for step in range(4))
    return Line(label, points, colour, dashed)


def plot(*lines: Line, graded: bool = False) -> Plot:
    return Plot("name", "Curves, cifar100", "caption", lines, 25e6, (25e6, 50e6), graded)


def test_a_line_is_cut_where_the_compared_range_begins() -> None:
    line = Line("HeteroFL", (PlotPoint(2e6, 10.0), PlotPoint(35e6, 40.0), PlotPoint(555e6, 70.0)), 1)
    assert [point.macs for point in line.starting_at(25e6).points] == [35e6, 555e6]
    assert line.starting_at(25e6).label == "HeteroFL"


def test_every_line_is_a_series_of_its_measured_points() -> None:
    published = Line("FEAST", line("FEAST", 0, spread=0.5).points, 0, published=((25e6, 64.89), (50e6, 65.6)))
    chart = plot(published, line("HeteroFL", 1, dashed=True)).chart()
    feast, paper, baseline, legend = chart.series
    assert [(point.x, point.y, point.spread) for point in feast.points][:2] == [(25e6, 60.0, 0.5), (50e6, 61.0, 0.5)]
    assert (paper.label, paper.colour, paper.mark) == ("", feast.colour, "diamond")
    assert (baseline.dash, feast.dash) == (DASHED, ())
    assert not baseline.banded
    assert (legend.label, legend.points) == ("the paper's", ())
    assert chart.anchors == (25e6, 50e6)
    assert len(plot(line("HeteroFL", 1)).chart().series) == 1, "no word of the paper where it has no points"


def test_points_below_the_compared_range_are_shaded() -> None:
    assert plot(line("FEAST", 0)).chart().shade_to is None
    assert plot(line("HeteroFL", 1, first_macs=3e6)).chart().shade_to == 0.98 * 25e6


@pytest.mark.parametrize("graded", [True, False])
def test_lines_of_one_colour_belong_together(graded: bool) -> None:
    lines = [line(f"{name} {value}", value, dashed=name == "b") for name in "ab" for value in range(4)]
    colours = {one.label: colour_of(one.colour) for one in plot(*lines, graded=graded).chart().series}
    assert colours["a 1"] == colours["b 1"]
    assert len({colours[f"a {value}"] for value in range(4)}) == 4
    assert (colours["a 3"] == colour_of("grade:1")) == graded


def looks(series: tuple[Series, ...]) -> set[tuple[str, str]]:
    return {(colour_of(one.colour), one.mark) for one in series}


def test_no_two_methods_of_a_study_look_alike(make_up: MakeUp) -> None:
    results = make_up(DIGITS, "digits")
    chart = results.plot("methods", "Methods", "", [results.line(arm) for arm in results.arms]).chart()
    assert len(looks(chart.series)) == len(METHODS)
    assert len({one.mark for one in chart.series}) == len(METHODS), "nor without colours"
    shown = [one for one in figure_of([chart]).axes[0].get_lines() if not str(one.get_label()).startswith("_")]
    assert len(shown) == len(METHODS)
    assert len({(str(one.get_color()), str(one.get_marker())) for one in shown}) == len(METHODS)


def test_every_method_keeps_its_look() -> None:
    assert sorted(LOOKS) == sorted(METHODS) == sorted(LABELS)
    assert LOOKS[:4] == ("feast", "heterofl", "scalefl", "fiarse")
    assert LOOKS[-1] == "splitmix", "a new method comes after it"
    assert [look_of(method, ["fedavg", "feast"]) for method in ("feast", "fedavg")] == [0, 9]
    assert [look_of(method, ["mine", "feast", "yours"]) for method in ("mine", "yours")] == [15, 16]


def test_the_numbers_for_programs_keep_their_names() -> None:
    tree = plot(line("FEAST", 0)).to_tree()
    assert list(tree) == ["name", "title", "caption", "lines", "shared_from_macs", "anchors_macs", "graded", "metric"]
    assert list(tree["lines"][0]) == ["label", "points", "colour", "dashed", "published"]
    assert tree["lines"][0]["points"][0] == {"macs": 25e6, "accuracy": 60.0, "spread": None}
