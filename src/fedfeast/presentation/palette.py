"""The colours of pictures: the light values of the stylesheet."""

import re
from functools import cache

import numpy as np
from matplotlib.colors import to_hex, to_rgb

from fedfeast.presentation.assets import read_asset
from fedfeast.presentation.chart import Colour

DECLARATION = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), #[0-9a-f]{6}\);")


@cache
def stylesheet_colours() -> dict[str, str]:
    """Return every colour of the stylesheet by its name there, as it is on a light page."""
    return dict(DECLARATION.findall(read_asset("style.css")))


def colour_of(colour: Colour) -> str:
    """Return a chart's colour in hexadecimal digits."""
    if isinstance(colour, int):
        series = _numbered("series")
        return series[colour % len(series)]
    if colour.startswith("grade:"):
        grades = _numbered("grade")
        place = float(colour.removeprefix("grade:")) * (len(grades) - 1)
        first = min(int(place), len(grades) - 2)
        return mix(grades[first + 1], grades[first], place - first)
    return stylesheet_colours()[colour]


def cell_colour(percent: float) -> str:
    """Return the colour of a heat map's cell."""
    return mix(colour_of("accent"), colour_of("card"), round(8 + 0.86 * percent) / 100)


def mix(one: str, other: str, share: float) -> str:
    """Return a colour between two, as color-mix(in srgb, ...) makes it."""
    red, green, blue = (share * np.array(to_rgb(one)) + (1 - share) * np.array(to_rgb(other))).tolist()
    return to_hex((red, green, blue))


def _numbered(name: str) -> list[str]:
    colours = stylesheet_colours()
    return [colours[f"{name}-{number}"] for number in range(sum(key.startswith(f"{name}-") for key in colours))]
