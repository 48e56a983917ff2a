import re

import pytest

from fedfeast.presentation.assets import read_asset
from fedfeast.presentation.palette import cell_colour, colour_of, mix, stylesheet_colours


def declared(name: str) -> str:
    found = re.search(rf"--{name}: light-dark\((#\w+),", read_asset("style.css"))
    assert found is not None, name
    return found[1]


def test_colours_are_the_stylesheets() -> None:
    assert [colour_of(number) for number in range(10)] == [declared(f"series-{number}") for number in range(10)]
    assert colour_of(13) == declared("series-3"), "as charts.js counts them"
    for name in ("ink", "soft", "grey", "card", "accent", "warm", "on-accent", "sunk", "line"):
        assert colour_of(name) == declared(name)


def test_no_two_series_have_one_colour() -> None:
    assert len({colour_of(number) for number in range(10)}) == 10


def test_grades_run_from_the_first_to_the_last() -> None:
    assert colour_of("grade:0") == declared("grade-0")
    assert colour_of("grade:0.500") == declared("grade-2")
    assert colour_of("grade:1.000") == declared("grade-4")
    assert colour_of("grade:0.125") == mix(declared("grade-0"), declared("grade-1"), 0.5)
    script = read_asset("charts.js")
    assert f"const GRADES = {sum(name.startswith('grade-') for name in stylesheet_colours())};" in script
    assert not re.search(r"#[0-9a-f]{6}", script), "charts.js has no colours of its own"


def test_mixing_and_cells() -> None:
    assert mix("#ff0000", "#000000", 0.2) == "#330000"
    assert cell_colour(100) == mix(declared("accent"), declared("card"), 0.94)
    assert cell_colour(0) != declared("card"), "a part that no data reach is still a part"


def test_an_unknown_colour_is_an_error() -> None:
    with pytest.raises(KeyError):
        colour_of("purple")
