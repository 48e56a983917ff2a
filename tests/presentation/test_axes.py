from matplotlib.figure import Figure

from fedfeast.presentation.axes import log_axis, tidy


def test_numbers_are_written_as_asked() -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 40], [0, 1])
    log_axis(axes, "time (ms)", lambda value: f"{value:g} ms")
    tidy(axes)
    figure.draw_without_rendering()
    written = {label.get_text() for label in axes.get_xticklabels()}
    assert {"1 ms", "5 ms", "20 ms"} <= written
    assert axes.get_xlabel() == "time (ms)"
    assert not axes.spines["top"].get_visible()
