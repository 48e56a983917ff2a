from fedfeast.studies.plots import Line, PlotPoint


def test_a_line_is_cut_where_the_compared_range_begins() -> None:
    line = Line("HeteroFL", (PlotPoint(2e6, 10.0), PlotPoint(35e6, 40.0), PlotPoint(555e6, 70.0)), 1)
    assert [point.macs for point in line.starting_at(25e6).points] == [35e6, 555e6]
    assert line.starting_at(25e6).label == "HeteroFL"
