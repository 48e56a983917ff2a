import re
from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from fedfeast.presentation.assets import read_asset
from fedfeast.presentation.palette import cell_colour, colour_of, mix, stylesheet_colours


def declared(name: str) -> str:
    found = re.search(rf"--{name}: light-dark\((#\w+),", read_asset("style.css"))
    assert found is not None, name
    return found[1]


# What people without one kind of cone see, in linear RGB: Machado, Oliveira and Fernandes (2009), severity 1.
SIGHTS = {
    "of three cones": np.eye(3),
    "without red": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "without green": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "without blue": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    shown = np.array(to_rgb(colour))
    return np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)


def lab(colour: str, sight: np.ndarray) -> np.ndarray:
    x, y, z = np.cbrt(XYZ @ np.clip(sight @ linear(colour), 0, 1) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    low, high = sorted(float((XYZ @ linear(colour))[1]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("page", ["light", "dark"])
def test_series_are_told_apart_by_everybody(page: str, sight: str) -> None:
    both = dict(re.findall(r"--([\w-]+): light-dark\((#\w+, #\w+)\)", read_asset("style.css")))
    colours = {name: pair.split(", ")[page == "dark"] for name, pair in both.items()}
    series = [colours[f"series-{number}"] for number in range(10)]
    assert min(contrast(colour, colours["card"]) for colour in series) >= 3, "WCAG's least contrast of graphics"
    seen = [lab(colour, SIGHTS[sight]) for colour in series]
    least = min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2))
    assert least > 10, "of CIELAB's distances; 2 is just noticed"


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
