import io

import pytest

from fedfeast.studies.pictures import plot_figure
from fedfeast.studies.plots import Line, Plot, PlotPoint


def line(label: str, colour: int, first_macs: float = 25e6, spread: float | None = None, dashed: bool = False) -> Line:
    points = tuple(PlotPoint(first_macs * 2**step, 60.0 + step, spread) for step in range(4))
    return Line(label, points, colour, dashed)


def plot(*lines: Line, graded: bool = False) -> Plot:
    return Plot("name", "Curves, cifar100", "caption", lines, 25e6, (25e6, 50e6), graded)


def test_every_line_is_drawn_with_its_measured_points() -> None:
    published = Line("FEAST", line("FEAST", 0).points, 0, published=((25e6, 64.89), (50e6, 65.6)))
    figure = plot_figure(plot(published, line("HeteroFL", 1, dashed=True)))
    (axes,) = figure.axes
    written = io.StringIO()
    figure.savefig(written, format="svg")
    text = written.getvalue()
    for label in ("FEAST", "HeteroFL", "the paper's", "test accuracy (%)", "MACs per example", "Curves, cifar100"):
        assert label in text
    drawn = {str(one.get_label()): one for one in axes.get_lines()}
    assert len(drawn["FEAST"].get_xdata()) == 4  # type: ignore[arg-type]
    assert drawn["HeteroFL"].get_linestyle() == "--"
    assert drawn["FEAST"].get_color() != drawn["HeteroFL"].get_color()
    assert axes.get_xscale() == "log"


def test_points_below_the_compared_range_are_shaded() -> None:
    within, below = plot(line("FEAST", 0)), plot(line("HeteroFL", 1, first_macs=3e6))
    assert len(plot_figure(within).axes[0].patches) == 0
    assert len(plot_figure(below).axes[0].patches) == 1


def test_several_seeds_have_a_band() -> None:
    assert len(plot_figure(plot(line("FEAST", 0, spread=0.5))).axes[0].collections) == 1
    assert len(plot_figure(plot(line("FEAST", 0))).axes[0].collections) == 0


@pytest.mark.parametrize("graded", [True, False])
def test_lines_of_one_colour_belong_together(graded: bool) -> None:
    lines = [line(f"{name} {value}", value, dashed=name == "b") for name in "ab" for value in range(4)]
    figure = plot_figure(plot(*lines, graded=graded))
    drawn = {str(one.get_label()): one.get_color() for one in figure.axes[0].get_lines()}
    assert drawn["a 1"] == drawn["b 1"]
    assert len({drawn[f"a {value}"] for value in range(4)}) == 4
