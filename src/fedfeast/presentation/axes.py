"""What all pictures share: logarithmic axes with readable numbers, a light grid."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter


def log_axis(axes: Axes, label: str, write: Callable[[float], str]) -> None:
    """Make the horizontal axis logarithmic, its numbers written by a function."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)


def tidy(*all_axes: Axes) -> None:
    """Give axes a light grid and no frame."""
    for axes in all_axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
